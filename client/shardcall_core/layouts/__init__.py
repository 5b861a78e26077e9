"""Shapes, specs and meshes as plain values, the signatures of kernels, and the checks of both."""
