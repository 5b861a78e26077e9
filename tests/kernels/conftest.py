"""Runs kernels as the worker does, without a worker: resolve, compile, place, run, gather, on 8 CPU devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import jax
import ml_dtypes
import numpy as np
import pytest

from shardcall_server.compilation.program import Program, compile_program
from shardcall_server.compilation.resolve import AUTO, Request, Resolved, resolve
from shardcall_server.errors import CallError
from shardcall_server.kernels.kernel import Kernel, ParameterValue
from shardcall_server.kernels.layout import ArrayType, MeshAxes, Spec
from shardcall_server.mesh.placement import Copier, gather, place

DEVICES = 8
COPIER = Copier()
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", DEVICES)
jax.config.update("jax_enable_x64", True)

Entries = Sequence[str | tuple[str, ...] | None]
"""A spec as a user writes it, without the P: ``("x", None)``, ``(("a", "b"), None)``."""


@dataclass(frozen=True)
class Call:
    """A call but for its values; equal calls share a compiled program."""

    kernel: Kernel
    operands: tuple[ArrayType | None, ...]
    mesh: tuple[tuple[str, int], ...]
    in_specs: tuple[Spec | None, ...]
    out_specs: tuple[Spec | None, ...]
    strategy: str
    parameters: tuple[tuple[str, ParameterValue], ...]


@dataclass
class Runner:
    """Runs kernels, compiling each call once."""

    programs: dict[Call, Program] = field(default_factory=dict)

    def resolve(
        self,
        kernel: Kernel,
        *operands: ArrayType | np.ndarray | None,
        mesh: Mapping[str, int] = {"x": 1},
        in_specs: Sequence[Entries | None] = (),
        out_specs: Sequence[Entries | None] = (),
        strategy: str = AUTO,
        **parameters: ParameterValue,
    ) -> Resolved:
        """The call with all that was left open filled in."""
        call = _call(kernel, operands, mesh, in_specs, out_specs, strategy, parameters)
        return _resolve(call)

    def program(self, kernel: Kernel, *operands: ArrayType | np.ndarray | None, **how: object) -> Program:
        """The compiled program; takes what `resolve` takes."""
        how = {"mesh": {"x": 1}, "in_specs": (), "out_specs": (), "strategy": AUTO} | how
        fixed = [how.pop(name) for name in ("mesh", "in_specs", "out_specs", "strategy")]
        call = _call(kernel, operands, *fixed, how)
        if call not in self.programs:
            self.programs[call] = compile_program(_resolve(call))
        return self.programs[call]

    def __call__(
        self, kernel: Kernel, *operands: np.ndarray | None, padding: float = 0, **how: object
    ) -> np.ndarray | tuple[np.ndarray, ...]:
        """The kernel's result, all of them where it has several; ``padding`` is what the operands' padding holds."""
        program = self.program(kernel, *operands, **how)
        arrays = [
            place(_padded(operand, placement.padded, padding), placement, COPIER, may_alias=True)
            for operand, placement in zip(operands, program.operands, strict=False)
            if operand is not None
        ]
        results = tuple(np.zeros(kind.shape, kind.dtype) for kind in program.resolved.problem.results)
        if program.compiled:
            for made, result in zip(program.compiled(*arrays), results, strict=True):
                gather(made, result, COPIER, lambda nbytes: None)
        return results[0] if len(results) == 1 else results


def _call(kernel, operands, mesh, in_specs, out_specs, strategy, parameters) -> Call:
    types = tuple(ArrayType(o.shape, o.dtype) if isinstance(o, (np.ndarray, np.generic)) else o for o in operands)
    specs = [tuple(None if s is None else _spec(s) for s in given) for given in (in_specs, out_specs)]
    return Call(kernel, types, tuple(mesh.items()), *specs, strategy, tuple(sorted(parameters.items())))


def _resolve(call: Call) -> Resolved:
    request = Request(
        parameters=dict(call.parameters),
        operands=call.operands,
        mesh=MeshAxes(call.mesh),
        device_ids=(),
        in_specs=call.in_specs,
        out_specs=call.out_specs,
        strategy=call.strategy,
    )
    return resolve(call.kernel, request, range(DEVICES))


def _spec(entries: Entries) -> Spec:
    return tuple(() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in entries)


def _padded(array: np.ndarray, shape: tuple[int, ...], padding: float) -> np.ndarray:
    array = np.asarray(array)
    with np.errstate(invalid="ignore"):  # NaN as an integer is some integer
        result = np.full(shape, padding).astype(array.dtype)
    result[tuple(slice(n) for n in array.shape)] = array
    return result


@pytest.fixture(scope="session")
def run() -> Runner:
    return Runner()


ELEMENT_TYPES = [
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *(ml_dtypes.int4, ml_dtypes.uint4, "float16", ml_dtypes.bfloat16, "float32", "float64"),
        *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, "complex64", "complex128"),
    )
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes ``dtype`` runs for every element type of the contract."""
    if "dtype" in metafunc.fixturenames:
        metafunc.parametrize("dtype", ELEMENT_TYPES, ids=str)


@pytest.fixture(scope="session")
def element_types() -> list[np.dtype]:
    """Every element type of the contract."""
    return ELEMENT_TYPES


class Values:
    """Arrays of random values."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def any(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Of all bit patterns, but for subnormals of eight and more exponent bits: XLA:CPU takes them for zero."""
        if dtype == np.bool_:
            return self.small(shape, dtype)
        if dtype.name in ("int4", "uint4"):
            return self.random.integers(0, 16, shape).astype(dtype)
        raw = np.frombuffer(self.random.bytes(int(np.prod(shape)) * dtype.itemsize), np.uint8)
        array = raw.view(dtype).reshape(shape).copy()
        parts = array.view(array.real.dtype) if dtype.kind == "c" else array
        if parts.dtype.name in ("float32", "float64", "bfloat16"):
            # Differences of values this small may be subnormal too.
            with np.errstate(invalid="ignore"):
                parts[np.abs(parts) < 1e-30] = 0
        return array

    def small(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Integers from -4 to 4, from 0 for the unsigned: products and their sums are exact in most types."""
        if dtype == np.bool_:
            return self.random.integers(0, 2, shape).astype(bool)
        low = 0 if dtype.name.startswith("uint") else -4
        array = self.random.integers(low, 5, shape)
        return (array + 1j * self.random.integers(low, 5, shape) if dtype.kind == "c" else array).astype(dtype)

    def normal(self, shape: tuple[int, ...], dtype: np.dtype | type = np.float32) -> np.ndarray:
        """Normal values."""
        return self.random.normal(size=shape).astype(dtype)


@pytest.fixture
def values(request: pytest.FixtureRequest) -> Values:
    """Random values, the same for a test in every run."""
    return Values(sum(request.node.name.encode()))


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    """Same shape, same type, same values; any NaN is a NaN."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    with np.errstate(invalid="ignore"):
        differ = (actual != expected) & ~((actual != actual) & (expected != expected))  # noqa: PLR0124
    where = np.argwhere(differ)[:1].tolist()
    assert not differ.any(), f"{int(differ.sum())} of {differ.size} differ, first at {where}"


@pytest.fixture(scope="session")
def same():
    return assert_same


@pytest.fixture
def refused(run: Runner):
    """Resolves a call that must be refused, and returns the error."""

    def refuse(kernel: Kernel, *operands: ArrayType | None, **how: object) -> CallError:
        with pytest.raises(CallError) as raised:
            run.resolve(kernel, *operands, **how)
        assert len(raised.value.message) < 1024
        return raised.value

    return refuse
