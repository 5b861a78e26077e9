"""Lowers and compiles resolved calls, and serializes compiled programs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from operator import lt

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, padded_shape, replicated
from shardcall_server.compilation.analysis import collectives, overflowing_axis
from shardcall_server.compilation.intermediates import check_intermediates
from shardcall_server.compilation.resolve import Resolution
from shardcall_server.kernels.core.element_types import held_type
from shardcall_server.kernels.core.kernel import Problem
from shardcall_server.kernels.core.kernel import Program as KernelProgram

SMALL_BYTES = 64 << 10
"""The size of arrays up to which JAX's overhead takes longer than copying them."""

_LAPACK = b"lapack_"
"""The prefix of the names of LAPACK's routines in serialized programs."""

_CALLBACK = re.compile(r"@xla_\w*python\w*callback")
"""A call of Python in a lowered program."""


class BuildError(Exception):
    """The Python code of a kernel raised or broke its promise, as the cause says; not an error of the compiler."""


class CallsPythonError(Exception):
    """A program calls Python functions of this process, or JAX cannot serialize it, so no other process can run it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Returns True for an error of devices or a host that have run out of memory."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


@dataclass(frozen=True)
class Placement:
    """The placement of an array on the mesh.

    Attributes:
        padded: the shape on the devices; at least the caller's in every axis.
        sharding: the sharding of the padded shape.
    """

    padded: tuple[int, ...]
    sharding: Sharding


@dataclass(frozen=True)
class Program:
    """A compiled program and the placements of its operands and results.

    Attributes:
        resolved: the call that it serves.
        operands: placement of each operand; None for one left out.
        results: placement of each result, which is in the leading corner of the padded shape.
        compiled: the executable; takes the present operands in order and returns the results, and bool [checks] where
            the problem has checks. None where no result has an element, so there is nothing to compute.
        limit: placement of the maximum number of iterations of a launch, the last argument of a loop that runs in
            slices, which returns its progress last; None for any other program.
        fingerprint: SHA-256 of the lowered text, the same in every process of a mesh; the compiled text names the
            functions that this process has traced.
    """

    resolved: Resolution
    operands: tuple[Placement | None, ...]
    results: tuple[Placement, ...]
    compiled: jax.stages.Compiled | None
    fingerprint: bytes = b""
    limit: Placement | None = None

    @cached_property
    def inputs(self) -> tuple[tuple[ArrayType, Placement, np.dtype] | None, ...]:
        """The type, placement and element type on the devices of each operand; None for one left out."""
        return tuple(
            None if operand is None or placement is None else (operand, placement, held_type(operand.dtype))
            for operand, placement in zip(self.resolved.problem.operands, self.operands, strict=True)
        )

    @cached_property
    def is_on_one_device(self) -> bool:
        """True if the mesh of the program has one device."""
        return self.resolved.problem.mesh.device_count == 1

    @cached_property
    def has_single_blocks(self) -> bool:
        """True if every result is one block without padding."""
        results = zip(self.results, self.resolved.problem.results, strict=True)
        return self.is_on_one_device and all(placed.padded == result.shape for placed, result in results)

    @cached_property
    def result_bytes(self) -> int:
        """The bytes of the results."""
        return sum(result.nbytes for result in self.resolved.problem.results)

    @cached_property
    def is_small(self) -> bool:
        """True if the program runs on one device, on small arrays only."""
        arrays = (*self.resolved.problem.operands, *self.resolved.problem.results)
        return self.is_on_one_device and all(array is None or array.nbytes <= SMALL_BYTES for array in arrays)

    @cached_property
    def instruction_count(self) -> int:
        """The number of instructions of the compiled program, those in fusions and bodies of loops included."""
        return self.text.count(" = ")

    def check(self, arrays: Sequence[jax.Array]) -> None:
        """Waits for the flags of the checks; a process without devices of the program has no flags.

        Args:
            arrays: the results, and the flags if the program was launched and has checks.

        Raises:
            CallError: for the first check that refuses the call, with its reason.
        """
        for flags in arrays[len(self.results) :][: bool(self.resolved.problem.checks)]:
            for shard in flags.addressable_shards[:1]:
                for check, is_refused in zip(self.resolved.problem.checks, np.asarray(shard.data), strict=True):
                    if is_refused:
                        raise CallError(check.reason, check.message, field=check.operand)

    @property
    def text(self) -> str:
        """The compiled program as XLA prints it; empty where there is none."""
        return (self.compiled.as_text() or "") if self.compiled else ""


@dataclass(frozen=True)
class CompiledParts:
    """The result of a compilation, which makes a `Program` of the call, also in another process.

    Attributes:
        compiled: the compiled program; None where no result has an element, so there is nothing to compute.
        result_shapes: the shape of each result on the devices; empty where there is nothing to compute.
        fingerprint: as of `Program`.
        has_limit: whether the last argument is the maximum number of iterations of a launch.
        calls_python: whether the program calls Python functions of this process.
    """

    compiled: jax.stages.Compiled | None
    result_shapes: tuple[tuple[int, ...], ...] = ()
    fingerprint: bytes = b""
    has_limit: bool = False
    calls_python: bool = False

    def serialize(self) -> bytes:
        """Returns the parts for `deserialize`, which another process of this server calls.

        Raises:
            CallsPythonError: no other process can run the program.
        """
        if self.calls_python:
            raise CallsPythonError
        head = {"result_shapes": self.result_shapes, "fingerprint": self.fingerprint.hex(), "has_limit": self.has_limit}
        executable = b""
        if self.compiled is not None:
            try:
                executable, in_tree, out_tree = serialize_executable.serialize(self.compiled)
            except (NotImplementedError, ValueError) as error:  # such as for constants that are arguments (jax 0.10.1)
                raise CallsPythonError from error
            head |= {"arguments": in_tree.num_leaves, "outputs": out_tree.num_leaves}
        return b"\n".join((json.dumps(head).encode(), executable))

    @staticmethod
    def deserialize(data: bytes, device_ids: Sequence[int]) -> CompiledParts:
        """Returns the parts that a process of this server has serialized; never use other bytes.

        They contain machine code, and JAX's own format can run Python code, too, when it is read.

        Args:
            data: the serialized parts.
            device_ids: the devices of the program.
        """
        head, _, executable = data.partition(b"\n")
        parts = json.loads(head)
        compiled = None
        if executable:
            if _LAPACK in executable:
                _register_lapack()
            devices = [jax.devices()[i] for i in device_ids]
            in_tree = jax.tree.structure(((0,) * parts["arguments"], {}))
            out_tree = jax.tree.structure((0,) * parts["outputs"])
            compiled = serialize_executable.deserialize_and_load(
                executable, in_tree, out_tree, execution_devices=devices
            )
        shapes = tuple(map(tuple, parts["result_shapes"]))
        return CompiledParts(compiled, shapes, bytes.fromhex(parts["fingerprint"]), has_limit=parts["has_limit"])


def compile_program(resolved: Resolution, *, in_slices: bool = False) -> Program:
    """Traces, lowers and compiles a call. Takes 0.1 s to minutes; never inside a launch.

    Args:
        resolved: the call.
        in_slices: True to compile a loop to run in several launches.

    Raises:
        BuildError: the kernel could not be traced, or its results are not those that it promised.
        CallError: the compiled program would read elements at wrong offsets.
        Exception: an error of the compiler.
    """
    return assemble(resolved, compile_parts(resolved, in_slices=in_slices))


def assemble(resolved: Resolution, parts: CompiledParts) -> Program:
    """Returns the program of a call, with the placements of its operands and results."""
    problem = resolved.problem
    mesh = build_mesh(problem.mesh, resolved.device_ids)
    operands = _placements(problem, mesh)
    if parts.compiled is None:
        specs = (spec or replicated(r.ndim) for r, spec in zip(problem.results, problem.out_specs, strict=True))
        empty = tuple(
            Placement(padded_shape(result.shape, spec, problem.mesh), named_sharding(mesh, spec))
            for result, spec in zip(problem.results, specs, strict=True)
        )
        return Program(resolved, operands, empty, compiled=None)
    # The flags of the checks come after the results.
    results = tuple(map(Placement, parts.result_shapes, parts.compiled.output_shardings))
    limit = Placement((), named_sharding(mesh, ())) if parts.has_limit else None
    return Program(resolved, operands, results, parts.compiled, parts.fingerprint, limit)


def compile_parts(resolved: Resolution, *, in_slices: bool = False) -> CompiledParts:
    """Traces, lowers and compiles a call; arguments and errors are those of `compile_program`."""
    problem = resolved.problem
    mesh = build_mesh(problem.mesh, resolved.device_ids)
    if not any(result.nbytes for result in problem.results):
        # XLA:CPU iterates over the sizes other than 0, so its compilation of a shape such as (2**30, 0) does not end.
        return CompiledParts(None)
    arguments = [
        jax.ShapeDtypeStruct(placement.padded, held_type(operand.dtype), sharding=placement.sharding)
        for operand, placement in zip(problem.operands, _placements(problem, mesh), strict=True)
        if operand is not None and placement is not None
    ]
    try:
        slice_of_loop = resolved.kernel.build_slice(problem, mesh) if in_slices else None
        program = slice_of_loop or resolved.strategy.build(problem, mesh)
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        raise BuildError(str(error)) from error
    if slice_of_loop is not None:
        arguments.append(jax.ShapeDtypeStruct((), np.int64, sharding=named_sharding(mesh, ())))
    lowered = _lower(resolved, program, mesh, arguments)
    text = lowered.as_text()
    check_intermediates(resolved.kernel.name, text)
    compiled = lowered.compile()
    if any(array.size >= 2**31 for array in (*arguments, *lowered.out_info)):
        _check_offsets(resolved, compiled)
    if jax.distributed.is_initialized() and jax.default_backend() == "cpu":
        _check_collectives(resolved, compiled)
    shapes = tuple(tuple(info.shape) for info in islice(lowered.out_info, len(problem.results)))
    fingerprint = hashlib.sha256(text.encode()).digest()
    return CompiledParts(
        compiled, shapes, fingerprint, has_limit=slice_of_loop is not None, calls_python=bool(_CALLBACK.search(text))
    )


@cache
def _register_lapack() -> None:
    """Makes JAX register the routines of LAPACK with XLA, which it does when it lowers a call of one (jax 0.10.1).

    Without it, a loaded program that calls one ends the process.
    """
    jax.jit(jnp.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), np.float64))


def _placements(problem: Problem, mesh: jax.sharding.Mesh) -> tuple[Placement | None, ...]:
    return tuple(
        None
        if spec is None or operand is None
        else Placement(padded_shape(operand.shape, spec, problem.mesh), named_sharding(mesh, spec))
        for operand, spec in zip(problem.operands, problem.in_specs, strict=True)
    )


def _check_offsets(resolved: Resolution, compiled: jax.stages.Compiled) -> None:
    if (size := overflowing_axis(compiled.as_text() or "")) is not None:
        raise CallError(
            Reason.NOT_SUPPORTED,
            f"strategy {resolved.strategy.name!r} of {resolved.kernel.name} shards an axis of {size} elements, "
            f"and the compiler counts offsets in 32 bits; make the axis {2**31} elements or shorter, shard "
            "operands and result alike, or shard them along another axis",
        )


def _check_collectives(resolved: Resolution, compiled: jax.stages.Compiled) -> None:
    if any(use.operation == "reduce-scatter" for use in collectives(compiled.as_text() or "")):
        raise CallError(
            Reason.NOT_SUPPORTED,
            f"strategy {resolved.strategy.name!r} of {resolved.kernel.name} has a reduce-scatter, which returns wrong "
            "values between CPUs of several hosts (https://github.com/jax-ml/jax/issues/40830), and which the server "
            "could not replace; give another strategy",
        )


def _lower(
    resolved: Resolution, program: KernelProgram, mesh: jax.sharding.Mesh, arguments: Sequence[jax.ShapeDtypeStruct]
) -> jax.stages.Lowered:
    """Traces and lowers a kernel's program; an argument behind the operands is the limit of a loop's slice."""
    problem = resolved.problem
    has_limit = len(arguments) > sum(operand is not None for operand in problem.operands)
    try:
        out_shardings = [None if spec is None else named_sharding(mesh, spec) for spec in problem.out_specs]
        if problem.checks:
            out_shardings.append(named_sharding(mesh, replicated(1)))
        if has_limit:
            out_shardings.append(named_sharding(mesh, replicated(1)))
        on_held_types = _on_held_types(program, problem)
        # The program's name in profiles and compiled texts. It has registered names only.
        on_held_types.__name__ = f"{resolved.kernel.name}_{resolved.strategy.name}"
        lowered = jax.jit(on_held_types, out_shardings=tuple(out_shardings)).lower(*arguments)
        for result, info in zip(problem.results, lowered.out_info, strict=False):
            misfits = len(info.shape) != result.ndim or any(map(lt, info.shape, result.shape))
            if misfits or info.dtype != held_type(result.dtype):
                raise AssertionError(
                    f"{resolved.kernel.name}/{resolved.strategy.name} promised {result} and made "
                    f"{info.dtype}{list(info.shape)}"
                )
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        raise BuildError(str(error)) from error
    return lowered


def _on_held_types(program: KernelProgram, problem: Problem) -> Callable[..., tuple[jax.Array, ...]]:
    operands = [operand for operand in problem.operands if operand is not None]

    def on_held_types(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        limit = arrays[len(operands) :]
        returned = program(*(a.astype(o.dtype) for a, o in zip(arrays, operands, strict=False)), *limit)
        count = len(problem.results)
        returned, progress = returned[: len(returned) - len(limit)], returned[len(returned) - len(limit) :]
        results, flags = returned[:count], returned[count:]
        for result, promised in zip(results, problem.results, strict=True):
            if result.dtype != promised.dtype:
                raise AssertionError(f"a kernel promised {promised} and made {result.dtype.name}")
        if len(flags) != len(problem.checks) or any(flag.shape or flag.dtype != np.bool_ for flag in flags):
            raise AssertionError(f"a kernel promised {len(problem.checks)} flags, each a bool [], and made {flags}")
        return (*map(_hold, results), *([jnp.stack(flags)] if flags else []), *progress)

    return on_held_types


def build_mesh(axes: MeshAxes, device_ids: Sequence[int]) -> jax.sharding.Mesh:
    """Returns the mesh of the given devices, in their order."""
    existing = jax.devices()  # their own ids have gaps between processes
    devices = np.array([existing[i] for i in device_ids]).reshape([size for _, size in axes.axes])
    return jax.sharding.Mesh(devices, axes.names, axis_types=(jax.sharding.AxisType.Auto,) * devices.ndim)


def named_sharding(mesh: jax.sharding.Mesh, spec: Spec) -> NamedSharding:
    """Returns the sharding of a spec."""
    return NamedSharding(mesh, PartitionSpec(*(names or None for names in spec)))


def _hold(array: jax.Array) -> jax.Array:
    held = array.astype(held_type(array.dtype))
    # ml_dtypes leaves the upper half of an int4's byte 0, where a conversion extends the sign.
    return held & 0x0F if array.dtype == jnp.int4 else held
