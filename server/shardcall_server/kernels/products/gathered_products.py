"""Products that move the operands and not the result: the strategies `all_gather` and `summa`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
from jax import lax

from shardcall_core.functions.contraction import STRETCHED, Contraction
from shardcall_core.layouts.layout import Spec, format_spec
from shardcall_server.kernels.core.all_gather_plan import AllGatherPlan, movable, moved
from shardcall_server.kernels.core.blocks import index_type, mask_from, pad_axis, partition_spec
from shardcall_server.kernels.core.kernel import Problem, Program, Strategy
from shardcall_server.kernels.products import block_products, costs
from shardcall_server.kernels.products.contraction import ContractionOf, ContractionSharding, format_mesh_axes


def result_spec(problem: Problem, contraction: Contraction) -> Spec:
    """Returns the result's spec from the sharding of the operands' axes; each mesh axis is used once."""
    sharding, used, spec = ContractionSharding.of(problem, contraction), set[str](), []
    for label in contraction.result:
        names = () if used & {*sharding.mesh_axes(label)} else sharding.mesh_axes(label)
        used |= {*names}
        spec.append(names)
    return tuple(spec)


def _out_spec(problem: Problem, contraction: Contraction) -> Spec:
    spec = problem.out_specs[0]
    return result_spec(problem, contraction) if spec is None else spec


def _plans(problem: Problem, contraction: Contraction) -> list[AllGatherPlan]:
    needed = dict(zip(contraction.result, _out_spec(problem, contraction), strict=True))
    return [
        AllGatherPlan.of(
            [1 if label == STRETCHED else contraction.sizes[label] for label in labels],
            spec,
            tuple(needed.get(label, ()) for label in labels),
            problem.mesh,
        )
        for labels, spec in zip(contraction.labels, ContractionSharding.of(problem, contraction).specs, strict=True)
    ]


def _all_gather_refusal(problem: Problem, of: ContractionOf) -> str | None:
    contraction = of(problem)
    sharding, spec = ContractionSharding.of(problem, contraction), _out_spec(problem, contraction)
    if why := _duplicate_work(sharding, spec):
        return why
    if not any(plan.gathers for plan in _plans(problem, contraction)):
        return "every device has what its block of the result needs, and it gathers what a device lacks"
    return None


def _all_gather_cost(problem: Problem, of: ContractionOf) -> float:
    contraction = of(problem)
    arrays = [array for array in problem.operands if array is not None]
    plans = _plans(problem, contraction)
    gathered = sum(
        plan.received_elements(array.shape, problem.mesh) * array.dtype.itemsize
        for array, plan in zip(arrays, plans, strict=True)
    )
    label_axes = dict(zip(contraction.result, _out_spec(problem, contraction), strict=True))
    return gathered + costs.computed_bytes(problem, contraction, label_axes)


def _all_gather(problem: Problem, mesh: jax.sharding.Mesh, of: ContractionOf) -> Program:
    contraction = of(problem)
    if program := block_products.empty_sum(problem, contraction.terms):
        return program
    (result,), plans = problem.results, _plans(problem, contraction)

    def block(*arrays: jax.Array) -> jax.Array:
        needed = [plan.block(array) for array, plan in zip(arrays, plans, strict=True)]
        return block_products.finish(
            block_products.contract(needed, contraction, contraction.result, result.dtype), result.dtype
        )

    return _sharded(block, problem, contraction, mesh)


def _summa_refusal(problem: Problem, of: ContractionOf) -> str | None:
    contraction = of(problem)
    sharding, summed = ContractionSharding.of(problem, contraction), contraction.summed
    if not any(names for label in summed for _, names in sharding.axes(label)):
        return "the contracting axis is sharded in neither operand, and it broadcasts panels of one that is"
    if why := sharding.refusal(gathered=summed):
        return why
    spec = problem.out_specs[0]
    if spec is not None and spec != sharding.result_spec:
        served = format_spec(sharding.result_spec)
        return f"the result is to be {format_spec(spec)}, and it makes {served} of these operands"
    return _duplicate_work(sharding, sharding.result_spec)


def _summa_cost(problem: Problem, of: ContractionOf) -> float:
    contraction = of(problem)
    sharding = ContractionSharding.of(problem, contraction)
    label_axes = dict(zip(contraction.result, sharding.result_spec, strict=True))
    # A panel is broadcast by a sum, which sends it twice.
    panels = 2 * costs.moved_bytes(problem, [costs.spec_of(labels, label_axes) for labels in contraction.labels])
    return panels + costs.computed_bytes(problem, contraction, label_axes)


def _duplicate_work(sharding: ContractionSharding, spec: Spec) -> str | None:
    kept = {name for names in spec for name in names}
    if unused := tuple(name for name in sharding.used if name not in kept):
        return (
            f"the result is sharded as {format_spec(spec)} and the operands are over {format_mesh_axes(unused)} too, "
            "and it serves a result sharded over all of them, or devices would multiply the same blocks"
        )
    return None


@dataclass(frozen=True)
class _Panels:
    """The contracting axis in panels, each of which is inside one block of each operand.

    Attributes:
        edges: the start of each panel, and the size of the axis.
        blocks: the size of a block of each operand.
    """

    edges: tuple[int, ...]
    blocks: tuple[int, ...]

    @staticmethod
    def of(size: int, blocks: Sequence[int]) -> _Panels:
        """Cuts an axis at the edges of both operands' blocks."""
        return _Panels(tuple(sorted({size, *(edge for b in blocks for edge in range(0, size, b))})), tuple(blocks))

    @property
    def width(self) -> int:
        """The size of the widest panel."""
        return max(end - start for start, end in pairwise(self.edges))

    @property
    def even(self) -> bool:
        """True if all panels have the same size."""
        return len({end - start for start, end in pairwise(self.edges)}) == 1

    def extend(self, array: jax.Array, axis: int) -> jax.Array:
        """Pads a block so that a slice of the widest panel is inside it, wherever it begins."""
        return array if self.even else pad_axis(array, axis, 0, self.width)

    def broadcast_panel(
        self, array: jax.Array, operand: int, axis: int, axis_names: tuple[str, ...], i: jax.Array | int
    ) -> jax.Array:
        """Returns the i-th panel of an operand, on all devices along the mesh axes that shard it."""
        dtype = index_type(max(self.edges[-1], max(self.blocks) + self.width))  # a block is extended by a panel
        starts, ends = (jnp.asarray(edges, dtype) for edges in (self.edges[:-1], self.edges[1:]))
        block, start = self.blocks[operand], starts[i]
        panel = lax.dynamic_slice_in_dim(array, start % block, self.width, axis)
        if not self.even:
            panel = mask_from(panel, axis, ends[i] - start)
        if axis_names:
            mine = lax.axis_index(axis_names) == start // block
            panel = lax.psum(jnp.where(mine, panel, jnp.zeros((), panel.dtype)), axis_names)
        return panel


