"""The kernel of functions that are rows of a table: a body for one block, and the axes that it may be sharded along.

A row's *alignment* says for each axis of each operand which axis of the result it becomes, element by element; the
function computes every index of such an axis by itself, so that blocks need nothing from each other. An axis without
one has to be complete on every device. The arguments are checked by the rules of the table of functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, make_dataclass
from typing import Any, ClassVar

import jax
import numpy as np
from jax import lax

from shardcall._src.functions.checks import RefusedArgumentError
from shardcall._src.functions.table import FUNCTIONS
from shardcall_server.errors import CallError, Reason
from shardcall_server.kernels.bits import moved
from shardcall_server.kernels.blocks import fit, index_type, partition_spec
from shardcall_server.kernels.kernel import Kernel, Problem, Program, Strategy, required
from shardcall_server.kernels.layout import (
    ArrayType,
    MeshAxes,
    OperandTypes,
    Spec,
    Specs,
    block_shape,
    format_spec,
    padded_shape,
    rows_over_all,
)
from shardcall_server.kernels.reproducibility import Reproducibility
from shardcall_server.kernels.signature import OperandInfo, ParameterInfo, ParameterValues, Signature, ValueCheck
from shardcall_server.kernels.value_checks import any_element


@dataclass(frozen=True)
class Call:
    """The shapes and parameters of a call, from which a row derives its alignment.

    Attributes:
        shapes: the shape of each operand; None for one left out.
        shape: the shape of the result.
        parameters: as the call sets them, defaults included.
    """

    shapes: tuple[tuple[int, ...] | None, ...]
    shape: tuple[int, ...]
    parameters: Mapping[str, Any]

    @property
    def x(self) -> tuple[int, ...]:
        """The shape of the first operand."""
        return self.shapes[0] or ()

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]


@dataclass(frozen=True)
class ResultBlock:
    """A block of the result, as a body computes it.

    Attributes:
        call: the call.
        dtype: the element type of the result.
        shape: the shape of the block; of the result itself along axes that are not sharded.
        offsets: the index in the result of the block's first element, along each axis.
    """

    call: Call
    dtype: np.dtype
    shape: tuple[int, ...]
    offsets: tuple[int | jax.Array, ...]

    def __getitem__(self, name: str) -> Any:
        return self.call.parameters[name]

    def index(self, axis: int) -> jax.Array:
        """Returns the index in the result of each element of the block along an axis: [...], of the block's shape."""
        kind = index_type(2 * max(self.call.shape[axis], 1))
        return lax.broadcasted_iota(kind, self.shape, axis) + self.offsets[axis]


AlignedAxes = tuple[tuple[int | None, ...], ...]
"""For each axis of each operand the axis of the result that it becomes; None for one that must be complete."""

Body = Callable[[ResultBlock, Sequence[jax.Array | None]], jax.Array]
"""Computes a block of the result from blocks of the operands, those that are sharded as it is."""


@dataclass(frozen=True)
class IndexCheck:
    """A check that the values of an operand are indices of an axis.

    Attributes:
        operand: the position of the operand.
        count: returns the number of elements of the axis.
    """

    operand: int
    count: Callable[[Call], int]


@dataclass(frozen=True)
class Row:
    """A function of the table.

    Attributes:
        name: the name of its entry in the table of functions.
        summary: one sentence for listings.
        body: computes one block.
        operands: a sentence for each operand.
        parameters: a clause for each parameter, by name.
        aligned: the alignment of a call; by default no axis has one.
        origins: for each axis of the result the axis of the main operand whose sharding it takes by default, None for
            none; that of the alignment by default.
        main: the operand that decides the result's default spec.
        is_free: True if a block of the result may be sharded along axes that no operand is aligned with.
        counts_result: True if the parameter ``axis`` counts the axes of the result and not those of the first operand.
        checks: the operands whose values are indices.
        reproducibility: as `Kernel.reproducibility`.
    """

    name: str
    summary: str
    body: Body
    operands: tuple[str, ...] = ()
    parameters: Mapping[str, str] | None = None
    aligned: Callable[[Call], AlignedAxes] | None = None
    origins: Callable[[Call], tuple[int | None, ...]] | None = None
    main: int = 0
    is_free: bool = False
    counts_result: bool = False
    checks: tuple[IndexCheck, ...] = ()
    reproducibility: Reproducibility = Reproducibility.ALWAYS


def call_of(problem: Problem) -> Call:
    """Returns the shapes and parameters of a problem."""
    shapes = tuple(None if operand is None else operand.shape for operand in problem.operands)
    return Call(shapes, problem.results[0].shape, _values(problem.parameters))


def _values(parameters: Any) -> dict[str, Any]:
    return {} if parameters is None else asdict(parameters)


