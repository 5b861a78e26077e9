"""Products of whole arrays, partitioned by the compiler: `gspmd`."""

from __future__ import annotations

from functools import partial

import jax

from shardcall_server.kernels import products
from shardcall_server.kernels.blocks import fit
from shardcall_server.kernels.contraction import STRETCHED, Contraction, ContractionOf
from shardcall_server.kernels.kernel import Problem, Program, Strategy


def _build(problem: Problem, mesh: jax.sharding.Mesh, of: ContractionOf) -> Program:
    del mesh
    contraction = of(problem)
    if program := products.empty_sum(problem, contraction.terms):
        return program
    (result,) = problem.results

    def whole(*arrays: jax.Array) -> tuple[jax.Array]:
        product = products.contract(_align(arrays, contraction), contraction, contraction.result, result.dtype)
        product = products.finish(product, result.dtype)
        return (product if problem.out_specs[0] is None else fit(product, problem.padded_result()),)

    return whole


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
