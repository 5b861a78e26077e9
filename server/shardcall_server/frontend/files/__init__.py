"""Files and folders that belong to the server's user alone."""
