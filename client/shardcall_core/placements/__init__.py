"""Placements of arrays on a mesh, and transfers between two of them."""