def _alignment(row: Row, call: Call) -> AlignedAxes:
    if row.aligned is not None:
        return row.aligned(call)
    return tuple((None,) * len(shape or ()) for shape in call.shapes)


@dataclass(frozen=True)
class _LocalSpecs:
    """The specs in which blocks are computed without collectives.

    Attributes:
        operands: of the operands; None for one left out.
        result: of the result.
    """

    operands: Specs
    result: Spec


def _layout(row: Row, problem: Problem) -> _LocalSpecs:
    call = call_of(problem)
    aligned = _alignment(row, call)
    out_spec, used, result = problem.out_specs[0], set[str](), []
    by_operands = sorted(range(len(aligned)), key=lambda k: k != row.main)
    for axis in range(len(call.shape)):
        sources = [
            required(problem.in_specs[k])[a]
            for k in by_operands
            if problem.in_specs[k] is not None
            for a, target in enumerate(aligned[k])
            if target == axis
        ]
        if out_spec is not None and (sources or row.is_free):
            sources.append(out_spec[axis])
        names = next((names for names in sources if names and not used & set(names)), ())
        used |= set(names)
        result.append(names)
    operands = tuple(
        None if spec is None else tuple(() if target is None else result[target] for target in aligned[k])
        for k, spec in enumerate(problem.in_specs)
    )
    return _LocalSpecs(operands, tuple(result))


def _blocks_refusal(row: Row, problem: Problem) -> str | None:
    layout, infos = _layout(row, problem), FUNCTIONS[row.name]
    for k, (spec, needed) in enumerate(zip(problem.in_specs, layout.operands, strict=True)):
        if spec is not None and needed is not None and spec != needed:
            return (
                f"{infos.operand_name(k)} is sharded as {format_spec(spec)}, and every device computes its block from "
                f"blocks sharded as {format_spec(needed)}"
            )
    if problem.out_specs[0] not in (None, layout.result):
        return f"every device computes a block of a result sharded as {format_spec(layout.result)}"
    return None


def _gathered_refusal(row: Row, problem: Problem) -> str | None:
    if _blocks_refusal(row, problem) is None:
        return "every device has all elements that its block of the result needs, and it gathers some"
    return None


