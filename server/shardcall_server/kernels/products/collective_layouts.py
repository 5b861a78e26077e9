"""The layouts that `collective_matmul` serves: the travelling operand and the sharding of the product.

The travelling operand follows from the axes of lhs and rhs that ``axis_name`` shards:

    lhs, rhs:     no axis            contracting        columns
    no axis       nothing            rhs, contracting   rhs, columns
    rows          lhs, rows          rhs, contracting   lhs, rows, or rhs, columns
    contracting   lhs, contracting   the sums           lhs, contracting

Other mesh axes shard the array axes as before. They may shard the contracting axis too, alike in both operands; the
products are summed over them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardcall_core.functions.products import CollectiveMatMulParameters
from shardcall_core.layouts.layout import MeshAxes, Spec, format_spec, required, sharded
from shardcall_server.kernels.core.kernel import Problem


@dataclass(frozen=True)
class Layout:
    """A layout of a product along a mesh axis.

    Attributes:
        axis_name: the mesh axis along which blocks travel.
        lhs: the spec of lhs.
        rhs: the spec of rhs.
        result: the spec of the product.
        travels: 0 for blocks of lhs, 1 for blocks of rhs, None for sums.
        axis: the axis along which the travelling operand is sharded, or along which the sums are scattered.
        summed: the other mesh axes over which products are summed.
    """

    axis_name: str
    lhs: Spec
    rhs: Spec
    result: Spec
    travels: int | None
    axis: int
    summed: tuple[str, ...]

    @property
    def contracting(self) -> bool:
        """True if the contracting axis is gathered."""
        return self.travels is not None and self.axis != self.travels

    def padded(self, rows: int, contracting: int, columns: int, mesh: MeshAxes) -> tuple[int, int, int]:
        """Returns the smallest sizes [M, K, N] that every operand's and the result's specs divide."""
        axes = (
            (rows, self.lhs[0], self.result[0]),
            (contracting, self.lhs[1], self.rhs[0]),
            (columns, self.rhs[1], self.result[1]),
        )
        m, k, n = (-(-size // (d := max(map(mesh.size, names)))) * d for size, *names in axes)
        return m, k, n


def layouts(problem: Problem[CollectiveMatMulParameters], *, gather: bool) -> tuple[Layout, ...]:
    """Returns the layouts that the operands' specs allow, the preferred one first; if none, see `misfit`."""
    lhs, rhs = map(required, problem.in_specs)
    axis_name = problem.parameters.axis_name
    if _unlike(lhs, rhs, axis_name):
        return ()
    candidates = _gathered_layouts(lhs, rhs, axis_name) if gather else _scattered_layouts(lhs, rhs, axis_name)
    return tuple(layout for layout in candidates if not set(layout.result[0]) & set(layout.result[1]))


def misfit(problem: Problem[CollectiveMatMulParameters], *, gather: bool) -> str | None:
    """Returns the reason that no layout serves a problem, as a clause; None if one does."""
    lhs, rhs = map(required, problem.in_specs)
    axis_name, out_spec = problem.parameters.axis_name, problem.out_specs[0]
    served = layouts(problem, gather=gather)
    specs = f"the specs are lhs {format_spec(lhs)} and rhs {format_spec(rhs)}"
    if served:
        if out_spec is None or any(layout.result == out_spec for layout in served):
            return None
        possible = " or ".join(format_spec(layout.result) for layout in served)
        return f"{specs} and the result {format_spec(out_spec)}, and it makes {possible} of these operands"
    return (
        f"{specs}; {_reason(lhs, rhs, axis_name, gather=gather)}, and it serves {served_by(axis_name, gather=gather)}"
    )


def served_by(axis_name: str, *, gather: bool) -> str:
    """Returns the layouts that are served, as a caller writes them."""
    first, second = format_spec(sharded(2, 0, (axis_name,))), format_spec(sharded(2, 1, (axis_name,)))
    if not gather:
        return f"lhs {second} with rhs {first}"
    return f"lhs {first} with any rhs, lhs {second} with rhs P() or {second}, lhs P() with rhs {first} or {second}"


def _reason(lhs: Spec, rhs: Spec, axis_name: str, *, gather: bool) -> str:
    sums = axis_name in lhs[1] and axis_name in rhs[0]
    if not any(axis_name in names for names in lhs + rhs):
        return f"axis_name={axis_name!r} shards neither, so nothing would travel"
    if _unlike(lhs, rhs, axis_name):
        return f"the contracting axis must be sharded alike in both, except for {axis_name!r}"
    if gather == sums:
        return f"{axis_name!r} shards the contracting axis of {'both' if sums else 'at most one'}"
    candidates = list(_gathered_layouts(lhs, rhs, axis_name) if gather else _scattered_layouts(lhs, rhs, axis_name))
    if not candidates:
        return f"{axis_name!r} must be the last mesh axis of those that shard the axis to be gathered"
    shared = sorted(set(candidates[0].result[0]) & set(candidates[0].result[1]))
    return f"rows and columns of the result would both be sharded over {shared[0]!r}"


def _unlike(lhs: Spec, rhs: Spec, axis_name: str) -> bool:
    sums = axis_name in lhs[1] and axis_name in rhs[0]
    return lhs[1] != rhs[0] if sums else without(lhs[1], axis_name) != without(rhs[0], axis_name)


def _gathered_layouts(lhs: Spec, rhs: Spec, axis_name: str) -> Iterator[Layout]:
    summed = without(lhs[1], axis_name)
    if axis_name in lhs[1] and axis_name in rhs[0]:
        return
    for travels, spec in enumerate((lhs, rhs)):
        for axis, names in enumerate(spec):
            other_rows = travels == 0 and axis == 0 and axis_name in rhs[0]
            other_columns = travels == 1 and axis == 1 and axis_name in lhs[1]
            if names[-1:] != (axis_name,) or other_rows or other_columns:
                continue
            rows = without(lhs[0], axis_name) if (travels, axis) == (0, 0) else lhs[0]
            columns = without(rhs[1], axis_name) if (travels, axis) == (1, 1) else rhs[1]
            yield Layout(axis_name, lhs, rhs, (rows, columns), travels, axis, summed)


def _scattered_layouts(lhs: Spec, rhs: Spec, axis_name: str) -> Iterator[Layout]:
    if axis_name not in lhs[1] or axis_name not in rhs[0]:
        return
    summed = without(lhs[1], axis_name)
    yield Layout(axis_name, lhs, rhs, ((*lhs[0], axis_name), rhs[1]), None, 0, summed)
    yield Layout(axis_name, lhs, rhs, (lhs[0], (*rhs[1], axis_name)), None, 1, summed)


def without(names: tuple[str, ...], axis_name: str) -> tuple[str, ...]:
    """Returns the mesh axes without one."""
    return tuple(name for name in names if name != axis_name)
