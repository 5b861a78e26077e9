"""Resolves, keys and compiles calls; analyses and stores compiled programs."""
