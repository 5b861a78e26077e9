"""Resolution of calls: checks everything and fills in the defaults.

Pure Python, before any tracing, so that no text of a JAX exception reaches a client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardcall._src.functions.function import REQUIRED
from shardcall_server.errors import CallError, Reason, did_you_mean, shorten
from shardcall_server.kernels.kernel import Kernel, Problem, Strategy
from shardcall_server.kernels.layout import ArrayType, MeshAxes, Spec
from shardcall_server.kernels.layout_checks import check_mesh, check_spec
from shardcall_server.kernels.signature import ParameterValue

AUTO = "auto"


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
class Resolved:
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

    def with_strategy(self, name: str) -> Resolved:
        """Returns the call with another of its candidates; operands and results are placed alike."""
        if name not in self.candidates[1:]:
            return self
        strategy = next(strategy for strategy in self.kernel.strategies if strategy.name == name)
        reason = f"decided on instead of {self.strategy.name}, the rule's choice"
        return replace(self, strategy=strategy, reason=reason)


def resolve(kernel: Kernel, request: Request, existing_devices: Sequence[int]) -> Resolved:
    """Checks a call and fills in what it left open.

    Args:
        kernel: the kernel called.
        request: the call.
        existing_devices: the ids of the devices that exist, in their own order.

    Raises:
        CallError: for every mistake that a caller can make.
    """
    device_ids = check_mesh(request.mesh, request.device_ids, existing_devices)
    operands = _check_operands(kernel, request.operands)
    signature = kernel.validate(operands, _check_parameters(kernel, request.parameters))
    strategies = {strategy.name: strategy for strategy in kernel.strategies}
    if request.strategy != AUTO and request.strategy not in strategies:
        raise CallError(
            Reason.UNKNOWN_STRATEGY,
            f"kernel {kernel.name!r} has no strategy {shorten(request.strategy)!r}; "
            f"{did_you_mean(request.strategy, [*strategies, AUTO])}",
            field="strategy",
        )
    specs = _check_specs(
        "in_specs",
        [info.name for info in kernel.operand_infos(len(operands))],
        request.in_specs,
        operands,
        request.mesh,
    )
    in_specs = kernel.default_in_specs(operands, signature.parameters, specs, request.mesh, request.strategy)
    count = len(signature.results)
    result_names = ["the result"] if count == 1 else [f"result {i}" for i in range(count)]
    problem = Problem(
        operands=operands,
        parameters=signature.parameters,
        results=signature.results,
        mesh=request.mesh,
        in_specs=in_specs,
        out_specs=_check_specs("out_specs", result_names, request.out_specs, signature.results, request.mesh),
        checks=signature.checks,
    )
    if request.strategy == AUTO:
        name, reason = kernel.choose(problem)
    else:
        name, reason = request.strategy, "asked for"
    problem = replace(problem, out_specs=kernel.default_out_specs(problem, name))
    candidates: tuple[str, ...] = ()
    if request.strategy == AUTO:
        candidates = _candidates(kernel, problem, name) if kernel.is_quick(problem) else (name,)
    if why := strategies[name].refusal(problem):
        able = [s.name for s in kernel.strategies if not s.refusal(problem)]
        raise CallError(
            Reason.STRATEGY_UNSUPPORTED,
            f"strategy {name!r} of kernel {kernel.name!r} cannot serve this layout: {why}; "
            + (f"these can: {', '.join([*able, AUTO])}" if able else "change the specs, or leave them unset"),
            field="strategy",
            metadata={"able": ",".join(able)},
        )
    return Resolved(kernel, problem, device_ids, strategies[name], reason, candidates)


def _candidates(kernel: Kernel, problem: Problem, rules: str) -> tuple[str, ...]:
    """Returns the strategies that support the layout of the rule's choice, that one first.

    The quickest strategy must not decide the layout of a result. A layout that is left to the compiler may differ by
    strategy, so there is one candidate then.
    """
    if None in problem.out_specs:
        return (rules,)
    others = (s.name for s in kernel.strategies if s.name != rules and not s.refusal(problem))
    return (rules, *others)


def without_trailing(operands: Sequence[ArrayType | None]) -> Sequence[ArrayType | None]:
    """Returns the operands without those left out at the end."""
    present = [i for i, operand in enumerate(operands) if operand is not None]
    return operands[: present[-1] + 1] if present else ()


def _check_operands(kernel: Kernel, requested: Sequence[ArrayType | None]) -> tuple[ArrayType | None, ...]:
    present = without_trailing(requested)
    infos = kernel.operand_infos(len(present))
    if len(present) > len(infos):
        raise CallError(
            Reason.OPERAND_COUNT,
            f"kernel {kernel.name!r} takes {len(infos)} operands "
            f"({', '.join(info.name for info in infos)}) and got {len(present)}; leave out the rest",
            field="operands",
        )
    operands = tuple(present) + (None,) * (len(infos) - len(present))
    for info, operand in zip(infos, operands, strict=True):
        if operand is None and (info.repeated or not info.optional):
            raise CallError(
                Reason.OPERAND_COUNT,
                f"kernel {kernel.name!r} needs operand {info.name!r}, which was left out; give an array",
                field=info.name,
            )
    return operands


def _check_parameters(kernel: Kernel, values: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
    defaults = {info.name: info.default for info in kernel.parameters}
    for name in values:
        if name not in defaults:
            raise CallError(
                Reason.UNKNOWN_PARAMETER,
                f"kernel {kernel.name!r} has no parameter {shorten(name)!r}; {did_you_mean(name, defaults)}",
                field=shorten(name) or "parameters",
            )
    parameters = {**defaults, **values}
    for name, value in parameters.items():
        if value is REQUIRED:
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"kernel {kernel.name!r} needs parameter {name!r}, which was left out; give {name}=…",
                field=name,
            )
    return parameters  # type: ignore[return-value]  # REQUIRED is gone


def _check_specs(
    field: str,
    names: Sequence[str],
    requested: Sequence[Spec | None],
    arrays: Sequence[ArrayType | None],
    mesh: MeshAxes,
) -> tuple[Spec | None, ...]:
    if len(requested) > len(arrays):
        raise CallError(
            Reason.INVALID_OPERAND,
            f"{field} has {len(requested)} specs for {', '.join(names)}; give at most one for each",
            field=field,
        )
    specs = tuple(requested) + (None,) * (len(arrays) - len(requested))
    return tuple(
        None if spec is None or array is None else check_spec(f"{field}[{i}]", name, spec, array, mesh)
        for i, (name, spec, array) in enumerate(zip(names, specs, arrays, strict=True))
    )
