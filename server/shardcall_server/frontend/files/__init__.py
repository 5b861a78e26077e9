"""Private files and folders of the server's user."""
