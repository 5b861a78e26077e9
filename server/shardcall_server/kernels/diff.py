"""The n-th discrete difference along an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.kernels import element_types
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
from shardcall_server.kernels.layout import (
    ArrayType,
    MeshAxes,
    Spec,
    block_shape,
    format_spec,
    padded_shape,
    replicated,
)
from shardcall_server.kernels.padding import fit
from shardcall_server.kernels.parameters import integer

MAX_ORDER = 1024
"""The highest order that is computed: above it a binomial coefficient exceeds float64's range."""

MAX_UNROLLED = 16
"""The highest order whose steps are written out; above it they are a loop, so that compile time is bounded."""


@dataclass(frozen=True)
class _Geometry:
    """The difference as its blocks see it; all counts are rows along the axis.

    Block d of the result needs the rows of x from d · result_block - before on, result_block + n of them: in
    block d of x, those from ``shift(d)`` on. The shift is one and the same where the blocks of x and of the result are
    of one size, and else moves with d by the difference.

    Attributes:
        axis: the axis of the difference.
        n: the order.
        axis_names: the mesh axes that split the axis.
        devices: their size; 1 if the axis is not split.
        rows: rows of x.
        before: rows prepended.
        after: rows appended.
        block: rows of one block of x, padding included.
        result_block: rows of one block of the result, padding included.
    """

    axis: int
    n: int
    axis_names: tuple[str, ...]
    devices: int
    rows: int
    before: int
    after: int
    block: int
    result_block: int

    @staticmethod
    def of(problem: Problem) -> _Geometry:
        x, spec = cast(ArrayType, problem.operands[0]), cast(Spec, problem.in_specs[0])
        axis, n = cast(int, problem.parameters["axis"]), cast(int, problem.parameters["n"])
        before, after = (_edge_rows(edge, axis) for edge in problem.operands[1:])
        return _Geometry(
            axis=axis,
            n=n,
            axis_names=spec[axis],
            devices=problem.mesh.size(spec[axis]),
            rows=x.shape[axis],
            before=before,
            after=after,
            block=block_shape(x.shape, spec, problem.mesh)[axis],
            result_block=block_shape(problem.results[0].shape, spec, problem.mesh)[axis],
        )

    def shift(self, device: int) -> int:
        """The first row of its block of x that a device needs; negative for its neighbour's."""
        return device * (self.result_block - self.block) - self.before

    @property
    def shifts(self) -> tuple[int, int]:
        """The lowest and the highest shift."""
        first, last = self.shift(0), self.shift(self.devices - 1)
        return min(first, last), max(first, last)

    @property
    def left(self) -> int:
        """Rows that a device may need of what lies before its block."""
        return max(0, -self.shifts[0])

    @property
    def right(self) -> int:
        """Rows that a device may need of what lies behind its block."""
        return max(0, self.shifts[1] + self.result_block + self.n - self.block)


def _edge_rows(edge: ArrayType | None, axis: int) -> int:
    if edge is None:
        return 0
    return edge.shape[axis] if edge.ndim else 1


# Bodies.


def _differences(rows: jax.Array, n: int, axis: int, dtype: np.dtype) -> jax.Array:
    """The n-th difference of ``rows`` [L] → [L - n], in the working type of ``dtype``."""
    if n > MAX_UNROLLED:
        return _looped_differences(rows, n, axis, dtype)
    for _ in range(n):
        later = lax.slice_in_dim(rows, 1, None, axis=axis)
        rows = element_types.subtract(later, lax.slice_in_dim(rows, 0, -1, axis=axis), dtype)
    return rows


def _looped_differences(rows: jax.Array, n: int, axis: int, dtype: np.dtype) -> jax.Array:
    # The shape stays; what comes round from the start spoils one more row at the end in each step.
    step = lambda _, a: element_types.subtract(jnp.roll(a, -1, axis), a, dtype)  # noqa: E731
    length = rows.shape[axis] - n
    return lax.slice_in_dim(lax.fori_loop(0, n, step, rows), 0, length, axis=axis)


def _rows(array: jax.Array, start: int | jax.Array, count: int, axis: int) -> jax.Array:
    if isinstance(start, int):
        return lax.slice_in_dim(array, start, start + count, axis=axis)
    return lax.dynamic_slice_in_dim(array, start, count, axis)


