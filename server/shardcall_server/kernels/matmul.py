"""The product of two matrices, or of a matrix and a vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import jax
from jax import lax

from shardcall_server.kernels import products
from shardcall_server.kernels.blocks import fit, partition_spec
from shardcall_server.kernels.kernel import (
    Kernel,
    OperandInfo,
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
    replicated,
)


@dataclass(frozen=True)
class _Layout:
    """How the axes of a product are split: rows and columns as spec entries, none for a vector's."""

    rows: Spec
    contracting: tuple[tuple[str, ...], tuple[str, ...]]
    columns: Spec

    @staticmethod
    def of(problem: Problem) -> _Layout:
        lhs, rhs = (cast(Spec, spec) for spec in problem.in_specs)
        return _Layout(lhs[:-1], (lhs[-1], rhs[0]), rhs[1:])

    @property
    def summed(self) -> Spec:
        """The result's spec where every device ends with its sums."""
        return self.rows + self.columns

    def scattered(self, axis: int) -> Spec:
        """The result's spec where the sums are scattered along an axis of theirs."""
        return tuple(names + self.contracting[0] if i == axis else names for i, names in enumerate(self.summed))

    def scatter_axis(self, out_spec: Spec | None) -> int:
        """The axis to scatter along: the columns if that is the result asked for, else the rows."""
        return 1 if len(self.summed) == 2 and out_spec == self.scattered(1) else 0


def _gspmd(problem: Problem, mesh: jax.sharding.Mesh) -> Program:
    del mesh
    if program := products.empty_sum(problem):
        return program
    (result,) = problem.results
    contracting = cast(ArrayType, problem.operands[1]).shape[0]

    def whole(lhs: jax.Array, rhs: jax.Array) -> tuple[jax.Array]:
        padded = max(lhs.shape[-1], rhs.shape[0])
        if padded > contracting:
            lhs, rhs = products.mask_contracting(lhs, rhs, contracting)
            lhs, rhs = fit(lhs, (*lhs.shape[:-1], padded)), fit(rhs, (padded, *rhs.shape[1:]))
        product = products.finish(products.multiply(lhs, rhs, result.dtype), result.dtype)
        return (product if problem.out_specs[0] is None else fit(product, problem.padded_result()),)

    return whole


def _summed(problem: Problem, mesh: jax.sharding.Mesh, *, scatter: bool) -> Program:
    if program := products.empty_sum(problem):
        return program
    (result,), layout = problem.results, _Layout.of(problem)
    names = layout.contracting[0]
    devices, contracting = problem.mesh.size(names), cast(ArrayType, problem.operands[1]).shape[0]
    axis = layout.scatter_axis(problem.out_specs[0])

    def block(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        if contracting % devices:
            here = products.rows_here(contracting, names, rhs.shape[0])
            lhs, rhs = products.mask_contracting(lhs, rhs, here)
        part = products.multiply(lhs, rhs, result.dtype)
        total = products.scatter_sum(part, axis, names, devices) if scatter else lax.psum(part, names)
        return products.finish(total, result.dtype)

    body = jax.shard_map(
        block,
        mesh=mesh,
        in_specs=tuple(partition_spec(cast(Spec, spec)) for spec in problem.in_specs),
        out_specs=partition_spec(layout.scattered(axis) if scatter else layout.summed),
    )
    return lambda lhs, rhs: (body(lhs, rhs),)


def _psum(problem: Problem, mesh: jax.sharding.Mesh) -> Program:
    return _summed(problem, mesh, scatter=False)


def _psum_scatter(problem: Problem, mesh: jax.sharding.Mesh) -> Program:
    return _summed(problem, mesh, scatter=True)


def _refusal(problem: Problem) -> str | None:
    layout = _Layout.of(problem)
    lhs, rhs = layout.contracting
    if lhs != rhs or not lhs:
        return (
            f"the contracting axis is split over {_over(lhs)} in lhs and over {_over(rhs)} in rhs, "
            "and it serves one that is split, alike in both"
        )
    used = [name for names in layout.summed for name in names]
    if len(set(used)) < len(used):
        return (
            f"the rows of lhs are split over {_over(layout.rows[0])} and the columns of rhs over "
            f"{_over(layout.columns[0])}, and it serves rows and columns split over different mesh axes"
        )
    return None


def _over(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names)) or "no mesh axis"


def _out_refusal(problem: Problem, served: Spec) -> str | None:
    spec = problem.out_specs[0]
    if spec is None or spec == served:
        return None
    return f"the result is to be split as {format_spec(spec)}, and it makes {format_spec(served)} of these operands"


def _psum_refusal(problem: Problem) -> str | None:
    return _refusal(problem) or _out_refusal(problem, _Layout.of(problem).summed)


