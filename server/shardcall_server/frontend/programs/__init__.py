"""Caches, compiles and warms up programs, and tests them against known answers."""
