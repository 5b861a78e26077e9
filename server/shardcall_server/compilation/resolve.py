"""Resolution of calls: checks, and defaults that are filled in.

Pure Python, before any tracing, so that no text of a JAX exception reaches a client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardcall_core.functions.signature import ParameterValue
from shardcall_core.layouts.checks import check_mesh
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec
from shardcall_server.kernels.core.call_checks import AUTO, fill_in
from shardcall_server.kernels.core.kernel import Kernel, Problem, Strategy


@dataclass(frozen=True)
class Request:
    """A decoded call, not yet checked.

    Attributes:
        parameters: values by name.
        operands: the operands' types; None for one left out.
        mesh: the mesh's axes.
        device_ids: the devices in row-major order of the axes; empty for the first ones.
        in_specs: entries per operand; None where unset. May be shorter than ``operands``.
        out_specs: entries per result; None where unset.
        strategy: a name, or "auto".
    """

    parameters: Mapping[str, ParameterValue]
    operands: tuple[ArrayType | None, ...]
    mesh: MeshAxes
    device_ids: tuple[int, ...]
    in_specs: tuple[Spec | None, ...]
    out_specs: tuple[Spec | None, ...]
    strategy: str


@dataclass(frozen=True)
class Resolution:
    """A call with all its defaults filled in.

    Attributes:
        problem: the problem that the strategy solves.
        device_ids: the devices in row-major order of the mesh's axes.
        strategy: the strategy, chosen or named.
        reason: a clause that explains the strategy.
        candidates: the strategies that ``auto`` may stand for, the rule's choice first, then in the kernel's order;
            empty if the call names one.
    """

    kernel: Kernel
    problem: Problem
    device_ids: tuple[int, ...]
    strategy: Strategy
    reason: str
    candidates: tuple[str, ...] = ()

    def with_strategy(self, name: str) -> Resolution:
        """Returns the call with another of its candidates; operands and results are placed alike."""
        if name not in self.candidates[1:]:
            return self
        strategy = next(strategy for strategy in self.kernel.strategies if strategy.name == name)
        reason = f"decided on instead of {self.strategy.name}, the rule's choice"
        return replace(self, strategy=strategy, reason=reason)


def resolve(kernel: Kernel, request: Request, existing_devices: Sequence[int]) -> Resolution:
    """Checks a call and fills in its defaults.

    Args:
        existing_devices: the ids of the devices that exist, in their own order.

    Raises:
        CallError: for every mistake that a caller can make.
    """
    device_ids = check_mesh(request.mesh, request.device_ids, existing_devices)
    problem, strategy, reason = fill_in(
        kernel,
        request.operands,
        request.parameters,
        request.mesh,
        request.in_specs,
        request.out_specs,
        request.strategy,
    )
    candidates: tuple[str, ...] = ()
    if request.strategy == AUTO:
        candidates = _candidates(kernel, problem, strategy.name) if kernel.is_quick(problem) else (strategy.name,)
    return Resolution(kernel, problem, device_ids, strategy, reason, candidates)


def _candidates(kernel: Kernel, problem: Problem, rules: str) -> tuple[str, ...]:
    """Returns the strategies that support the layout of the rule's choice, that one first.

    The quickest strategy must not decide the layout of a result. A layout that is left to the compiler may differ by
    strategy, so there is one candidate then.
    """
    if None in problem.out_specs:
        return (rules,)
    others = (s.name for s in kernel.strategies if s.name != rules and not s.refusal(problem))
    return (rules, *others)
