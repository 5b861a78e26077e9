"""Estimates of what the devices send and compute for a contraction, by which `auto` chooses a strategy.

A strategy makes blocks of the operands, multiplies them, and completes sums. So its cost follows from the mesh axes
that shard each label while blocks are multiplied, and from the bytes that complete the sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from shardcall_core.functions.contraction import STRETCHED, Contraction, Labels
from shardcall_core.layouts.layout import MeshAxes, Spec, block_shape
from shardcall_server.kernels.core.kernel import PRODUCTS_PER_BYTE, Problem
from shardcall_server.kernels.products import block_products

LabelAxes = Mapping[str, tuple[str, ...]]
"""The mesh axes that shard the axes of each label; labels that are left out are not sharded."""


def spec_of(labels: Labels, label_axes: LabelAxes) -> Spec:
    """Returns the spec of an array whose axes have labels; stretched axes are not sharded."""
    return tuple(() if label == STRETCHED else label_axes.get(label, ()) for label in labels)


def received_elements(shape: Sequence[int], has: Spec, needs: Spec, mesh: MeshAxes) -> float:
    """Returns how many elements of its block in one sharding a device lacks in another, on average.

    Args:
        shape: the shape of the array.
        has: the spec of the array.
        needs: the spec that is needed.
        mesh: the axes of the mesh.
    """
    shared = 1.0
    for size, names, needed in zip(shape, has, needs, strict=True):
        held, taken = mesh.size(names), mesh.size(needed)
        is_nested = names[: len(needed)] == needed[: len(names)]
        shared *= size / (max(held, taken) if is_nested else held * taken)
    return max(0.0, math.prod(block_shape(shape, needs, mesh)) - shared)


def moved_bytes(problem: Problem, in_specs: Sequence[Spec]) -> float:
    """Returns the bytes that a device receives where the operands are moved to other specs."""
    entries = zip(problem.operands, problem.in_specs, strict=True)
    present = [(array, spec) for array, spec in entries if array is not None and spec is not None]
    return sum(
        received_elements(array.shape, has, needs, problem.mesh) * array.dtype.itemsize
        for (array, has), needs in zip(present, in_specs, strict=True)
    )


def product_bytes(problem: Problem, contraction: Contraction) -> float:
    """Returns the bytes of a device's block of the result in the sum type, where the problem's specs are all set."""
    (result,), (spec,) = problem.results, problem.out_specs
    block = block_shape(contraction.shape, spec or ((),) * result.ndim, problem.mesh)
    return math.prod(block) * block_products.sum_type(result.dtype).itemsize


def computed_bytes(problem: Problem, contraction: Contraction, label_axes: LabelAxes) -> float:
    """Returns the products of a device, as the bytes that are sent in the same time."""
    blocks = (-(-size // problem.mesh.size(label_axes.get(label, ()))) for label, size in contraction.sizes.items())
    return math.prod(blocks) / PRODUCTS_PER_BYTE
