"""Products of whole arrays, partitioned by the compiler: `gspmd`."""

from __future__ import annotations

from functools import partial

import jax

from shardcall_server.kernels import products
from shardcall_server.kernels.blocks import fit, partition_spec
from shardcall_server.kernels.contraction import STRETCHED, Contraction, ContractionOf
from shardcall_server.kernels.kernel import Problem, Program, Strategy

WORTH_SHARING = 128
"""The products that an element of the result is the sum of, from which on it pays to share out work and then gather."""


def _build(problem: Problem, mesh: jax.sharding.Mesh, of: ContractionOf) -> Program:
    contraction = of(problem)
    if program := products.empty_sum(problem, contraction.terms):
        return program
    (result,) = problem.results

    def whole(*arrays: jax.Array) -> tuple[jax.Array]:
        product = products.contract(_align(arrays, contraction), contraction, contraction.result, result.dtype)
        product = _share_out(products.finish(product, result.dtype), problem, contraction, mesh)
        return (product if problem.out_specs[0] is None else fit(product, problem.padded_result()),)

    return whole


def _share_out(product: jax.Array, problem: Problem, contraction: Contraction, mesh: jax.sharding.Mesh) -> jax.Array:
    """Splits the product over mesh axes that nothing is split over: else their devices would all do the same work."""
    out_spec = problem.out_specs[0]
    used = {name for spec in (*problem.in_specs, out_spec) for names in spec or () for name in names}
    idle = tuple(name for name in problem.mesh.names if name not in used)
    devices = problem.mesh.size(idle)
    if out_spec is None or devices == 1 or contraction.terms < WORTH_SHARING:
        return product
    for axis, size in enumerate(product.shape):
        if not size % (devices * problem.mesh.size(out_spec[axis])):
            shared = tuple(names + idle if i == axis else names for i, names in enumerate(out_spec))
            sharding = jax.sharding.NamedSharding(mesh, partition_spec(shared))
            constrained: jax.Array = jax.lax.with_sharding_constraint(product, sharding)
            return constrained
    return product


def _align(arrays: tuple[jax.Array, ...], contraction: Contraction) -> list[jax.Array]:
    """Gives axes that meet one size, the largest of their padded ones, and zeroes the padding of summed ones."""
    padded = {STRETCHED: 1}
    for array, labels in zip(arrays, contraction.labels, strict=True):
        for label, size in zip(labels, array.shape, strict=True):
            if label != STRETCHED:
                padded[label] = max(size, padded.get(label, 0))
    masked = list(arrays)
    for label in contraction.summed:
        if padded[label] > (size := contraction.sizes[label]):
            masked = products.mask_label(masked, contraction, label, size)
    return [
        fit(array, [padded[label] for label in labels])
        for array, labels in zip(masked, contraction.labels, strict=True)
    ]


def gspmd(of: ContractionOf) -> Strategy:
    """``gspmd`` for a kernel's problems."""
    return Strategy(
        "gspmd",
        "The product of the whole arrays, partitioned by the compiler. Serves every layout.",
        lambda _: None,
        partial(_build, of=of),
    )
