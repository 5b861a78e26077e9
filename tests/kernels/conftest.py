"""Runs kernels as the worker does, without a worker: resolve, compile, place, run, gather, on 8 CPU devices.

With ``--hosts N`` the calls go to a server instead whose mesh of 8 devices is made of N hosts; inspection of
calls without running them, and kernels of the tests' own, stay in this process.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernels.together import Call, run_together
from kernels.wire_calls import WireCalls, wire_calls

from shardcall_core.call_error import CallError
from shardcall_core.element_types import NAMED
from shardcall_core.functions.signature import ParameterValue
from shardcall_core.layouts.layout import ArrayType, Spec
from shardcall_server.authoring.runner import KernelCase, Runner, kernel_case, use_virtual_devices
from shardcall_server.compilation.program import Program
from shardcall_server.compilation.resolve import Resolution
from shardcall_server.kernels.array_functions import function_kernel
from shardcall_server.kernels.core import kernel as kernel_interface
from shardcall_server.kernels.core.call_checks import AUTO
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.kernels.library import kernels

use_virtual_devices()

KERNELS: Mapping[str, Kernel] = {kernel.name: kernel for kernel in kernels()}
"""By name."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The kernels' tables on a mesh of several hosts: ``pytest tests/kernels --hosts 2``."""
    parser.addoption("--hosts", type=int, default=0, choices=(0, 1, 2, 4, 8), help="hosts that tests/kernels run on")
    parser.addoption("--hosts-apart", action="store_true", help="small meshes take devices of all hosts")
    parser.addoption("--hosts-relayed", action="store_true", help="hosts share no memory with the server")


Entries = Sequence[str | tuple[str, ...] | None]
"""A spec as a user writes it, without the P: ``("x", None)``, ``(("a", "b"), None)``."""


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    """Checks that shape, type and values are equal; all NaN count as equal."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    with np.errstate(invalid="ignore"):
        differ = (actual != expected) & ~((actual != actual) & (expected != expected))  # noqa: PLR0124
    where = np.argwhere(differ)[:1].tolist()
    assert not differ.any(), f"{int(differ.sum())} of {differ.size} differ, first at {where}"


def assert_same_bits(actual: np.ndarray, expected: np.ndarray, *, any_nan: bool = False) -> None:
    """Checks that shape, type and bits are equal.

    Args:
        actual: a result.
        expected: what it shall be.
        any_nan: True if all NaN of bfloat16 count as equal: XLA:CPU converts blocks that are padded to float32.
    """
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    bits = [np.ascontiguousarray(array).view(np.uint8) for array in (actual, expected)]
    if any_nan and actual.dtype.name == "bfloat16":
        halves = [part.view(np.uint16) for part in bits]
        bits = [np.where(part & 0x7FFF > 0x7F80, 0x7FFF, part) for part in halves]
    assert bits[0].tobytes() == bits[1].tobytes()


class Kernels:
    """Runs kernels, compiling each call once; specs are written as a user writes them.

    Args:
        wire: runs calls of the library's kernels on a server; None to run them in this process.
    """

    def __init__(self, wire: WireCalls | None = None) -> None:
        self.runner = Runner()
        self._wire = wire

    @property
    def programs(self) -> dict[KernelCase, Program]:
        """The programs compiled so far."""
        return self.runner.programs

    @property
    def is_local(self) -> bool:
        """True if all calls run in this process, so that `programs` has their programs."""
        return self._wire is None

    def resolve(self, kernel: Kernel, *operands: ArrayType | np.ndarray | None, **how: object) -> Resolution:
        """The call with its defaults filled in."""
        return _call(kernel, *operands, **how).resolve()

    def program(self, kernel: Kernel, *operands: ArrayType | np.ndarray | None, **how: object) -> Program:
        """The compiled program."""
        return self.runner.program(_call(kernel, *operands, **how))

    def kernel_case(self, kernel: Kernel, *operands: ArrayType | np.ndarray | None, **how: object) -> KernelCase:
        """The call, for the runner of this process."""
        return _call(kernel, *operands, **how)

    def __call__(
        self, kernel: Kernel, *operands: np.ndarray | None, padding: float = 0, **how: object
    ) -> np.ndarray | tuple[np.ndarray, ...]:
        """The result of the kernel; a tuple if it has several.

        ``padding`` is what the operands' padding holds if the call runs in this process; a server has no such option.
        """
        case = _call(kernel, *operands, **how)
        if self._wire is not None and self._wire.knows(kernel):
            results = self._wire.run(case, operands)
        else:
            results = self.runner.run(case, operands, padding)
        return results[0] if len(results) == 1 else results

    def call(self, kernel: Kernel, *operands: np.ndarray | None, **how: object) -> Call:
        """A call for `together`; arguments are those of a call."""
        operands = tuple(None if operand is None else np.asarray(operand) for operand in operands)
        return _call(kernel, *operands, **how), operands

    def together(self, calls: Iterable[Call], padding: float = 0) -> list[np.ndarray | tuple[np.ndarray, ...]]:
        """The results of several calls; those of one mesh are compiled as few programs."""
        if self._wire is None:
            results = run_together([*calls], padding)
        else:
            results = [self._wire.run(case, operands) for case, operands in calls]
        return [arrays[0] if len(arrays) == 1 else arrays for arrays in results]

    def check_together(
        self, cases: Iterable[tuple[Call, Any]], compare: Callable[[Any, Any], None] = assert_same, padding: float = 0
    ) -> None:
        """Compares the results of several calls; those of one mesh are compiled together.

        Args:
            cases: calls and what they shall return.
            compare: compares results with those; the default for equality.
            padding: what the operands' padding holds.
        """
        cases = [*cases]
        for (call, expected), actual in zip(cases, self.together([call for call, _ in cases], padding), strict=True):
            try:
                compare(actual, expected)
            except AssertionError as error:
                case = call[0]
                what = case.operands, case.mesh, case.in_specs, case.out_specs, case.strategy, case.parameters
                error.add_note(f"{case.kernel.name} of {what}")
                raise


def _call(
    kernel: Kernel,
    *operands: ArrayType | np.ndarray | None,
    mesh: Mapping[str, int] = {"x": 1},
    in_specs: Sequence[Entries | None] = (),
    out_specs: Sequence[Entries | None] = (),
    strategy: str = AUTO,
    **parameters: ParameterValue,
) -> KernelCase:
    ins, outs = (tuple(None if s is None else _spec(s) for s in specs) for specs in (in_specs, out_specs))
    return kernel_case(
        kernel, *operands, mesh=mesh, in_specs=ins, out_specs=outs, strategy=strategy, parameters=parameters
    )


def _spec(entries: Entries) -> Spec:
    return tuple(() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in entries)


@pytest.fixture(scope="session", autouse=True)
def strategies_of_large_arrays() -> Iterator[pytest.MonkeyPatch]:
    """Has `auto` select for the tests' arrays, which are small, the strategies of large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_interface, "SMALL", -1)
        patch.setattr(function_kernel, "_MOVED_BYTES", -1)
        yield patch


