"""The product of two matrices, multiplied while blocks travel from device to device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import jax

from shardcall_server.errors import CallError, Reason, did_you_mean, shorten
from shardcall_server.kernels import element_types, products, rings
from shardcall_server.kernels.blocks import fit, partition_spec
from shardcall_server.kernels.kernel import (
    Kernel,
    OperandInfo,
    ParameterInfo,
    ParameterValue,
    Problem,
    Program,
    Signature,
    Strategy,
)
from shardcall_server.kernels.layout import ArrayType, MeshAxes, Spec, format_spec, replicated, split
from shardcall_server.kernels.parameters import text
from shardcall_server.kernels.rings import Body, Ring


@dataclass(frozen=True)
class _Layout:
    """The one layout that a strategy serves."""

    lhs: Spec
    rhs: Spec
    result: Spec

    def __str__(self) -> str:
        return f"lhs {format_spec(self.lhs)}, rhs {format_spec(self.rhs)} and the result {format_spec(self.result)}"


def _by_rows(axis_name: str) -> _Layout:
    return _Layout(split(2, 0, (axis_name,)), replicated(2), replicated(2))


def _by_columns(axis_name: str) -> _Layout:
    rows = split(2, 0, (axis_name,))
    return _Layout(split(2, 1, (axis_name,)), rows, rows)


LayoutOf = Callable[[str], _Layout]
_LAYOUTS: Mapping[str, LayoutOf] = {
    "all_gather": _by_rows,
    "ring": _by_rows,
    "bidirectional_ring": _by_rows,
    "psum_scatter": _by_columns,
    "psum_scatter_ring": _by_columns,
}


def _axis_name(problem: Problem) -> str:
    return cast(str, problem.parameters["axis_name"])


def _refusal(problem: Problem, layout_of: LayoutOf) -> str | None:
    layout = layout_of(_axis_name(problem))
    out_spec = problem.out_specs[0]
    if problem.in_specs == (layout.lhs, layout.rhs) and out_spec in (None, layout.result):
        return None
    lhs, rhs = (format_spec(cast(Spec, spec)) for spec in problem.in_specs)
    result = "" if out_spec is None else f" and the result {format_spec(out_spec)}"
    return f"given are lhs {lhs}, rhs {rhs}{result}, and it serves {layout}"


def _build(problem: Problem, mesh: jax.sharding.Mesh, body: Body, layout_of: LayoutOf) -> Program:
    if program := products.empty_sum(problem):
        return program
    (result,), layout = problem.results, layout_of(_axis_name(problem))
    ring = Ring(_axis_name(problem), problem.mesh.size([_axis_name(problem)]), result.dtype)
    contracting = cast(ArrayType, problem.operands[1]).shape[0]

    def block(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        if contracting % ring.devices and layout_of is _by_columns:
            here = products.rows_here(contracting, (ring.axis_name,), rhs.shape[0])
            lhs, rhs = products.mask_contracting(lhs, rhs, here)
        return element_types.from_bits(body(lhs, rhs, ring), result.dtype)

    sharded = jax.shard_map(
        block,
        mesh=mesh,
        in_specs=(partition_spec(layout.lhs), partition_spec(layout.rhs)),
        out_specs=partition_spec(layout.result),
        # That every device holds the same whole product is the ring's doing; JAX cannot know it.
        check_vma=False,
    )
    return lambda lhs, rhs: (fit(sharded(lhs, rhs), problem.padded_result()),)


def _strategy(name: str, documentation: str, body: Body) -> Strategy:
    layout_of = _LAYOUTS[name]
    return Strategy(
        name,
        documentation,
        partial(_refusal, layout_of=layout_of),
        partial(_build, body=body, layout_of=layout_of),
    )


class CollectiveMatMul(Kernel):
    """The product of two matrices along one mesh axis, overlapping products and the travel of blocks.

    ``r[i, j] = Σₖ lhs[i, k] · rhs[k, j]``, as ``np.matmul(lhs, rhs)``, of type ``np.result_type(lhs, rhs)``; sums are
    taken as `MatMul` takes them.

    Sharding: with lhs ``P(axis_name, None)``, rhs ``P()`` and the result ``P()``, over D devices: ``all_gather``
    multiplies and gathers the products, (D - 1) / D of the result's bytes per device; ``ring`` passes the blocks of
    lhs on in D - 1 steps and multiplies each as it comes, (D - 1) / D of the bytes of lhs; ``bidirectional_ring`` sends
    one half of a block each way. With lhs ``P(None, axis_name)``, rhs and the result ``P(axis_name, None)``:
    ``psum_scatter`` sums the partial products, ``psum_scatter_ring`` passes the sums on while every device adds
    its part; (D - 1) / D of the bytes of the result, in the sum's type. Along other mesh axes all is replicated.

    Source: the JAX notebook shard_map, case study "collective matmul"; Wang et al., Overlap communication with
    dependent computation via decomposition in large deep learning models, ASPLOS 2023.
    """

    name = "collective_matmul"
    version = 1
    summary = "The product of two matrices, multiplied while blocks travel along one mesh axis."
    operands = (
        OperandInfo("lhs", "The left factor, [M, K]."),
        OperandInfo("rhs", "The right factor, [K, N]."),
    )
    parameters = (ParameterInfo("axis_name", "The mesh axis along which blocks travel."),)
    strategies = (
        _strategy(
            "all_gather",
            "Every device multiplies its rows of lhs, and the products are gathered. Serves lhs "
            "P(axis_name, None), rhs P(), result P().",
            rings.all_gather,
        ),
        _strategy(
            "ring",
            "The blocks of lhs go round and every device multiplies each as it comes. Serves lhs "
            "P(axis_name, None), rhs P(), result P().",
            rings.ring_of_lhs,
        ),
        _strategy(
            "bidirectional_ring",
            "As ring, with one half of each block sent each way. Serves lhs P(axis_name, None), rhs P(), result P().",
            rings.bidirectional_ring_of_lhs,
        ),
        _strategy(
            "psum_scatter",
            "Every device multiplies its blocks and the sums are scattered by rows. Serves lhs "
            "P(None, axis_name), rhs P(axis_name, None), result P(axis_name, None).",
            rings.psum_scatter,
        ),
        _strategy(
            "psum_scatter_ring",
            "As psum_scatter, but the sums go round and every device adds its part just in time. Serves lhs "
            "P(None, axis_name), rhs P(axis_name, None), result P(axis_name, None).",
            rings.ring_of_sums,
        ),
    )

    def validate(self, operands: Sequence[ArrayType | None], parameters: Mapping[str, ParameterValue]) -> Signature:
        """Checks a call and tells the result's type.

        Raises:
            CallError: for operands that are no matrices, shapes that do not match, element types that do not meet,
                and an axis_name that is no string.
        """
        axis_name = text(parameters, "axis_name")
        lhs, rhs = (cast(ArrayType, operand) for operand in operands)
        for name, operand in (("lhs", lhs), ("rhs", rhs)):
            if operand.ndim != 2:
                raise CallError(
                    Reason.INVALID_OPERAND,
                    f"{name} is {shorten(str(operand))}, of rank {operand.ndim}; give a matrix, or call matmul",
                    field=name,
                )
        return Signature({"axis_name": axis_name}, (products.product_type(lhs, rhs),))

    def default_in_specs(
        self,
        operands: Sequence[ArrayType | None],
        parameters: Mapping[str, ParameterValue],
        in_specs: Sequence[Spec | None],
        mesh: MeshAxes,
        strategy: str,
    ) -> tuple[Spec | None, ...]:
        """Fills in unset specs by the strategy's layout; for ``auto`` by rows, unless the other spec says columns.

        Raises:
            CallError: for an axis_name that the mesh does not have.
        """
        axis_name = cast(str, parameters["axis_name"])
        if axis_name not in mesh.names:
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"axis_name={shorten(axis_name)!r} is no axis of the mesh ({mesh}); "
                f"{did_you_mean(axis_name, mesh.names)}",
                field="axis_name",
            )
        columns = _by_columns(axis_name)
        by_columns = in_specs[0] == columns.lhs or in_specs[1] == columns.rhs
        layout = _LAYOUTS.get(strategy, _by_columns if by_columns else _by_rows)(axis_name)
        return tuple(
            default if spec is None else spec for spec, default in zip(in_specs, (layout.lhs, layout.rhs), strict=True)
        )

    def default_out_specs(self, problem: Problem, strategy: str) -> tuple[Spec | None, ...]:
        """What the strategy makes."""
        return (problem.out_specs[0] or _LAYOUTS[strategy](_axis_name(problem)).result,)

    def choose(self, problem: Problem) -> tuple[str, str]:
        """``all_gather`` for lhs by rows, ``psum_scatter`` for lhs by columns.

        Raises:
            CallError: for all other layouts.
        """
        if not _refusal(problem, _by_rows):
            return "all_gather", "lhs is split by rows; products are quicker gathered than lhs"
        if not _refusal(problem, _by_columns):
            return "psum_scatter", "lhs is split by columns"
        by_rows, by_columns = (layout(_axis_name(problem)) for layout in (_by_rows, _by_columns))
        raise CallError(
            Reason.STRATEGY_UNSUPPORTED,
            f"no strategy of kernel 'collective_matmul' serves this layout; give {by_rows}, or {by_columns}, "
            "or call matmul",
            field="strategy",
            metadata={"able": ""},
        )
