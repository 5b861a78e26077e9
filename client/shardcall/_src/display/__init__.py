"""Drawings of blocks, and the progress of calls."""