def _block_of_result(
    left: jax.Array,
    block: jax.Array,
    right: jax.Array,
    device: int | jax.Array,
    g: _Geometry,
    dtype: np.dtype,
) -> jax.Array:
    """A device's block of the result, of the rows before its block of x, in it and behind it.

    The differences inside the block are padded to the result's size and the rows at its edges written in place.
    XLA makes one pass over memory of that up to order 4; of a concatenation it makes one for each order.
    """
    join = partial(_join, n=g.n, axis=g.axis, dtype=dtype)
    (lowest, highest), axis = g.shifts, g.axis
    shift = lowest if lowest == highest else g.shift(device)
    first, last = highest + g.left + g.n, lowest + g.result_block - g.right
    inner = g.result_block - g.left - g.right
    if inner < 1 or first > g.block or last < 0:
        return join([left, block, right], shift + g.left, g.result_block)
    inside = element_types.as_bits(join([block], shift + g.left, inner))
    margins = [(g.left, g.right, 0) if i == axis else (0, 0, 0) for i in range(block.ndim)]
    result = lax.pad(inside, jnp.zeros((), inside.dtype), margins)
    if g.left:
        edge = join([left, _rows(block, 0, first, axis)], shift - lowest, g.left)
        result = lax.dynamic_update_slice_in_dim(result, element_types.as_bits(edge), 0, axis)
    if g.right:
        edge = join([_rows(block, last, g.block - last, axis), right], shift - lowest, g.right)
        result = lax.dynamic_update_slice_in_dim(
            result, element_types.as_bits(edge), g.result_block - g.right, axis
        )
    return element_types.from_bits(result, dtype)


def _join(
    parts: Sequence[jax.Array], start: int | jax.Array, count: int, *, n: int, axis: int, dtype: np.dtype
) -> jax.Array:
    """``count`` differences of the parts one after the other, from row ``start`` on."""
    wide = [element_types.widen(part, dtype) for part in parts if part.shape[axis]]
    rows = _rows(jnp.concatenate(wide, axis) if len(wide) > 1 else wide[0], start, count + n, axis)
    return element_types.narrow(_differences(rows, n, axis, dtype), dtype)


def _append(block: jax.Array, append: jax.Array, start: jax.Array, g: _Geometry) -> jax.Array:
    """Writes the appended rows that follow x's last row into its padding.

    Args:
        block: rows of padded x, of which the first is row ``start``.
        append: the rows appended.
        start: may be negative or beyond the end.
        g: of the call.
    """
    axis = g.axis
    index = start - g.rows + lax.broadcasted_iota(jnp.int32, (block.shape[axis],), 0)
    rows = jnp.take(append, jnp.clip(index, 0, g.after - 1), axis=axis)
    index = lax.broadcast_in_dim(index, block.shape, (axis,))
    return jnp.where((index >= 0) & (index < g.after), rows, block)


def _permute(rows: jax.Array, axis_names: tuple[str, ...], pairs: list[tuple[int, int]]) -> jax.Array:
    received = lax.ppermute(element_types.as_bits(rows), axis_names, pairs)
    return element_types.from_bits(received, rows.dtype)


def _halo_block(
    block: jax.Array, prepend: jax.Array, append: jax.Array, *, g: _Geometry, dtype: np.dtype
) -> jax.Array:
    """One device's block of the result: its neighbours' edge rows and the differences of all."""
    block = element_types.convert(block, dtype)
    if g.devices == 1:
        return _block_of_result(prepend, block, append, 0, g, dtype)
    device = lax.axis_index(g.axis_names)
    start = device * g.block
    if g.after:
        block = _append(block, append, start, g)
    left = _rows(block, g.block - g.left, g.left, g.axis)
    right = _rows(block, 0, g.right, g.axis)
    if g.left:
        left = _permute(left, g.axis_names, [(i, i + 1) for i in range(g.devices - 1)])
        missing = [(g.left - g.before, 0, 0) if i == g.axis else (0, 0, 0) for i in range(block.ndim)]
        left = jnp.where(device == 0, lax.pad(prepend, jnp.zeros((), dtype), missing), left)
    if g.right:
        right = _permute(right, g.axis_names, [(i + 1, i) for i in range(g.devices - 1)])
        if g.after:
            right = _append(right, append, start + g.block, g)
    return _block_of_result(left, block, right, device, g, dtype)


# Strategies.


