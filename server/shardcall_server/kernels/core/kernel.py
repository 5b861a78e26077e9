"""The interface of a kernel.

A kernel has three layers, each testable alone: *validate* (pure Python, before any tracing), *bodies*
(per-block functions under ``jax.shard_map``) and *strategies*, named implementations. All three handle sizes that
the mesh does not divide: operands arrive padded with zeros at the end of each sharded axis, the padding of a result is
unspecified, and a body must not let padding affect elements that are returned.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic

import jax

from shardcall_core.functions.argument_checks import numbered
from shardcall_core.functions.function import Function
from shardcall_core.functions.signature import (
    OperandInfo,
    ParameterInfo,
    ParametersT,
    ParameterValues,
    Signature,
    ValueCheck,
)
from shardcall_core.graphs.graph import Constant
from shardcall_core.layouts.layout import ArrayType, MeshAxes, OperandTypes, Specs, padded_shape, row_sharding
from shardcall_server.kernels.core.blockwise import Blockwise
from shardcall_server.kernels.core.reproducibility import Reproducibility, all_integers

PRODUCTS_PER_BYTE = 4
"""The multiplications of a processor in the time that it takes to read, write or send a byte."""

SMALL = 1 << 14
"""The elements of a call up to which compiling its program takes much longer than running it a few times."""

_MIN_WORK_BYTES = 1 << 16  # of a call without elements: its start takes as long as that


@dataclass(frozen=True)
class Problem(Generic[ParametersT]):
    """The static description of a call that a strategy compiles.

    Attributes:
        operands: the operands as the caller sees them, without padding; None for one left out.
        parameters: the validated parameters, as in `Signature`.
        results: the results as the caller sees them, without padding.
        mesh: the axes of the mesh.
        in_specs: the spec of each operand; None for one left out.
        out_specs: the spec of each result; None leaves it to the compiler.
        checks: the checks of the operands' values, as in `Signature`.
        constants: the operands that are known, by their indices; only in programs.
    """

    operands: tuple[ArrayType | None, ...]
    parameters: ParametersT
    results: tuple[ArrayType, ...]
    mesh: MeshAxes
    in_specs: Specs
    out_specs: Specs
    checks: tuple[ValueCheck, ...] = ()
    constants: tuple[tuple[int, Constant], ...] = ()

    @property
    def is_small(self) -> bool:
        """True if ``auto`` stands for the strategy with the shortest program, until strategies are timed."""
        return sum(math.prod(operand.shape) for operand in self.operands if operand is not None) <= SMALL

    def padded_result(self, index: int = 0) -> tuple[int, ...]:
        """Returns the shape that a result must have on the mesh; its own where the compiler decides."""
        spec = self.out_specs[index]
        shape = self.results[index].shape
        return shape if spec is None else padded_shape(shape, spec, self.mesh)


Program = Callable[..., tuple[jax.Array, ...]]
"""A traceable function of the present operands, in order, as padded global arrays.