def _program(row: Row, problem: Problem, mesh: jax.sharding.Mesh) -> Program:
    layout, call, (result,) = _layout(row, problem), call_of(problem), problem.results
    present = [k for k, operand in enumerate(problem.operands) if operand is not None]
    in_specs = [(required(problem.in_specs[k]), required(layout.operands[k])) for k in present]
    shapes = [
        padded_shape(required(problem.operands[k]).shape, specs[1], problem.mesh)
        for k, specs in zip(present, in_specs, strict=True)
    ]
    out_spec = problem.out_specs[0] or layout.result
    padded = padded_shape(result.shape, out_spec, problem.mesh)
    local = block_shape(result.shape, layout.result, problem.mesh)

    def body(*blocks: jax.Array) -> jax.Array:
        offsets = tuple(
            lax.axis_index(names).astype(index_type(2 * max(size, 1))) * rows if names else 0
            for names, rows, size in zip(layout.result, local, result.shape, strict=True)
        )
        operands: list[jax.Array | None] = [None] * len(problem.operands)
        for k, block in zip(present, blocks, strict=True):
            operands[k] = block
        return row.body(ResultBlock(call, result.dtype, local, offsets), operands)

    mapped = jax.shard_map(
        body,
        mesh=mesh,
        in_specs=tuple(partition_spec(needs) for _, needs in in_specs),
        out_specs=partition_spec(layout.result),
        check_vma=False,
    )

    def resharded(array: jax.Array, shape: Sequence[int], has: Spec, needs: Spec) -> jax.Array:
        if has == needs:
            return fit(array, shape)
        return moved(lambda bits: fit(bits, shape), array, mesh=mesh, specs=(has, needs))

    def program(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        flags = [_flag(problem, check, arrays[present.index(check.operand)], mesh) for check in row.checks]
        blocks = [resharded(array, shape, *specs) for array, shape, specs in zip(arrays, shapes, in_specs, strict=True)]
        return (resharded(mapped(*blocks), padded, layout.result, out_spec), *flags)

    return program


def _flag(problem: Problem, check: IndexCheck, indices: jax.Array, mesh: jax.sharding.Mesh) -> jax.Array:
    shape, spec = required(problem.operands[check.operand]).shape, required(problem.in_specs[check.operand])
    count = check.count(call_of(problem))

    def refused(block: jax.Array) -> jax.Array:
        if block.dtype.kind == "u":
            return block.astype(np.uint64) >= np.uint64(count)
        wide = block.astype(np.int64)
        return (wide < -count) | (wide >= count)

    return any_element(refused, indices, shape, mesh, spec)


class TableKernel(Kernel[Any]):
    """A function of the table.

    Sharding: along axes of which every index is computed by itself each device computes its block, without
    collectives. An operand that is sharded along another axis is *gathered* along it first: every device gets all of
    its elements along that axis, and the result is sharded again.
    """

    version = 1
    row: ClassVar[Row]
    parameter_class: ClassVar[type]

    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[Any]:
        """Checks a call by the rules of the table of functions.

        Raises:
            CallError: for an argument that the rules refuse.
        """
        described = [None if operand is None else (operand.shape, operand.dtype) for operand in operands]
        try:
            results = FUNCTIONS[self.name].results(described, parameters)
        except RefusedArgumentError as refused:
            raise CallError(Reason[refused.reason], str(refused), field=refused.field) from None
        types = tuple(ArrayType(shape, np.dtype(dtype)) for shape, dtype in results)
        shapes = tuple(None if operand is None else operand.shape for operand in operands)
        call = Call(shapes, types[0].shape, parameters)
        checks = tuple(_value_check(self.name, check, call) for check in self.row.checks)
        values = _normalised(self.row, call)
        return Signature(self.parameter_class(**values) if values else None, types, checks)

    def default_in_specs(
        self, operands: OperandTypes, parameters: Any, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Shards operands that have a spec of their own, and repeated ones, by rows; replicates the others."""
        function = FUNCTIONS[self.name]
        once = len(function.named_operands)
        return tuple(
            spec
            if spec is not None or operand is None
            else rows_over_all(operand.ndim, mesh)
            if k >= once or function.operands[k].spec
            else ((),) * operand.ndim
            for k, (operand, spec) in enumerate(zip(operands, in_specs, strict=True))
        )

    def default_out_specs(self, problem: Problem, strategy: str) -> Specs:
        """Shards each axis of the result as the axis of the operand that it comes from."""
        if problem.out_specs[0] is not None:
            return problem.out_specs
        row, call = self.row, call_of(problem)
        if row.origins is not None:
            origins = row.origins(call)
        else:
            targets = _alignment(row, call)[row.main]
            origins = tuple(targets.index(i) if i in targets else None for i in range(len(call.shape)))
        spec = required(problem.in_specs[row.main])
        return (tuple(() if origin is None else spec[origin] for origin in origins),)


def _normalised(row: Row, call: Call) -> dict[str, Any]:
    """Returns the parameters of a call, its axes counted from the first."""
    ndim = len(call.shape if row.counts_result else call.x)

    def counted(value: Any) -> Any:
        return tuple(i % max(ndim, 1) for i in value) if isinstance(value, tuple) else value % max(ndim, 1)

    return {
        name: counted(value) if name in ("axis", "axis1", "axis2") and value is not None else value
        for name, value in call.parameters.items()
    }


def _value_check(name: str, check: IndexCheck, call: Call) -> ValueCheck:
    operand, count = FUNCTIONS[name].operand_name(check.operand), check.count(call)
    allowed = f"give indices from {-count} to {count - 1}" if count else "there is none"
    return ValueCheck(operand, f"{operand} has an index that the axis of {count} elements does not have; {allowed}")


def table_kernel(entry: Row) -> TableKernel:
    """Returns the kernel of a row."""
    function = FUNCTIONS[entry.name]
    texts = entry.parameters or {}
    fields = [(name, object) for name in function.parameters]

    class NamedKernel(TableKernel):
        __doc__ = TableKernel.__doc__
        name = entry.name
        summary = entry.summary
        row = entry
        parameter_class = make_dataclass(f"{entry.name}_parameters", fields, frozen=True)
        operands = tuple(
            OperandInfo(o.name, text, optional=o.optional, repeated=o.repeated)
            for o, text in zip(function.operands, entry.operands, strict=True)
        )
        parameters = tuple(ParameterInfo(name, texts[name], default) for name, default in function.parameters.items())
        reproducibility = entry.reproducibility
        strategies = (
            Strategy(
                "blocks",
                "Every device computes its block of the result from its blocks of the operands, without collectives. "
                "Serves operands that are not sharded along the axes that the function needs complete.",
                lambda problem: _blocks_refusal(entry, problem),
                lambda problem, mesh: _program(entry, problem, mesh),
            ),
            Strategy(
                "gathered",
                "Operands are gathered along the axes that the function needs complete, every device computes its "
                "block, and the result is sharded again. Serves the layouts that blocks does not serve.",
                lambda problem: _gathered_refusal(entry, problem),
                lambda problem, mesh: _program(entry, problem, mesh),
            ),
        )

    return NamedKernel()
