"""Functions of the caller, traced and run as one program."""
