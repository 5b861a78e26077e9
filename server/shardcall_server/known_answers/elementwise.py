"""Known-answer tests of the elementwise functions; a program has some functions of one element type.

One program for each function would take half as long again to compile. One for all functions of a type would delay the
first call of each of them by seconds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import cast

import jax
import ml_dtypes
import numpy as np
import structlog

from shardcall_core.call_error import CallError
from shardcall_core.layouts.layout import ArrayType, MeshAxes
from shardcall_server.compilation.program import build_mesh, is_out_of_memory
from shardcall_server.compilation.resolve import Request, Resolution, resolve
from shardcall_server.kernels.core.call_checks import AUTO
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.kernels.elementwise.elementwise import ElementwiseKernel
from shardcall_server.known_answers.comparison import are_wrong, wide_type
from shardcall_server.known_answers.known_answer import Finish, KnownAnswer, Launch, Outcome

SIZE = 4096
"""The number of elements of each operand: more than the compiler unrolls, and as usual in calls."""

TYPES = tuple(
    np.dtype(t)
    for t in (
        *(np.float64, np.float32, ml_dtypes.bfloat16, np.float16, np.complex128, np.complex64),
        *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
    )
)
"""The floating-point types, the most used ones first."""

_IN_ONE_PROGRAM = 17
_BASIC = ("add", "subtract", "multiply", "negative", "absolute", "abs")
"""The functions of the first program, which is the only one that most first calls wait for.

The tests before the first run of a step of the heat equation take 0.13 s of processor time, and 0.67 if the basic
functions are among the 34 of two larger programs.
"""
_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0)
# NumPy itself returns either zero here, depending on the type and the processor.
_EITHER_ZERO = frozenset({"sign", "maximum", "minimum", "fmax", "fmin", "clip", "logaddexp", "logaddexp2"})
_ONE_DEVICE = MeshAxes((("x", 1),))


def known_answers(kernels: Sequence[Kernel], device_id: int) -> Iterator[KnownAnswer]:
    """Yields the tests.

    Args:
        kernels: all kernels; those that are not elementwise are skipped.
        device_id: a device of this process, which runs them.
    """
    ours = [kernel for kernel in kernels if isinstance(kernel, ElementwiseKernel)]
    basic = [kernel for kernel in ours if kernel.name in _BASIC]
    others = [kernel for kernel in ours if kernel.name not in _BASIC]
    groups = [basic] * bool(basic) + [others[i : i + _IN_ONE_PROGRAM] for i in range(0, len(others), _IN_ONE_PROGRAM)]
    for dtype in TYPES:
        for i, group in enumerate(groups, 1):
            yield KnownAnswer(
                name=f"{prefix(dtype)}{i}/{len(groups)}",
                kernels=tuple(kernel.name for kernel in group),
                is_collective=False,
                compile=partial(_compile, group, dtype, device_id),
            )


def prefix(dtype: np.dtype) -> str:
    """Returns the prefix of the names of one type's tests."""
    return f"elementwise {dtype.name} "


def _resolve(kernel: ElementwiseKernel, dtype: np.dtype, device_id: int) -> Resolution | None:
    """Returns the call of a function with operands of one type; None where it does not compute in that type."""
    operands = (ArrayType((SIZE,), dtype),) * len(kernel.operands)
    try:
        if kernel.computed_type(operands) != dtype:
            return None
    except CallError:
        return None
    return resolve(kernel, Request({}, operands, _ONE_DEVICE, (device_id,), (), (), AUTO), (device_id,))


def operands_of(dtype: np.dtype) -> list[np.ndarray]:
    """Returns three operands [SIZE]: ordinary numbers of both signs, and every pair of special ones among them."""
    values = np.random.default_rng(39352)
    operands = []
    for i in range(3):
        parts = [_ordinary(values, dtype) for _ in ("real", "imaginary")]
        for part, shift in zip(parts, (0, 1), strict=True):
            pairs = np.array(list(product(_SPECIAL, repeat=2)))
            special = np.roll(pairs[:, (i + shift) % 2], shift * len(_SPECIAL))
            step = SIZE // len(special)
            part[: step * len(special) : step] = special
        operand = np.empty(SIZE, np.complex128 if dtype.kind == "c" else np.float64)
        operand.real = parts[0]
        if dtype.kind == "c":
            operand.imag = parts[1]
        operands.append(operand.astype(dtype))
    return operands


