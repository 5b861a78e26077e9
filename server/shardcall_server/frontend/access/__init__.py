"""Authentication, authorization, TLS, listening addresses and flood protection."""
