"""Products that need a sum over devices: the strategies `psum` and `psum_scatter`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
from jax import lax

from shardcall_core.functions.contraction import Contraction
from shardcall_core.layouts.layout import Spec, block_shape, format_spec
from shardcall_server.kernels.core.blocks import partition_spec
from shardcall_server.kernels.core.kernel import Problem, Program, Strategy
from shardcall_server.kernels.products import block_products, costs
from shardcall_server.kernels.products.contraction import ContractionOf, ContractionSharding, format_mesh_axes


@dataclass(frozen=True)
class PartialSums:
    """A contraction whose summed axes are sharded.

    Attributes:
        problem: the call.
        contraction: its labels.
    """

    problem: Problem
    contraction: Contraction

    @property
    def sharding(self) -> ContractionSharding:
        """The sharding of the operands."""
        return ContractionSharding.of(self.problem, self.contraction)

    def scattered(self, axis: int) -> Spec:
        """Returns the result's spec if the sums are scattered along one of its axes."""
        sharding = self.sharding
        return tuple(
            names + sharding.summed_mesh_axes if i == axis else names for i, names in enumerate(sharding.result_spec)
        )

    @property
    def scatter_axis(self) -> int:
        """The axis to scatter along: that of the requested spec, else the longest suitable axis of lhs alone."""
        result, out_spec = self.contraction.result, self.problem.out_specs[0]
        for axis in range(len(result)):
            if out_spec == self.scattered(axis):
                return axis
        axes = range(len(result))
        able = [axis for axis in axes if not self._uneven(axis)] or axes
        of_lhs = [axis for axis in able if result[axis] not in self.contraction.labels[-1]] or able
        return max(of_lhs, key=lambda axis: self.contraction.shape[axis], default=0)

    def refusal(self) -> str | None:
        """Returns why there are no partial sums that a collective can complete, or None."""
        axes = [axis for label in self.contraction.summed for axis in self.sharding.axes(label)]
        if not any(names for _, names in axes):
            return "no axis that is summed over is sharded, and it completes the sums of one that is"
        return self.sharding.refusal()

    def psum_refusal(self) -> str | None:
        """Returns why ``psum`` cannot serve, or None."""
        return self.refusal() or self._out_refusal(self.sharding.result_spec)

    def psum_scatter_refusal(self) -> str | None:
        """Returns why ``psum_scatter`` cannot serve, or None."""
        if why := self.refusal():
            return why
        if not self.contraction.result:
            return "the result is a scalar, and it scatters the sums along an axis"
        axis = self.scatter_axis
        return self._uneven(axis) or self._out_refusal(self.scattered(axis))

    def cost(self, *, scatter: bool) -> float:
        """Returns the cost of a problem that is served: of the products, and of the collective that completes them."""
        sharding, devices = self.sharding, self.problem.mesh.size(self.sharding.summed_mesh_axes)
        # A reduce-scatter sends all blocks but one; an all-reduce gathers the sums afterwards.
        blocks = devices - 1 if scatter else 2 * (devices - 1) / devices
        sums = blocks * costs.product_bytes(self.problem, self.contraction)
        return sums + costs.computed_bytes(self.problem, self.contraction, sharding.label_axes)

    def _uneven(self, axis: int) -> str | None:
        mesh, parts = self.problem.mesh, self.problem.mesh.size(self.sharding.summed_mesh_axes)
        shape, spec = self.contraction.shape, self.sharding.result_spec
        summed, block = (block_shape(shape, s, mesh)[axis] for s in (spec, self.scattered(axis)))
        if not spec[axis] or summed == parts * block:
            return None
        return (
            f"a block of the product has {summed} of {shape[axis]} along axis {axis} and {parts} blocks of the "
            f"result have {parts * block}, and it serves equal ones"
        )

    def _out_refusal(self, served: Spec) -> str | None:
        spec = self.problem.out_specs[0]
        if spec is None or spec == served:
            return None
        return f"the result is to be {format_spec(spec)}, and it makes {format_spec(served)} of these operands"


