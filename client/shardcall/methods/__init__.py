"""The methods of kernels, with the names and defaults of their NumPy equivalents."""

from __future__ import annotations

from shardcall.methods.kernel_methods import KernelMethods

__all__ = ["KernelMethods"]
