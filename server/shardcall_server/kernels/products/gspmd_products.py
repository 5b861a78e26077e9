"""Products partitioned by the compiler: the strategy `gspmd`."""

from __future__ import annotations

import math
from functools import partial

import jax
import numpy as np

from shardcall_core.functions.contraction import STRETCHED, Contraction
from shardcall_core.layouts.layout import MeshAxes, Spec, block_shape, padded_shape
from shardcall_server.kernels.core.all_gather_plan import AllGatherPlan
from shardcall_server.kernels.core.blocks import fit
from shardcall_server.kernels.core.element_types import widen
from shardcall_server.kernels.core.kernel import Problem, Program, Strategy
from shardcall_server.kernels.products import block_products, costs
from shardcall_server.kernels.products.contraction import ContractionOf, ContractionSharding
from shardcall_server.kernels.products.gathered_products import result_spec

MIN_TERMS_TO_SHARD = 128
"""The minimum number of terms of a sum for which sharding the work and gathering the result is faster."""


def _build(problem: Problem, mesh: jax.sharding.Mesh, of: ContractionOf) -> Program:
    contraction = of(problem)
    if program := block_products.empty_sum(problem, contraction.terms):
        return program
    (result,) = problem.results
    if len(contraction.labels) > 2:
        return _by_pairs(problem, contraction)
    plan = _all_gather_plan(problem, contraction)

    def multiply(*arrays: jax.Array) -> tuple[jax.Array]:
        product = block_products.contract(_align(arrays, contraction), contraction, contraction.result, result.dtype)
        product = block_products.finish(product, result.dtype)
        if plan is not None:
            return (plan.of_arrays(mesh)(fit(product, padded_shape(result.shape, plan.has, problem.mesh))),)
        return (product if problem.out_specs[0] is None else fit(product, problem.padded_result()),)

    return multiply


def _cost(problem: Problem, of: ContractionOf) -> float:
    """Estimates what the compiler makes of a product: it moves operands so that each label is sharded once."""
    contraction, mesh = of(problem), problem.mesh
    (result,), (out_spec,) = problem.results, problem.out_specs
    label_axes = ContractionSharding.of(problem, contraction).label_axes
    spec = costs.spec_of(contraction.result, label_axes)
    devices = mesh.size([name for label in contraction.summed for name in label_axes.get(label, ())])
    size = block_products.sum_type(result.dtype).itemsize
    all_reduce = 2 * (devices - 1) / devices * math.prod(block_shape(result.shape, spec, mesh)) * size
    moved = costs.moved_bytes(problem, [costs.spec_of(labels, label_axes) for labels in contraction.labels])
    gathered = costs.received_elements(result.shape, spec, spec if out_spec is None else out_spec, mesh) * size
    return moved + all_reduce + gathered + costs.computed_bytes(problem, contraction, label_axes)


def _by_pairs(problem: Problem, contraction: Contraction) -> Program:
    """Returns the product of more than two arrays, in pairs from the left, all in the sum type of the result."""
    (result,) = problem.results
    total = block_products.sum_type(result.dtype)

    def multiply(*arrays: jax.Array) -> tuple[jax.Array]:
        first, *others = (widen(array, result.dtype).astype(total) for array in _align(arrays, contraction))
        product = first
        for pair, factor in zip(contraction.pairs(), others, strict=True):
            product = block_products.contract([product, factor], pair, pair.result, total)
            if result.dtype == np.bool_:  # repeated counts would overflow
                product = (product > 0).astype(total)
        product = block_products.finish(product, result.dtype)
        return (product if problem.out_specs[0] is None else fit(product, problem.padded_result()),)

    return multiply


def _all_gather_plan(problem: Problem, contraction: Contraction) -> AllGatherPlan | None:
    """Plans the gather of the result from a product in smaller blocks; None where the compiler decides.

    The product is sharded as the operands' axes, unless the compiler has partial sums to complete. It is also sharded
    over unused mesh axes, whose devices would otherwise all do the same work.
    """
    (out_spec,), (result,) = problem.out_specs, problem.results
    if out_spec is None:
        return None
    sharding = ContractionSharding.of(problem, contraction)
    sums = any(names for label in contraction.summed for _, names in sharding.axes(label))
    used = {name for spec in (*problem.in_specs, out_spec) for names in spec or () for name in names}
    idle = tuple(name for name in problem.mesh.names if name not in used and problem.mesh.size((name,)) > 1)
    specs = [out_spec] if sums else [result_spec(problem, contraction), out_spec]
    if idle and contraction.terms >= MIN_TERMS_TO_SHARD:
        specs = [*(shared for spec in specs for shared in _shared(spec, idle, result.shape, problem.mesh)), *specs]
    plans = [AllGatherPlan.of(result.shape, spec, out_spec, problem.mesh) for spec in specs]
    return next((plan for plan in plans if plan.only_gathers), None)


def _shared(spec: Spec, idle: tuple[str, ...], shape: tuple[int, ...], mesh: MeshAxes) -> list[Spec]:
    """Returns the spec with each long enough axis sharded over more mesh axes, the least padding first."""
    devices = [mesh.size(names + idle) for names in spec]
    padded = {i: -(-n // d) * d / n for i, (n, d) in enumerate(zip(shape, devices, strict=True)) if n >= d}
    return [
        tuple(names + idle if i == axis else names for i, names in enumerate(spec))
        for axis in sorted(padded, key=padded.__getitem__)
    ]


def _align(arrays: tuple[jax.Array, ...], contraction: Contraction) -> list[jax.Array]:
    """Gives the axes of each label one size, the largest padded one, and zeroes the padding of summed ones."""
    padded = {STRETCHED: 1}
    for array, labels in zip(arrays, contraction.labels, strict=True):
        for label, size in zip(labels, array.shape, strict=True):
            if label != STRETCHED:
                padded[label] = max(size, padded.get(label, 0))
    masked = list(arrays)
    for label in contraction.summed:
        if padded[label] > (size := contraction.sizes[label]):
            masked = block_products.mask_label(masked, contraction, label, size)
    return [
        fit(array, [padded[label] for label in labels])
        for array, labels in zip(masked, contraction.labels, strict=True)
    ]


def gspmd(of: ContractionOf) -> Strategy:
    """Returns ``gspmd`` for a kernel's problems."""
    return Strategy(
        "gspmd",
        "The product of the unsharded arrays, partitioned by the compiler. Serves every layout.",
        lambda _: None,
        partial(_build, of=of),
        partial(_cost, of=of),
    )