def _build(problem: Problem, mesh: jax.sharding.Mesh, of: ContractionOf, *, scatter: bool) -> Program:
    sums = PartialSums(problem, contraction := of(problem))
    if program := block_products.empty_sum(problem, contraction.terms):
        return program
    (result,), sharding, axis = problem.results, sums.sharding, sums.scatter_axis
    names, devices = sharding.summed_mesh_axes, problem.mesh.size(sharding.summed_mesh_axes)
    labels = contraction.result
    # Sums are scattered along their first axis if they need not be transposed for that: along dimension 1, psum_scatter
    # of 2048² float32 on 8 devices takes 227 ms (gspmd 152), and 0.7 of that for the transposed product.
    first = scatter and not any(all(label in labels for labels in contraction.labels) for label in labels)
    if first:
        labels = (labels[axis], *labels[:axis], *labels[axis + 1 :])

    def block(*arrays: jax.Array) -> jax.Array:
        arrays = tuple(_mask(list(arrays), sums))
        part = block_products.contract(arrays, contraction, labels, result.dtype)
        if not scatter:
            return block_products.finish(lax.psum(part, names), result.dtype)
        total = block_products.finish(
            block_products.scatter_sum(part, 0 if first else axis, names, devices), result.dtype
        )
        return lax.transpose(total, [labels.index(label) for label in contraction.result])

    body = jax.shard_map(
        block,
        mesh=mesh,
        in_specs=tuple(partition_spec(spec) for spec in problem.in_specs if spec is not None),
        out_specs=partition_spec(sums.scattered(axis) if scatter else sharding.result_spec),
    )
    return lambda *arrays: (body(*arrays),)


def _mask(arrays: list[jax.Array], sums: PartialSums) -> list[jax.Array]:
    """Zeroes the padding of axes that are summed over."""
    contraction = sums.contraction
    for label in contraction.summed:
        size, names = contraction.sizes[label], sums.sharding.mesh_axes(label)
        devices = sums.problem.mesh.size(names)
        if size % devices:
            here = block_products.rows_here(size, names, -(-size // devices))
            arrays = block_products.mask_label(arrays, contraction, label, here)
    return arrays


def strategies(of: ContractionOf) -> tuple[Strategy, ...]:
    """Returns ``psum`` and ``psum_scatter`` for a kernel's problems."""
    return (
        Strategy(
            "psum",
            "Every device multiplies its blocks and an all-reduce completes the partial sums. Serves corresponding "
            "axes that are sharded alike, one that is summed over among them; the result is sharded as the operands.",
            lambda problem: PartialSums(problem, of(problem)).psum_refusal(),
            partial(_build, of=of, scatter=False),
            lambda problem: PartialSums(problem, of(problem)).cost(scatter=False),
        ),
        Strategy(
            "psum_scatter",
            "As psum, but a reduce-scatter leaves each device only its block of the sums: half the bytes. One axis of "
            "the result, its rows unless its spec says another, is sharded over the mesh axes summed over too.",
            lambda problem: PartialSums(problem, of(problem)).psum_scatter_refusal(),
            partial(_build, of=of, scatter=True),
            lambda problem: PartialSums(problem, of(problem)).cost(scatter=True),
        ),
    )


def default_out_spec(problem: Problem, contraction: Contraction, strategy: str) -> Spec | None:
    """Returns the result's spec of these strategies; None where they cannot serve."""
    sums = PartialSums(problem, contraction)
    if sums.refusal():
        return None
    scattered = strategy == "psum_scatter" and contraction.result
    return sums.scattered(sums.scatter_axis) if scattered else sums.sharding.result_spec


def reason(names: tuple[str, ...], collective: str) -> str:
    """Returns the reason that a collective completes partial sums, as a clause."""
    axes = format_mesh_axes(names)
    return f"an axis that is summed over is sharded over {axes}, and {collective} completes the partial sums"
