"""Placements of arrays on a mesh, and what moves between two of them."""
