"""Code that the client shares with the server: chunks, shared memory, token files and sockets of one user."""