def _summa(problem: Problem, mesh: jax.sharding.Mesh, of: ContractionOf) -> Program:
    contraction = of(problem)
    if program := block_products.empty_sum(problem, contraction.terms):
        return program
    (result,), (label,) = problem.results, contraction.summed
    size = contraction.sizes[label]
    axis_names_of = [names for _, names in ContractionSharding.of(problem, contraction).axes(label)]
    panels = _Panels.of(size, [-(-size // problem.mesh.size(names)) for names in axis_names_of])
    axes = [labels.index(label) for labels in contraction.labels]

    def block(*arrays: jax.Array) -> jax.Array:
        # XLA:GPU sums integers of 16 bits as 32, and floats of 16 bits as they are.
        movables = [movable(array) if array.dtype.itemsize == 1 else array for array in arrays]
        blocks = [panels.extend(array, axis) for array, axis in zip(movables, axes, strict=True)]

        def part(i: jax.Array | int) -> jax.Array:
            factors = [
                moved(
                    panels.broadcast_panel(block, operand, axes[operand], axis_names_of[operand], i),
                    arrays[operand].dtype,
                )
                for operand, block in enumerate(blocks)
            ]
            return block_products.contract(factors, contraction, contraction.result, result.dtype)

        # A loop, since panels that are all broadcast at once take as much memory as the gathered operands.
        total = lax.fori_loop(1, len(panels.edges) - 1, lambda i, total: total + part(i), part(0))
        return block_products.finish(total, result.dtype)

    return _sharded(block, problem, contraction, mesh)


def _sharded(
    block: Callable[..., jax.Array], problem: Problem, contraction: Contraction, mesh: jax.sharding.Mesh
) -> Program:
    body = jax.shard_map(
        block,
        mesh=mesh,
        in_specs=tuple(partition_spec(spec) for spec in problem.in_specs if spec is not None),
        out_specs=partition_spec(_out_spec(problem, contraction)),
        # Gathered blocks are equal on all devices, which JAX cannot infer.
        check_vma=False,
    )
    return lambda *arrays: (body(*arrays),)


def all_gather(of: ContractionOf) -> Strategy:
    """Returns ``all_gather`` for a kernel's problems."""
    return Strategy(
        "all_gather",
        "Every device gathers what its block of the result needs of the operands, and multiplies once. Serves a result "
        "sharded over all mesh axes that shard an operand.",
        partial(_all_gather_refusal, of=of),
        partial(_all_gather, of=of),
        partial(_all_gather_cost, of=of),
    )


def summa(of: ContractionOf) -> Strategy:
    """Returns ``summa`` for a kernel's problems."""
    return Strategy(
        "summa",
        "Panels of the contracting axis are broadcast along the rows and columns of the mesh one after the other, and "
        "every device adds their product to its block: little memory. Serves a contracting axis that is sharded, and a "
        "result sharded by the rows of lhs and the columns of rhs.",
        partial(_summa_refusal, of=of),
        partial(_summa, of=of),
        partial(_summa_cost, of=of),
    )
