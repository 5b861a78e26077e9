"""Kernels whose elements depend on their neighbours: differences, convolutions, shifts, running sums of an axis."""