def _edges(problem: Problem, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """Prepend and append as arrays of the result's type and x's padded shape across the axis."""
    axis, dtype = cast(int, problem.parameters["axis"]), problem.results[0].dtype
    x, *edges = problem.operands
    shape = padded_shape(cast(ArrayType, x).shape, cast(Spec, problem.in_specs[0]), problem.mesh)
    present = iter(arrays[1:])
    result = []
    for edge in edges:
        across = (*shape[:axis], _edge_rows(edge, axis), *shape[axis + 1 :])
        if edge is None:
            result.append(jnp.zeros(across, dtype))
            continue
        rows = element_types.convert(next(present), dtype)
        result.append(fit(rows, across) if edge.ndim else jnp.broadcast_to(rows, across))
    return result


def _trivial(problem: Problem) -> bool:
    return problem.parameters["n"] == 0 or 0 in problem.results[0].shape


def _without_difference(problem: Problem, mesh: jax.sharding.Mesh) -> Program:
    del mesh
    (result,), shape = problem.results, problem.padded_result()
    if problem.parameters["n"] == 0:
        return lambda x, *_: (fit(x, shape),)
    return lambda *_: (jnp.zeros(shape, result.dtype),)


def _gspmd(problem: Problem, mesh: jax.sharding.Mesh) -> Program:
    if _trivial(problem):
        return _without_difference(problem, mesh)
    (result,), g = problem.results, _Geometry.of(problem)

    def program(*operands: jax.Array) -> tuple[jax.Array]:
        (prepend, append), x = _edges(problem, operands), operands[0]
        if g.devices == 1:
            difference = _block_of_result(prepend, x, append, 0, g, result.dtype)
        else:
            parts = [prepend, _rows(x, 0, g.rows, g.axis), append]
            length = result.shape[g.axis]
            difference = _join(parts, 0, length, n=g.n, axis=g.axis, dtype=result.dtype)
        return (fit(difference, problem.padded_result()),)

    return program


def _halo(problem: Problem, mesh: jax.sharding.Mesh) -> Program:
    if _trivial(problem):
        return _without_difference(problem, mesh)
    geometry, spec = _Geometry.of(problem), cast(Spec, problem.in_specs[0])
    across = tuple(() if i == geometry.axis else names for i, names in enumerate(spec))
    body = jax.shard_map(
        partial(_halo_block, g=geometry, dtype=problem.results[0].dtype),
        mesh=mesh,
        in_specs=(_partition(spec), _partition(across), _partition(across)),
        out_specs=_partition(spec),
    )
    return lambda *operands: (body(operands[0], *_edges(problem, operands)),)


def _partition(spec: Spec) -> PartitionSpec:
    return PartitionSpec(*(names or None for names in spec))


def _halo_refusal(problem: Problem) -> str | None:
    spec, out_spec = cast(Spec, problem.in_specs[0]), problem.out_specs[0]
    if out_spec is not None and out_spec != spec:
        return (
            f"x is split as {format_spec(spec)} and the result as {format_spec(out_spec)}, "
            "and it serves a result split as x is"
        )
    if _trivial(problem):
        return None
    g = _Geometry.of(problem)
    if g.devices == 1:
        return None
    if g.block < (halo := max(g.left, g.right)):
        return (
            f"along axis {g.axis} a block has {g.block} rows and needs {halo} of its neighbour's, "
            "and it serves one neighbour on each side"
        )
    return None


class Diff(Kernel):
    """The n-th discrete difference along an axis, as `numpy.diff`.

    With e the rows of ``prepend``, ``x`` and ``append`` one after the other, order 1 is
    ``r[i] = e[i + 1] - e[i]`` (``e[i + 1] != e[i]`` for bool), order n is that n times:
    ``np.diff(x, n, axis, prepend=…, append=…)``, with its element type; for n = 0 it is ``x``.

    Sharding: any axis may be split, over any mesh axes. Along an axis that is not split nothing moves. Along
    one that is, ``halo`` sends p = rows prepended one way and n - p the other, by one collective-permute each:
    max(n, p) rows per device. ``gspmd`` is what the compiler makes of the whole: mostly two all-to-alls
    of all of x.

    Source: numpy/lib/_function_base_impl.py; the halo exchange of structured-grid solvers, as in
    google-research/dinosaur, dinosaur/jax_numpy_utils.py.
    """

    name = "diff"
    version = 1
    summary = "The n-th discrete difference along an axis, as numpy.diff."
    operands = (
        OperandInfo("x", "The array, of rank 1 or more and any element type."),
        OperandInfo("prepend", "Rows put before x along the axis: an array, or a scalar for one row.", True),
        OperandInfo("append", "Rows put behind x along the axis: an array, or a scalar for one row.", True),
    )
    parameters = (
        ParameterInfo(
            "n", f"How many times to take the difference; 0 to {MAX_ORDER}, more if no row is left.", 1
        ),
        ParameterInfo("axis", "The axis; negative ones count from the last.", -1),
    )
    strategies = (
        Strategy(
            "gspmd",
            "The difference of the whole array, partitioned by the compiler. Serves every layout; along a split "
            "axis it moves the whole array twice.",
            lambda _: None,
            _gspmd,
        ),
        Strategy(
            "halo",
            "Every device sends its edge rows to its neighbours and takes the differences of its own block in one "
            f"pass. Serves a result split as x is, orders up to {MAX_UNROLLED}, and blocks as wide as the order.",
            _halo_refusal,
            _halo,
        ),
    )

    def validate(
        self, operands: Sequence[ArrayType | None], parameters: Mapping[str, ParameterValue]
    ) -> Signature:
        """Checks a call and tells the result's type.

        Raises:
            CallError: for a scalar x, an axis or order out of range, edges that do not fit x, and element types
                that do not meet.
        """
        x = cast(ArrayType, operands[0])
        n, axis = integer(parameters, "n"), integer(parameters, "axis")
        if n < 0:
            raise CallError(
                Reason.INVALID_PARAMETER, f"n={n} is negative; the order n is 0 or more", field="n"
            )
        if n == 0:  # NumPy returns x and looks at nothing else
            return Signature({"n": 0, "axis": 0}, (x,))
        axis = _check_axis(x, axis)
        rows = x.shape[axis]
        present = [("x", x)]
        for info, edge in zip(self.operands[1:], operands[1:], strict=True):
            if edge is not None:
                _check_edge(info.name, edge, x, axis)
                present.append((info.name, edge))
                rows += _edge_rows(edge, axis)
        dtype = element_types.common_type(*zip(*present, strict=True))
        left = max(0, rows - n)
        shape = (*x.shape[:axis], left, *x.shape[axis + 1 :])
        if n > MAX_ORDER and 0 not in shape:
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"n={n} is more than {MAX_ORDER} and the axis has {rows} rows; give an n of at most {MAX_ORDER}",
                field="n",
            )
        # All orders that leave nothing are one program.
        return Signature({"n": n if left else rows, "axis": axis}, (ArrayType(shape, dtype),))

    def default_in_specs(
        self,
        operands: Sequence[ArrayType | None],
        parameters: Mapping[str, ParameterValue],
        in_specs: Sequence[Spec | None],
        mesh: MeshAxes,
        strategy: str,
    ) -> tuple[Spec | None, ...]:
        """Fills in unset specs: x by rows over all mesh axes, the edges as x but not split along the axis."""
        x, *edges = super().default_in_specs(operands[:1], parameters, in_specs[:1], mesh, strategy) + tuple(
            in_specs[1:]
        )
        axis = cast(int, parameters["axis"])
        across = tuple(() if i == axis else names for i, names in enumerate(cast(Spec, x)))
        for i, operand in enumerate(operands[1:]):
            if operand is not None and edges[i] is None:
                edges[i] = across if operand.ndim == len(across) else replicated(operand.ndim)
        return (x, *edges)

    def default_out_specs(self, problem: Problem, strategy: str) -> tuple[Spec | None, ...]:
        """Splits the result as x is."""
        return (problem.out_specs[0] or problem.in_specs[0],)

    def choose(self, problem: Problem) -> tuple[str, str]:
        """``halo`` where the axis is split and blocks are wide enough, else ``gspmd``."""
        if _trivial(problem):
            return "gspmd", "there is no difference to take"
        g = _Geometry.of(problem)
        if g.devices == 1:
            return "gspmd", f"axis {g.axis} is not split, so no row moves"
        if why := _halo_refusal(problem):
            return "gspmd", f"halo cannot: {why}"
        return "halo", f"axis {g.axis} is split over {', '.join(g.axis_names)}; only its edge rows move"


def _check_axis(x: ArrayType, axis: int) -> int:
    if not x.ndim:
        raise CallError(
            Reason.INVALID_OPERAND, f"x is {x}, a scalar; diff takes an array of one axis or more", field="x"
        )
    if not -x.ndim <= axis < x.ndim:
        raise CallError(
            Reason.AXIS_OUT_OF_RANGE,
            f"axis={axis} and x has {x.ndim} axes (shape {shorten(str(x.shape))}); "
            f"give an axis from {-x.ndim} to {x.ndim - 1}",
            field="axis",
            metadata={"axis": str(axis), "ndim": str(x.ndim)},
        )
    return axis % x.ndim


def _check_edge(name: str, edge: ArrayType, x: ArrayType, axis: int) -> None:
    if not edge.ndim:
        return
    fits = edge.ndim == x.ndim and all(i == axis or rows == edge.shape[i] for i, rows in enumerate(x.shape))
    if not fits:
        raise CallError(
            Reason.INVALID_OPERAND,
            f"{name} has shape {shorten(str(edge.shape))} and x {shorten(str(x.shape))}; "
            f"give a scalar, or an array of x's shape in every axis but axis {axis}",
            field=name,
        )
