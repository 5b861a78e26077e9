"""Who may reach the server, and by which way."""
