"""The check that an author runs: a kernel against its definition, over meshes, layouts, strategies and paddings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardcall_core.call_error import CallError, Reason
from shardcall_core.functions.signature import ParameterValue
from shardcall_core.layouts.layout import Spec, format_spec, replicated, sharded
from shardcall_server.authoring.runner import KernelCase, Runner, kernel_case, use_virtual_devices
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.kernels.core.reproducibility import differing_bits

MESHES: tuple[Mapping[str, int], ...] = ({"x": 1}, {"x": 8}, {"x": 3}, {"x": 4, "y": 2}, {"x": 2, "y": 4})
"""One device, 8 along one axis, a number that divides few sizes, and two axes in both orders."""

_PADDINGS = (0.0, np.nan)


@dataclass(frozen=True)
class Report:
    """The outcome of a check.

    Attributes:
        kernel: the name of the kernel.
        cases: the number of results compared.
        by_strategy: the number of layouts that each strategy served.
        refused: the number of layouts that no strategy served.
    """

    kernel: str
    cases: int
    by_strategy: Mapping[str, int]
    refused: int

    def __str__(self) -> str:
        served = ", ".join(f"{name} {count}" for name, count in self.by_strategy.items())
        return f"{self.kernel}: {self.cases} results compared; layouts served: {served}; refused: {self.refused}"


def check(
    kernel: Kernel,
    reference: Callable[..., Any],
    *operands: np.ndarray | None,
    rtol: float = 0.0,
    atol: float = 0.0,
    meshes: Sequence[Mapping[str, int]] = MESHES,
    **parameters: ParameterValue,
) -> Report:
    """Compares a kernel with its definition on every mesh, in every layout, by every strategy.

    Each operand and each result in turn is sharded along each of its axes, over each mesh axis and over all, the others
    left to the kernel; all specs unset is one more layout. Padding holds zeros once and NaN once, since the padding of
    earlier results is unspecified. Sizes that no mesh divides, such as 13, check most. If the kernel promises
    the same bits on every mesh (`Kernel.is_reproducible`), all results are also compared with one another bit by bit.

    Args:
        kernel: the kernel to check.
        reference: the definition, called with the operands and parameters; returns an array, or a tuple of several
            results.
        operands: the arrays to run on; None for one left out.
        rtol: the relative difference allowed; 0 for none. All NaN count as equal.
        atol: the absolute difference allowed.
        meshes: their axes; at most 8 devices each.
        parameters: the static parameters of the call.

    Raises:
        AssertionError: a result differs, or a promise is broken; the message has the mesh, specs and strategy.
        CallError: the kernel refuses the call itself.
    """
    use_virtual_devices()
    runner = Runner()
    with np.errstate(all="ignore"):
        returned = reference(*operands, **parameters)
    expected = tuple(map(np.asarray, returned if isinstance(returned, tuple) else (returned,)))
    cases, refused = 0, 0
    first: list[tuple[np.ndarray, ...]] = []
    served = {strategy.name: 0 for strategy in kernel.strategies}
    for mesh, (in_specs, out_specs) in _layouts(operands, expected, meshes):
        auto = kernel_case(kernel, *operands, mesh=mesh, in_specs=in_specs, out_specs=out_specs, parameters=parameters)
        able = [case for name in served if _serves(case := replace(auto, strategy=name))]
        assert _serves(auto) == bool(able), f"{len(able)} strategies serve {_describe(auto)}, unlike 'auto'"
        refused += not able
        for case in able:
            served[case.strategy] += 1
            results = _compare(runner, case, operands, expected, rtol, atol)
            cases += len(expected)
            if kernel.is_reproducible(case.resolve().problem):
                first = first or results
                _check_bits(case, results, first)
    assert cases, f"no strategy of {kernel.name} serves any of these layouts"
    return Report(kernel.name, cases, served, refused)


def _serves(case: KernelCase) -> bool:
    try:
        case.resolve()
    except CallError as error:
        if error.reason != Reason.STRATEGY_UNSUPPORTED:
            raise
        return False
    return True


Layout = tuple[tuple[Spec | None, ...], tuple[Spec | None, ...]]


def _layouts(
    operands: Sequence[np.ndarray | None], results: Sequence[np.ndarray], meshes: Sequence[Mapping[str, int]]
) -> Iterator[tuple[Mapping[str, int], Layout]]:
    """Yields, for each mesh, all specs unset, then every spec of each operand and of each result in turn."""
    count = len(operands)
    arrays = [*operands, *results]
    for mesh in meshes:
        yield mesh, ((None,) * count, (None,) * len(results))
        for i, array in enumerate(arrays):
            for spec in () if array is None else _specs(array.ndim, tuple(mesh)):
                specs = tuple(spec if j == i else None for j in range(len(arrays)))
                yield mesh, (specs[:count], specs[count:])


def _specs(ndim: int, names: tuple[str, ...]) -> Iterator[Spec]:
    yield replicated(ndim)
    for axis in range(ndim):
        for mesh_axes in dict.fromkeys([names, *((name,) for name in names)]):
            yield sharded(ndim, axis, mesh_axes)
    if 1 < len(names) <= ndim:
        yield tuple((name,) for name in names) + ((),) * (ndim - len(names))


def _compare(
    runner: Runner,
    case: KernelCase,
    operands: Sequence[np.ndarray | None],
    expected: tuple[np.ndarray, ...],
    rtol: float,
    atol: float,
) -> list[tuple[np.ndarray, ...]]:
    """Compares the results with the definition's; returns them, for each padding."""
    by_padding = []
    for padding in _PADDINGS:
        results = runner.run(case, operands, padding)
        by_padding.append(results)
        for i, (result, reference) in enumerate(zip(results, expected, strict=True)):
            where = f"result {i} of {_describe(case)}, padding of {padding:g},"
            assert result.shape == reference.shape, f"{where} has shape {result.shape}, not {reference.shape}"
            assert result.dtype == reference.dtype, f"{where} is {result.dtype.name}, not {reference.dtype.name}"
            close = np.isclose(result, reference, rtol, atol, equal_nan=True) if result.size else np.ones(0, bool)
            if not np.all(close):
                first = tuple(np.argwhere(~close)[0].tolist())
                raise AssertionError(
                    f"{where} differs in {int((~close).sum())} of {result.size} elements; "
                    f"{result[first]!r} instead of {reference[first]!r} at {first}"
                )
    return by_padding


def _check_bits(
    case: KernelCase, results: Sequence[tuple[np.ndarray, ...]], first: Sequence[tuple[np.ndarray, ...]]
) -> None:
    for arrays in results:
        for i, (result, one) in enumerate(zip(arrays, first[0], strict=True)):
            count = differing_bits(result, one)
            assert not count, (
                f"result {i} of {_describe(case)} has other bits than the first in {count} elements, and "
                f"{case.kernel.name} promises the same bits on every mesh; see Kernel.reproducibility"
            )


def _describe(case: KernelCase) -> str:
    specs = ", ".join("open" if s is None else format_spec(s) for s in (*case.in_specs, *case.out_specs))
    mesh = ", ".join(f"{name}={size}" for name, size in case.mesh)
    return f"{case.kernel.name} by {case.strategy!r} on mesh ({mesh}), specs {specs}"
