"""Generated stubs of the link between front end and worker; never edited."""
