"""The front end: servicers, admission, the program cache and the link. Never JAX."""
