"""Rows of the table of functions: a body for one block, and the axes that it may be sharded along.

The *alignment* of a row maps each axis of each operand to the axis of the result that it becomes, element by element.
The function computes the indices of such an axis independently, so a block needs no other block. An axis without an
alignment has to be complete on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
from jax import lax

from shardcall_core.graphs.graph import Constant
from shardcall_core.layouts.layout import Spec, Specs
from shardcall_server.kernels.core.blocks import index_type
from shardcall_server.kernels.core.blockwise import Blockwise
from shardcall_server.kernels.core.kernel import Problem
from shardcall_server.kernels.core.reproducibility import Reproducibility


@dataclass(frozen=True)
class CallShapes:
    """The shapes and parameters of a call, from which a row derives its alignment.

    Attributes:
        shapes: the shape of each operand; None for one left out.
        shape: the shape of the result.
        parameters: as the call sets them, defaults included.
        constants: the operands that are known when the program is compiled, by their indices.
    """

    shapes: tuple[tuple[int, ...] | None, ...]
    shape: tuple[int, ...]
    parameters: Mapping[str, Any]
    constants: tuple[tuple[int, Constant], ...] = ()

    @property
    def x(self) -> tuple[int, ...]:
        """The shape of the first operand."""
        return self.shapes[0] or ()

    def constant(self, operand: int) -> np.ndarray | None:
        """Returns an operand that is known when the program is compiled; None for any other."""
        return next((constant.array for i, constant in self.constants if i == operand), None)

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

    call: CallShapes
    dtype: np.dtype
    shape: tuple[int, ...]
    offsets: tuple[int | jax.Array, ...]

    def __getitem__(self, name: str) -> Any:
        return self.call.parameters[name]

    def index(self, axis: int) -> jax.Array:
        """Returns the index in the result of each element of the block along an axis: [...], of the block's shape."""
        dtype = index_type(2 * max(self.call.shape[axis], 1))
        return lax.broadcasted_iota(dtype, self.shape, axis) + self.offsets[axis]


AlignedAxes = tuple[tuple[int | None, ...], ...]
"""For each axis of each operand the axis of the result that it becomes; None for one that must be complete."""

Body = Callable[[ResultBlock, Sequence[jax.Array | None]], jax.Array | tuple[jax.Array, ...]]
"""Computes a block of the result from blocks of the operands, those that are sharded as it is.

Of a row with several results it returns a block of each, and of a row with a `BatchCheck` also bool [batch].
"""


@dataclass(frozen=True)
class LocalSpecs:
    """The specs in which blocks are computed.

    Attributes:
        operands: of the operands; None for one left out.
        result: of the result.
    """

    operands: Specs
    result: Spec


@dataclass(frozen=True)
class RowExchange:
    """The strategy ``exchange`` of a row: blocks that the devices compute with rows of others.

    Attributes:
        documentation: one or two sentences on the rows that the devices send.
        specs: the specs of operands and result that it serves; the reason, as a clause, where it does not serve a
            problem. An operand that is sharded otherwise is resharded by the compiler.
        body: computes one block of the result from those of the operands.
    """

    documentation: str
    specs: Callable[[Problem], LocalSpecs | str]
    body: Callable[[Problem, ResultBlock, Sequence[jax.Array | None]], jax.Array]


@dataclass(frozen=True)
class IndexCheck:
    """A check that the values of an operand are indices of an axis.

    Attributes:
        operand: the position of the operand.
        count: returns the number of elements of the axis.
    """

    operand: int
    count: Callable[[CallShapes], int]


@dataclass(frozen=True)
class BatchCheck:
    """A check of a batch of computations, each of which succeeds or fails.

    Attributes:
        operand: the position of the operand at fault.
        message: the fault, what is allowed and what to do.
        axes: returns the number of axes of the batch, the first ones of every result.
    """

    operand: int
    message: str
    axes: Callable[[CallShapes], int]


@dataclass(frozen=True)
class Row:
    """A function of the table.

    Attributes:
        name: the name of its entry in the table of functions.
        body: computes one block.
        aligned: the alignment of a call; by default no axis has one.
        origins: for each axis of the result the axis of the main operand whose sharding it takes by default, None for
            none; that of the alignment by default.
        main: the operand that decides the result's default spec.
        is_free: True if a block of the result may be sharded along axes that no operand is aligned with.
        is_created: True if the result's first axis is sharded over all mesh axes by default.
        counts_result: True if the parameter ``axis`` counts the axes of the result and not those of the first operand.
        checks: the operands whose values are indices; a function of the call where their number depends on it.
        batch_check: the check of the computation; after its results, the body returns True where it failed.
        needs_complete_axes: True for functions whose computation is much longer than a copy of the operands: where
            an axis that they need complete is sharded, one device computes the result, not every device.
        products: returns an estimate of the multiplications by the shape of the first operand; None if there are few.
        exchange: the strategy for operands that are sharded along an axis of which a block needs rows of other blocks.
        reproducibility: as `Kernel.reproducibility`.
        blockwise: as `Kernel.blockwise`, for a row whose blocks need rows at other distances than 0.
    """

    name: str
    body: Body
    aligned: Callable[[CallShapes], AlignedAxes] | None = None
    origins: Callable[[CallShapes], tuple[int | None, ...]] | None = None
    main: int = 0
    is_free: bool = False
    is_created: bool = False
    counts_result: bool = False
    checks: tuple[IndexCheck, ...] | Callable[[CallShapes], tuple[IndexCheck, ...]] = ()
    batch_check: BatchCheck | None = None
    needs_complete_axes: bool = False
    products: Callable[[tuple[int, ...]], int] | None = None
    exchange: RowExchange | None = None
    reproducibility: Reproducibility = Reproducibility.ALWAYS
    blockwise: Callable[[Problem], Blockwise | None] | None = None


def call_of(problem: Problem) -> CallShapes:
    """Returns the shapes and parameters of a problem."""
    shapes = tuple(None if operand is None else operand.shape for operand in problem.operands)
    parameters = {} if problem.parameters is None else asdict(problem.parameters)
    return CallShapes(shapes, problem.results[0].shape, parameters, problem.constants)


def checks_of(row: Row, call: CallShapes) -> tuple[IndexCheck, ...]:
    """Returns the checks of a call."""
    return row.checks(call) if callable(row.checks) else row.checks


def spec_of_result(spec: Spec, ndim: int) -> Spec:
    """Returns the spec of another result: the batch is sharded as in the first one, the axes after it are not."""
    return (*spec, *((),) * ndim)[:ndim]


def alignment_of(row: Row, call: CallShapes) -> AlignedAxes:
    """Returns the alignment of a call."""
    if row.aligned is not None:
        return row.aligned(call)
    return tuple((None,) * len(shape or ()) for shape in call.shapes)