It returns one padded global array per result. Where the result's spec is set the shape must be
`Problem.padded_result`; where it is None, any shape that holds the result in its leading corner. After the results it
returns one bool [] for each of `Problem.checks`, the same on every device. A True refuses the call, and its results are
not returned; `shardcall_server.kernels.core.value_checks` computes such flags.
"""


@dataclass(frozen=True)
class Strategy:
    """A named implementation of a kernel.

    Attributes:
        name: the value of ``strategy`` in calls.
        documentation: one or two sentences on the method and the layouts that it serves.
        refusal: returns None if the strategy serves a problem, else the reason, as the end of the sentence "cannot
            serve this layout: …".
        build: makes the program for a problem on a mesh. Called once per key, never inside a request.
        cost: estimates what a device sends and computes for a problem that the strategy serves, as the bytes that are
            sent in the same time. `Kernel.choose` prefers the smallest; 0 by default.
    """

    name: str
    documentation: str
    refusal: Callable[[Problem], str | None]
    build: Callable[[Problem, jax.sharding.Mesh], Program]
    cost: Callable[[Problem], float] = lambda _: 0.0


class Kernel(ABC, Generic[ParametersT]):
    """One kernel. Instances hold no state: the same methods with the same arguments return the same.

    A kernel with parameters derives from ``Kernel[P]``, where P is the dataclass that `validate` makes of them; one
    without parameters derives from plain ``Kernel``.

    Attributes:
        name: the name in calls.
        version: increases when the kernel's results or program change.
        summary: one sentence for listings.
        operands: the operands by position.
        parameters: the static parameters, which calls set by name.
        strategies: the implementations; the first is preferred.
        reproducibility: the calls whose results are the same bits on every mesh; none by default.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    summary: ClassVar[str]
    operands: ClassVar[tuple[OperandInfo, ...]]
    parameters: ClassVar[tuple[ParameterInfo, ...]] = ()
    strategies: ClassVar[tuple[Strategy, ...]]
    reproducibility: ClassVar[Reproducibility] = Reproducibility.NOT_PROMISED

    def operand_infos(self, count: int) -> tuple[OperandInfo, ...]:
        """Returns the operands of a call with ``count`` of them; a repeated one is numbered: ``layers[0]``, …."""
        return numbered(self.operands, count)

    @abstractmethod
    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[ParametersT]:
        """Checks a call and determines its results' types.

        Args:
            operands: one per `operand_infos`, None for an optional one left out. The number of operands and
                that required ones are present has been checked.
            parameters: all of `parameters` by name, defaults filled in; unknown names have been refused,
                types and ranges have not.

        Raises:
            CallError: with the field at fault, its value and what is allowed.
        """

    def default_in_specs(
        self, operands: OperandTypes, parameters: ParametersT, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in the operands' specs that the caller left unset.

        The first axis is sharded over all mesh axes; a scalar is replicated.
        """
        return tuple(
            spec if spec is not None or operand is None else row_sharding(operand.ndim, mesh)
            for operand, spec in zip(operands, in_specs, strict=True)
        )

    def default_out_specs(self, problem: Problem[ParametersT], strategy: str) -> Specs:
        """Fills in the results' specs that the caller left unset; None leaves one to the compiler."""
        return problem.out_specs

    def is_quick(self, problem: Problem[ParametersT]) -> bool:
        """Returns True if every strategy finishes soon: only then are they timed, since no run can be interrupted.

        True for kernels that read and write their arrays a few times.
        """
        return True

    def work_bytes(self, operands: OperandTypes, signature: Signature[ParametersT]) -> int:
        """Returns an estimate of a call's work, as the number of bytes that are read and written in the same time."""
        nbytes = sum(array.nbytes for array in (*operands, *signature.results) if array is not None)
        return nbytes + self.product_count(operands, signature) // PRODUCTS_PER_BYTE + _MIN_WORK_BYTES

    def product_count(self, operands: OperandTypes, signature: Signature[ParametersT]) -> int:
        """Returns an estimate of the multiplications of a call; 0, the default, if there are few for each element."""
        return 0

    def is_reproducible(self, problem: Problem[ParametersT]) -> bool:
        """Returns True if a call's results are the same bits on every mesh, in every layout and by every strategy.

        Override it where `reproducibility` is ``PER_CALL``.
        """
        if self.reproducibility is Reproducibility.INTEGERS:
            return all_integers((*problem.operands, *problem.results))
        return self.reproducibility is Reproducibility.ALWAYS

    def build_slice(self, problem: Problem[ParametersT], mesh: jax.sharding.Mesh) -> Program | None:
        """Makes the program of a loop that runs in several launches; None for any other call.

        It takes one more array than a strategy's program, the maximum number of iterations of a launch, and returns one
        more: int64 [2], the number of iterations that are left and the number of those that it ran.
        """
        return None

    def blockwise(self, problem: Problem[ParametersT]) -> Blockwise | None:
        """Returns a call as one of a region of a program; None, the default, for one that cannot be in one."""
        return None

    def parts(self, problem: Problem[ParametersT]) -> Sequence[tuple[Kernel, Problem]]:
        """Returns the kernels that a call runs, each with its problem: this kernel alone, except for a graph."""
        return ((self, problem),)

    def choose(self, problem: Problem[ParametersT]) -> tuple[str, str]:
        """Returns the strategy that ``auto`` stands for before any timing, and the reason, as a clause.

        The strategy must serve the problem; by default it is the first that does, of those with the smallest cost.
        Called before `default_out_specs`: ``problem.out_specs`` holds the specs that the caller set.
        """
        if len(self.strategies) == 1:
            return self.strategies[0].name, "there is no other"
        costs = self.costs(problem)
        if not costs:
            return self.strategies[0].name, "no other serves this layout"
        cheapest = min(costs, key=costs.__getitem__)
        return cheapest, "it sends the fewest bytes" if any(
            costs.values()
        ) else "it is the first that serves this layout"

    def costs(self, problem: Problem[ParametersT]) -> dict[str, float]:
        """Returns the cost of each strategy that serves a problem, in the order of the strategies."""
        problems = [
            (strategy, replace(problem, out_specs=self.default_out_specs(problem, strategy.name)))
            for strategy in self.strategies
        ]
        return {strategy.name: strategy.cost(of) for strategy, of in problems if not strategy.refusal(of)}


class FunctionKernel(Kernel[ParametersT]):
    """A kernel of the table of functions, which has its signature and its checks.

    Attributes:
        function: its entry in the table; set for each class that is instantiated.
    """

    function: ClassVar[Function]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if (function := vars(cls).get("function")) is not None:
            cls.name, cls.summary = function.name, function.summary
            cls.operands, cls.parameters = function.operands, function.parameters

    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[ParametersT]:
        """Checks a call by the table of functions.

        Raises:
            CallError: for a call that the function does not accept.
        """
        assert self.function.check is not None
        return self.function.check(operands, parameters)
