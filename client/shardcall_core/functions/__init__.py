"""The table of functions that the client and the server share; it imports NumPy and ml_dtypes alone."""
