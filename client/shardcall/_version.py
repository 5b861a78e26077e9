"""The version of the client and of the server, from which the distribution takes it."""

__version__ = "0.1.0"