@pytest.fixture(scope="session")
def run(request: pytest.FixtureRequest) -> Iterator[Kernels]:
    option = request.config.getoption
    hosts = option("--hosts", 0)  # unknown if the tests were not selected by their folder
    if not hosts:
        yield Kernels()
        return
    agent_options = ["--no-shared-memory"] if option("--hosts-relayed") else []
    with wire_calls(hosts, *agent_options, apart=option("--hosts-apart")) as wire:
        yield Kernels(wire)


ELEMENT_TYPES = [*NAMED.values()]
"""Every element type of the contract."""
SOME_TYPES = [NAMED[name] for name in ("int4", "bfloat16", "complex64")]
"""An integer, a float and a complex type, for short files."""
LAYOUTS = [({"x": 8}, ("x", None, None)), ({"x": 3}, (None, "x", None)), ({"a": 2, "b": 2}, ("b", None, "a"))]
"""Meshes, and specs of an array of three axes."""
COLLECTIVE = re.compile("all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter")
"""The instructions by which the devices of a program exchange data."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes ``dtype`` and names no types runs, in a long file, for every one; in a short one for some."""
    marks = metafunc.definition.iter_markers("parametrize")
    if "dtype" in metafunc.fixturenames and not any("dtype" in mark.args[0] for mark in marks):
        types = ELEMENT_TYPES if metafunc.definition.get_closest_marker("long") else SOME_TYPES
        metafunc.parametrize("dtype", types, ids=str)


@pytest.fixture(scope="session")
def element_types() -> list[np.dtype]:
    """Every element type of the contract."""
    return ELEMENT_TYPES


def with_cases(test: Callable[..., None], parameters: Mapping[str, Iterable[Any]]) -> Callable[..., None]:
    """A test of a short file, for the product of other values of its parameters; a long file has it by the same name.

    Args:
        test: the test.
        parameters: the values by the name, or names with commas between them, of what they are values of.
    """

    @functools.wraps(test)
    def repeated(**fixtures: Any) -> None:
        test(**fixtures)

    repeated.pytestmark = [  # type: ignore[attr-defined]
        pytest.mark.parametrize(names, [*values], ids=_id).mark for names, values in parameters.items()
    ]
    return repeated


def _id(value: object) -> str | None:
    return str(value) if isinstance(value, np.dtype | Mapping) else None


class Values:
    """Arrays of random values."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def any(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """All bit patterns, except subnormals with eight or more exponent bits, which XLA:CPU treats as zero."""
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

    def subnormal(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Values of both signs whose magnitudes have only a few significant bits."""
        min_subnormal = float(ml_dtypes.finfo(dtype).smallest_subnormal)  # type: ignore[no-untyped-call]
        return (self.random.integers(-7, 8, shape) * np.float64(min_subnormal)).astype(dtype)

    def zeros_and_subnormals(self, shape: tuple[int, ...], name: str) -> np.ndarray:
        """Zeros of both signs and subnormals, in each part of a complex type."""
        dtype = NAMED[name]
        array = np.empty(shape, dtype)
        parts = array.view(array.real.dtype) if dtype.kind == "c" else array
        some = self.subnormal(parts.shape, parts.dtype)
        parts[...] = np.where(self.random.integers(0, 2, parts.shape) > 0, some, -np.zeros_like(some))
        return array

    def small(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Integers from -4 to 4, or from 0 for unsigned types: products and their sums are exact in most types."""
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


@pytest.fixture(scope="session")
def same():
    return assert_same


@pytest.fixture(scope="session")
def same_bits():
    return assert_same_bits


@pytest.fixture
def refused(run: Kernels):
    """Resolves a call that must be refused, and returns the error."""

    def refuse(kernel: Kernel, *operands: ArrayType | None, **how: object) -> CallError:
        with pytest.raises(CallError) as raised:
            run.resolve(kernel, *operands, **how)
        assert len(raised.value.message) < 1024
        return raised.value

    return refuse
