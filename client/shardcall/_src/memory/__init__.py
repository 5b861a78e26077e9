"""The memory that a client shares with a server on its host."""