def _psum_scatter_refusal(problem: Problem) -> str | None:
    layout = _Layout.of(problem)
    if why := _refusal(problem):
        return why
    if not layout.rows:
        return "lhs is a vector, and it scatters the sums of a matrix"
    axis = layout.scatter_axis(problem.out_specs[0])
    mesh, (result,) = problem.mesh, problem.results
    summed, block = (block_shape(result.shape, spec, mesh)[axis] for spec in (layout.summed, layout.scattered(axis)))
    parts = mesh.size(layout.contracting[0])
    if layout.summed[axis] and summed != parts * block:
        return (
            f"a block of the product has {summed} of {result.shape[axis]} along axis {axis} and {parts} blocks of the "
            f"result have {parts * block}, and it serves equal ones"
        )
    return _out_refusal(problem, layout.scattered(axis))


class MatMul(Kernel):
    """The product of two matrices, or of a matrix and a vector, as `numpy.matmul`.

    ``r[i, j] = Σₖ lhs[i, k] · rhs[k, j]``, as ``np.matmul(lhs, rhs)``, of type ``np.result_type(lhs, rhs)``. Floats of
    16 bits and less are summed up in float32, integers wrap in the result's type, bool is an or of ands.

    Sharding: every layout is served. Split by rows of lhs and columns of rhs, nothing moves. With the
    contracting axis split alike in both over D devices, ``psum`` moves 2 (D - 1) / D and ``psum_scatter``
    (D - 1) / D of a device's product, in the sum's type; ``gspmd`` is what the compiler makes of it.

    Source: the JAX notebook shard_map, sections "psum" and "psum_scatter".
    """

    name = "matmul"
    version = 1
    summary = "The product of two matrices, or of a matrix and a vector, as numpy.matmul."
    operands = (
        OperandInfo("lhs", "The left factor, [K] or [M, K]."),
        OperandInfo("rhs", "The right factor, [K] or [K, N]."),
    )
    parameters = ()
    strategies = (
        Strategy(
            "gspmd",
            "The product of the whole arrays, partitioned by the compiler. Serves every layout.",
            lambda _: None,
            _gspmd,
        ),
        Strategy(
            "psum",
            "Every device multiplies its blocks and the parts are summed over the devices. Serves a contracting "
            "axis split alike in both; the result is split by the rows of lhs and the columns of rhs.",
            _psum_refusal,
            _psum,
        ),
        Strategy(
            "psum_scatter",
            "As psum, but each device keeps only its block of the sum: half the bytes. The rows of the result, or the "
            "columns if its spec says so, are split over the contracting axis's mesh axes too.",
            _psum_scatter_refusal,
            _psum_scatter,
        ),
    )

    def validate(self, operands: Sequence[ArrayType | None], parameters: Mapping[str, ParameterValue]) -> Signature:
        """Checks a call and tells the result's type.

        Raises:
            CallError: for ranks other than 1 and 2, shapes that do not match, and element types that do not meet.
        """
        lhs, rhs = (cast(ArrayType, operand) for operand in operands)
        return Signature({}, (products.product_type(lhs, rhs),))

    def default_in_specs(
        self,
        operands: Sequence[ArrayType | None],
        parameters: Mapping[str, ParameterValue],
        in_specs: Sequence[Spec | None],
        mesh: MeshAxes,
        strategy: str,
    ) -> tuple[Spec | None, ...]:
        """Fills in unset specs: lhs by rows over the first mesh axis, rhs by columns over the second."""
        lhs, rhs = (cast(ArrayType, operand).ndim for operand in operands)
        defaults = (
            ((mesh.names[:1]), ()) if lhs == 2 else replicated(1),
            ((), (mesh.names[1:2])) if rhs == 2 else replicated(1),
        )
        return tuple(default if spec is None else spec for spec, default in zip(in_specs, defaults, strict=True))

    def default_out_specs(self, problem: Problem, strategy: str) -> tuple[Spec | None, ...]:
        """What ``psum`` and ``psum_scatter`` make; ``gspmd`` leaves the result's spec to the compiler."""
        layout = _Layout.of(problem)
        if problem.out_specs[0] is not None or strategy == "gspmd" or _refusal(problem):
            return problem.out_specs
        return (layout.scattered(0) if strategy == "psum_scatter" and layout.rows else layout.summed,)

    def choose(self, problem: Problem) -> tuple[str, str]:
        """``psum_scatter`` of rows or ``psum`` where the contracting axis is split alike in both, else ``gspmd``.

        Scattering columns is left to who asks for it: on CPU it takes half as long again as ``gspmd`` does for
        the same result.
        """
        layout = _Layout.of(problem)
        if not any(layout.contracting):
            return "gspmd", "the contracting axis is not split"
        if layout.scatter_axis(problem.out_specs[0]):
            return "gspmd", "the result is split by columns over the mesh axes that are summed over"
        for name, refusal in (("psum_scatter", _psum_scatter_refusal), ("psum", _psum_refusal)):
            if not refusal(replace(problem, out_specs=self.default_out_specs(problem, name))):
                return name, f"the contracting axis is split over {_over(layout.contracting[0])} in lhs and rhs"
        return "gspmd", f"psum cannot: {_psum_refusal(problem)}"
