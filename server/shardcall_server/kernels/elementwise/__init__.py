"""Kernels whose elements are computed alone or reduced: ufuncs, reductions, random numbers."""
