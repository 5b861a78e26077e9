"""What a kernel is: the interface that every file of this package fills.

A kernel has three layers, each testable alone: *validate* (pure Python, before any tracing), *bodies*
(per-block functions under ``jax.shard_map``) and *strategies*, named ways to do the work. Sizes that the
mesh does not divide are the business of all: operands arrive padded with zeros at the end of each split
axis, what the padding of a result holds is of no account, and a body must not let padding leak into
elements that count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

import jax

from shardcall_server.kernels.layout import (
    ArrayType,
    MeshAxes,
    OperandTypes,
    Specs,
    padded_shape,
    rows_over_all,
)
from shardcall_server.kernels.reproducibility import Reproducibility, all_integers
from shardcall_server.kernels.signature import (
    OperandInfo,
    ParameterInfo,
    ParametersT,
    ParameterValues,
    Signature,
    ValueCheck,
)

ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class Problem(Generic[ParametersT]):
    """All that a strategy has to solve; static, so it may decide the program.

    Attributes:
        operands: the operands as the caller sees them, without padding; None for one left out.
        parameters: as in `Signature`.
        results: the results as the caller sees them, without padding.
        mesh: the mesh's axes.
        in_specs: how each operand is split; None for one left out.
        out_specs: how each result is to be split; None leaves it to the compiler.
        checks: as in `Signature`.
    """

    operands: tuple[ArrayType | None, ...]
    parameters: ParametersT
    results: tuple[ArrayType, ...]
    mesh: MeshAxes
    in_specs: Specs
    out_specs: Specs
    checks: tuple[ValueCheck, ...] = ()

    def padded_result(self, index: int = 0) -> tuple[int, ...]:
        """The shape that a result must have on the mesh; its own where the compiler decides."""
        spec = self.out_specs[index]
        shape = self.results[index].shape
        return shape if spec is None else padded_shape(shape, spec, self.mesh)


Program = Callable[..., tuple[jax.Array, ...]]
"""A traceable function of the present operands, in order, as padded global arrays.

It returns one padded global array per result. Where the result's spec is set the shape must be
`Problem.padded_result`; where it is None, any shape that holds the result in its leading corner. After the results it
returns one bool [] for each of `Problem.checks`, the same on every device: whether the call is to be refused. Then it
fails, and its results are not returned; `shardcall_server.kernels.value_checks` computes such flags.
"""


def required(value: ValueT | None) -> ValueT:
    """Returns a required operand, or its spec, with a type that excludes None."""
    assert value is not None
    return value


@dataclass(frozen=True)
class Strategy:
    """A named way to do a kernel's work.

    Attributes:
        name: as the caller names it.
        documentation: how it works and which layouts it serves, in a sentence or two.
        refusal: tells why it cannot serve a problem, as the end of the sentence "cannot serve this
            layout: …", or returns None if it can.
        build: makes the program for a problem on a mesh. Called once per key, never inside a request.
    """

    name: str
    documentation: str
    refusal: Callable[[Problem], str | None]
    build: Callable[[Problem, jax.sharding.Mesh], Program]


class Kernel(ABC, Generic[ParametersT]):
    """One kernel. Instances hold no state: the same methods with the same arguments return the same.

    A kernel with parameters derives from ``Kernel[P]``, where P is the dataclass that `validate` makes of them; one
    without parameters derives from plain ``Kernel``.

    Attributes:
        name: as the caller names it.
        version: grows when the kernel's results or program change.
        summary: one sentence.
        operands: what it takes, by position.
        parameters: what it takes by name.
        strategies: the ways to do its work.
        reproducibility: for which calls the results are the same bits on every mesh; by default for none.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    summary: ClassVar[str]
    operands: ClassVar[tuple[OperandInfo, ...]]
    parameters: ClassVar[tuple[ParameterInfo, ...]] = ()
    strategies: ClassVar[tuple[Strategy, ...]]
    reproducibility: ClassVar[Reproducibility] = Reproducibility.NOT_PROMISED

    def operand_infos(self, count: int) -> tuple[OperandInfo, ...]:
        """The operands of a call that gives ``count``, a repeated one as often as it is due: ``layers[0]``, …."""
        if not self.operands or not self.operands[-1].repeated:
            return self.operands
        *once, repeated = self.operands
        times = max(count - len(once), 0 if repeated.optional else 1)
        return (*once, *(replace(repeated, name=f"{repeated.name}[{i}]") for i in range(times)))

    @abstractmethod
    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[ParametersT]:
        """Checks a call and tells its results' types.

        Args:
            operands: one per `operand_infos`, None for an optional one left out. The number of operands and
                that required ones are present has been checked.
            parameters: all of `parameters` by name, defaults filled in; unknown names have been refused,
                kinds and ranges have not.

        Raises:
            CallError: with the field at fault, what was given and what is allowed.
        """

    def default_in_specs(
        self, operands: OperandTypes, parameters: ParametersT, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in the operands' specs that the caller left unset.

        The first axis is split over all mesh axes; a scalar is replicated.
        """
        return tuple(
            spec if spec is not None or operand is None else rows_over_all(operand.ndim, mesh)
            for operand, spec in zip(operands, in_specs, strict=True)
        )

    def default_out_specs(self, problem: Problem[ParametersT], strategy: str) -> Specs:
        """Fills in the results' specs that the caller left unset; None leaves one to the compiler."""
        return problem.out_specs

    def is_quick(self, problem: Problem[ParametersT]) -> bool:
        """Whether every strategy is over soon: only then are they timed, since no run can be interrupted.

        As long as a kernel reads and writes its arrays a few times it is.
        """
        return True

    def is_reproducible(self, problem: Problem[ParametersT]) -> bool:
        """Whether a call's results are the same bits on every mesh, in every layout and by every strategy.

        To be overridden where `reproducibility` is ``PER_CALL``.
        """
        if self.reproducibility is Reproducibility.INTEGERS:
            return all_integers((*problem.operands, *problem.results))
        return self.reproducibility is Reproducibility.ALWAYS

    def choose(self, problem: Problem[ParametersT]) -> tuple[str, str]:
        """The strategy that ``auto`` stands for where nothing was measured, and why, as a clause.

        It must be able to serve; the first that is, unless a kernel knows better. Called before `default_out_specs`:
        ``problem.out_specs`` holds what the caller set.
        """
        if len(self.strategies) == 1:
            return self.strategies[0].name, "there is no other"
        for strategy in self.strategies:
            if not strategy.refusal(replace(problem, out_specs=self.default_out_specs(problem, strategy.name))):
                return strategy.name, "it is the first that serves this layout"
        return self.strategies[0].name, "no other serves this layout"