def _ordinary(values: np.random.Generator, dtype: np.dtype) -> np.ndarray:
    # XLA's complex powers have larger intermediate values than results.
    octaves = 3 if dtype.kind == "c" else 6
    size = np.exp2(values.uniform(-octaves, octaves, SIZE))
    ordinary: np.ndarray = size * values.choice((-1.0, 1.0), SIZE)
    return ordinary


def _compile(kernels: Sequence[ElementwiseKernel], dtype: np.dtype, device_id: int) -> Launch:
    group = [resolved for kernel in kernels if (resolved := _resolve(kernel, dtype, device_id)) is not None]
    device = build_mesh(_ONE_DEVICE, (device_id,)).devices.flat[0]
    on_host = operands_of(dtype)
    on_device = [jax.device_put(operand, device) for operand in on_host]
    try:
        programs = [(list(group), _compile_together(group, on_device))]
    except Exception as error:  # whatever the compiler says: a platform may lack a function, or an element type
        if is_out_of_memory(error):
            raise
        programs = list(_compile_apart(group, on_device))
    compiled = {resolved.kernel.name for together, _ in programs for resolved in together}
    untested = tuple(resolved.kernel.name for resolved in group if resolved.kernel.name not in compiled)
    return partial(_launch, programs, untested, on_host, on_device)


def _compile_together(group: Sequence[Resolution], operands: Sequence[jax.Array]) -> jax.stages.Compiled:
    mesh = build_mesh(_ONE_DEVICE, group[0].device_ids)
    functions = [(r.strategy.build(r.problem, mesh), len(r.problem.operands)) for r in group]

    def all_of_them(*arrays: jax.Array) -> list[jax.Array]:
        return [function(*arrays[:count])[0] for function, count in functions]

    return jax.jit(all_of_them).lower(*operands).compile()


def _compile_apart(
    group: Sequence[Resolution], operands: Sequence[jax.Array]
) -> Iterator[tuple[list[Resolution], jax.stages.Compiled]]:
    """Yields the functions that can be compiled; those that cannot are logged."""
    for resolved in group:
        try:
            yield [resolved], _compile_together([resolved], operands)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            structlog.get_logger().warning(
                "a function could not be compiled and is not tested",
                kernel=resolved.kernel.name,
                element_type=operands[0].dtype.name,
                exc_info=error,
            )


_Programs = Sequence[tuple[list[Resolution], jax.stages.Compiled]]


def _launch(
    programs: _Programs, untested: tuple[str, ...], on_host: Sequence[np.ndarray], on_device: Sequence[jax.Array]
) -> Finish:
    launched = [(group, compiled(*on_device)) for group, compiled in programs]
    results = [(r.kernel, result) for group, arrays in launched for r, result in zip(group, arrays, strict=True)]
    return partial(_finish, results, untested, on_host)


def _finish(
    results: Sequence[tuple[Kernel, jax.Array]], untested: tuple[str, ...], on_host: Sequence[np.ndarray]
) -> Outcome:
    wrong: dict[str, str] = {}
    for kernel, result in results:
        count = int(wrong_elements(cast(ElementwiseKernel, kernel), np.asarray(result), on_host).sum())
        if count:
            wrong[kernel.name] = f"{count} of {SIZE} elements are wrong"
    return Outcome(wrong, untested)


def wrong_elements(kernel: ElementwiseKernel, got: np.ndarray, operands: Sequence[np.ndarray]) -> np.ndarray:
    """Returns True for each element of a function's result that is wrong."""
    wide = [operand.astype(wide_type(operand.dtype)) for operand in operands[: len(kernel.operands)]]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.asarray(getattr(np, kernel.function.name)(*wide))
        largest = np.max([np.abs(operand).astype(np.float64) for operand in wide], axis=0)
    wrong = are_wrong(got, expected, largest, signed_zeros=kernel.function.name not in _EITHER_ZERO)
    for operand in wide:
        if operand.dtype.kind == "c":  # C leaves results for special parts unspecified, and NumPy and XLA differ
            wrong &= np.isfinite(operand) & (operand.real != 0) & (operand.imag != 0)
    return wrong
