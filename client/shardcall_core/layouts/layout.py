"""Shapes, specs and meshes as plain values: hashable, and free of JAX.

Letters used in the docstrings of this package:

    M, K, N   rows of lhs, the contracting axis, columns of rhs
    B         the size of a block along the axis in question
    D         the number of devices along a mesh axis
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

MAX_RANK = 32
"""The most axes that an array may have."""

Spec = tuple[tuple[str, ...], ...]
"""A complete PartitionSpec: for every array axis the mesh axes it is sharded over, outermost first."""


Specs = tuple[Spec | None, ...]
"""A spec for each of several arrays; None for one that is unset, or for an operand left out."""


@dataclass(frozen=True)
class ArrayType:
    """The shape and element type of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all elements; a Python integer, so it cannot overflow."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def span_bytes(self) -> int:
        """Bytes with sizes of 0 counted as 1: what a compiler's index arithmetic has to hold."""
        return math.prod(max(n, 1) for n in self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


OperandTypes = Sequence[ArrayType | None]
"""The types of a call's operands by position; None for one left out."""


ValueT = TypeVar("ValueT")


def required(value: ValueT | None) -> ValueT:
    """Returns a required operand, or its spec, with a type that excludes None."""
    assert value is not None
    return value


@dataclass(frozen=True)
class MeshAxes:
    """The named axes of a mesh, outermost first, without its devices."""

    axes: tuple[tuple[str, int], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The axis names, outermost first."""
        return tuple(name for name, _ in self.axes)

    @property
    def device_count(self) -> int:
        """The number of devices in the mesh."""
        return self.size(self.names)

    def size(self, axis_names: Sequence[str]) -> int:
        """Returns the number of blocks that an array axis sharded over these mesh axes has; 1 for none."""
        sizes = dict(self.axes)
        return math.prod(sizes[name] for name in axis_names)

    def __str__(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.axes)


def replicated(ndim: int) -> Spec:
    """Returns the spec that shards no axis."""
    return ((),) * ndim


def sharded(ndim: int, axis: int, axis_names: Sequence[str]) -> Spec:
    """Returns the spec that shards one axis over these mesh axes."""
    return tuple(tuple(axis_names) if i == axis else () for i in range(ndim))


def row_sharding(ndim: int, mesh: MeshAxes) -> Spec:
    """Returns the default spec of an array: its first axis sharded over all mesh axes, a scalar replicated."""
    return sharded(ndim, 0, mesh.names)


def block_shape(shape: Sequence[int], spec: Spec, mesh: MeshAxes) -> tuple[int, ...]:
    """Returns the shape of one device's block: every axis divided by its devices, rounded up."""
    return tuple(-(-n // mesh.size(names)) for n, names in zip(shape, spec, strict=True))


def padded_shape(shape: Sequence[int], spec: Spec, mesh: MeshAxes) -> tuple[int, ...]:
    """Returns the smallest shape that the spec divides evenly and that holds ``shape``."""
    return tuple(-(-n // (d := mesh.size(names))) * d for n, names in zip(shape, spec, strict=True))


def format_spec(spec: Spec) -> str:
    """Returns the spec as a user writes it: ``P('x', None)``, ``P(('a', 'b'), None)``."""
    entries = [repr(names[0]) if len(names) == 1 else repr(names) if names else "None" for names in spec]
    return f"P({', '.join(entries)})"
