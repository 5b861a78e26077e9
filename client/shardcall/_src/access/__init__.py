"""Addresses, TLS and tokens."""
