"""Runs kernels in this process, with the flags and the steps of a worker: resolve, compile, place, run, gather."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import jax
import numpy as np

from shardcall_core.functions.signature import ParameterValue
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec
from shardcall_server.compilation.program import BuildError, Program, compile_program
from shardcall_server.compilation.resolve import Request, Resolution, resolve
from shardcall_server.kernels.core.call_checks import AUTO
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.launcher import worker_environment
from shardcall_server.mesh.placement import ParallelCopier, gather, put_padded

DEVICES = 8


def use_virtual_devices() -> None:
    """Gives this process 8 virtual CPU devices, 64-bit element types and the XLA flags of a worker.

    Raises:
        RuntimeError: JAX has started with fewer devices or without those flags.
    """
    flags, environment_flags = worker_environment({}, "cpu")["XLA_FLAGS"], os.environ.get("XLA_FLAGS", "")
    if flags not in environment_flags:
        if _jax_has_started():
            raise RuntimeError(
                "JAX has started in this process without the flags of a worker, with which kernels are compiled "
                f"otherwise; let nothing use JAX before kernels are checked, or set XLA_FLAGS={flags!r}"
            )
        os.environ["XLA_FLAGS"] = f"{flags} {environment_flags}".strip()
    jax.config.update("jax_enable_x64", True)
    try:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", DEVICES)
    except RuntimeError:  # JAX has started; the number of devices is checked below
        pass
    if (count := len(jax.devices())) < DEVICES:
        raise RuntimeError(
            f"JAX runs with {count} devices in this process and {DEVICES} are needed; "
            "let nothing use JAX before kernels are checked"
        )


def _jax_has_started() -> bool:
    count: int = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]
    try:
        jax.config.update("jax_num_cpu_devices", count + 1)  # JAX refuses to change it, once it has started
    except RuntimeError:
        return True
    jax.config.update("jax_num_cpu_devices", count)
    return False


@dataclass(frozen=True)
class KernelCase:
    """A call without its values; equal calls share a compiled program."""

    kernel: Kernel
    operands: tuple[ArrayType | None, ...]
    mesh: tuple[tuple[str, int], ...]
    in_specs: tuple[Spec | None, ...]
    out_specs: tuple[Spec | None, ...]
    strategy: str
    parameters: tuple[tuple[str, ParameterValue], ...]

    def resolve(self) -> Resolution:
        """Resolves the case, with defaults for everything that is unset."""
        request = Request(
            parameters=dict(self.parameters),
            operands=self.operands,
            mesh=MeshAxes(self.mesh),
            device_ids=(),
            in_specs=self.in_specs,
            out_specs=self.out_specs,
            strategy=self.strategy,
        )
        return resolve(self.kernel, request, range(DEVICES))


def kernel_case(
    kernel: Kernel,
    *operands: ArrayType | np.ndarray | None,
    mesh: Mapping[str, int],
    in_specs: Sequence[Spec | None] = (),
    out_specs: Sequence[Spec | None] = (),
    strategy: str = AUTO,
    parameters: Mapping[str, ParameterValue] = {},
) -> KernelCase:
    """Returns the case of a kernel with these operands, or operands of these types."""
    types = tuple(ArrayType(o.shape, o.dtype) if isinstance(o, np.ndarray | np.generic) else o for o in operands)
    specs = tuple(in_specs), tuple(out_specs)
    return KernelCase(kernel, types, tuple(mesh.items()), *specs, strategy, tuple(sorted(parameters.items())))


# A program has up to 70 mappings of memory, and Linux permits a process 65,530: beyond, LLVM ends it.
_MAX_PROGRAMS = 512


@dataclass
class Runner:
    """Runs calls, compiling each once, as long as it is among the last `_MAX_PROGRAMS`."""

    programs: dict[KernelCase, Program] = field(default_factory=dict)
    copier: ParallelCopier = field(default_factory=ParallelCopier)

    def program(self, case: KernelCase) -> Program:
        """Returns the compiled program of a call."""
        if case not in self.programs:
            if len(self.programs) == _MAX_PROGRAMS:
                del self.programs[next(iter(self.programs))]
            cause: BaseException | None = None
            try:
                self.programs[case] = compile_program(case.resolve())
            except BuildError as error:
                cause = error.__cause__
            if cause is not None:  # its author looks for the line that raised
                raise cause
        return self.programs[case]

    def run(
        self, case: KernelCase, operands: Sequence[np.ndarray | None], padding: float = 0
    ) -> tuple[np.ndarray, ...]:
        """Returns the results of a call.

        Args:
            case: a kernel and the types and layout of its operands.
            operands: arrays of the types of the case.
            padding: the value in the operands' padding, which is unspecified on a server.

        Raises:
            CallError: the call is refused for its operands' values.
        """
        program = self.program(case)
        arrays = [
            put_padded(_padded(operand, placement.padded, padding), placement, self.copier, may_alias=True)
            for operand, placement in zip(operands, program.operands, strict=False)
            if operand is not None and placement is not None
        ]
        results = tuple(np.zeros(result.shape, result.dtype) for result in program.resolved.problem.results)
        if program.compiled:
            arrays = program.compiled(*arrays)
            program.check(arrays)
            for array, result in zip(arrays, results, strict=False):
                _check_copies(array, result.shape)
                gather(array, result, self.copier, lambda _: None)
        return results


def _check_copies(array: jax.Array, shape: tuple[int, ...]) -> None:
    """Checks that devices with the same block of a result have the same elements, except in padding.

    Floating-point numbers may differ in their last bits, since in a ring each device adds in another order.

    Raises:
        AssertionError: if they differ: a later call may read the block of any of them.
    """
    blocks: dict[str, np.ndarray] = {}
    for shard in array.addressable_shards:
        valid = tuple(slice(0, max(0, n - (at.start or 0))) for n, at in zip(shape, shard.index, strict=True))
        block = np.asarray(shard.data)[valid]
        if not _is_copy(block, blocks.setdefault(str(shard.index), block)):
            raise AssertionError(f"devices have different copies of the block {shard.index} of a result of {shape}")


def _is_copy(block: np.ndarray, other: np.ndarray) -> bool:
    if block.tobytes() == other.tobytes():
        return True
    if block.dtype.kind in "iub":
        return False
    wide, tolerance = np.complex128 if block.dtype.kind == "c" else np.float64, 0.25 if block.itemsize == 1 else 0.05
    with np.errstate(all="ignore"):
        one, two = block.astype(wide), other.astype(wide)
        largest = float(np.abs(one[np.isfinite(one)]).max(initial=0))
        return np.allclose(one, two, rtol=tolerance, atol=tolerance * min(largest, 1e300), equal_nan=True)


def _padded(array: np.ndarray, shape: tuple[int, ...], padding: float) -> np.ndarray:
    array = np.asarray(array)
    with np.errstate(invalid="ignore"):  # NaN as an integer is some integer
        result = np.full(shape, padding).astype(array.dtype)
    result[tuple(slice(n) for n in array.shape)] = array
    return result
