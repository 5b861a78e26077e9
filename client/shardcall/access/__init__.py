"""How a client comes to its server: addresses, TLS and tokens."""
