"""The tests of `test_reproducibility.py` that take long."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import jax
import ml_dtypes
import numpy as np
import pytest
from kernels.table_cases import MOVES, OTHERS
from kernels.test_reproducibility import KERNELS

from shardcall_core.call_error import CallError
from shardcall_core.layouts.layout import padded_shape
from shardcall_server.authoring.runner import KernelCase, kernel_case
from shardcall_server.compilation.program import Placement, build_mesh, named_sharding
from shardcall_server.kernels.array_functions.function_kernel import TableKernel
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.kernels.core.reproducibility import Reproducibility, differing_bits
from shardcall_server.kernels.elementwise.elementwise import ElementwiseKernel
from shardcall_server.mesh.placement import ParallelCopier, gather, put_padded

pytestmark = pytest.mark.long

PROMISING = {
    name: kernel for name, kernel in KERNELS.items() if kernel.reproducibility is not Reproducibility.NOT_PROMISED
}


MESHES = ({"x": 3}, {"x": 8}, {"x": 2, "y": 4})


TYPES = ("float32", "float64", "bfloat16", "complex64", "float16", "complex128", "int32", "uint8", "bool")


EXACT = {
    *("any", "all", "argmax", "argmin", "max", "min", "reshard", "copy", "transpose", "shift", "roll", "graph"),
    *("uniform", "randint", "permutation", "absolute", "abs", "negative", "positive", "conjugate", "real", "imag"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "maximum", "minimum", "fmax", "fmin"),
    *("logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf", "isfinite", "signbit", "copysign"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift", "gcd", "lcm"),
    *("floor", "ceil", "trunc", "rint", "sign", "where", "clip", "divide", "mod", "arange", "linspace"),
}
"""Kernels that round nothing or have another name too, and draws: their own tests and tests/accuracy compare results
with those of NumPy or JAX exactly, as the tests of the table's rows do."""


ROUNDED_ROWS = {"cumprod", "bincount", "trace", "astype"}


SHAPE = (131, 67)


SEED = np.int64(7)


MAX_CALLS = 20  # in a program; one of 145 calls takes three times as long to compile as eight of 20


class Draw:
    """Operands of a kernel."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def array(self, shape: tuple[int, ...], name: str) -> np.ndarray:
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        if dtype.kind == "b":
            return self._random.integers(0, 2, shape).astype(bool)
        if dtype.kind in "iu":
            return np.frombuffer(self._random.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape).copy()
        if dtype.kind == "c":
            return (self.array(shape, "float64") + 1j * self.array(shape, "float64")).astype(dtype)
        # From 1e-6 to 1e6, and as many between -3 and 3.
        size = np.exp(self._random.normal(size=shape) * 4 * self._random.integers(0, 2, shape))
        with np.errstate(over="ignore"):
            return (self._random.normal(size=shape) * size).astype(dtype)

    def of(  # noqa: PLR0912
        self, kernel: Kernel, name: str
    ) -> Iterator[tuple[tuple[np.ndarray | None, ...], dict[str, object]]]:
        """The operands and parameters of some calls that compute in an element type."""
        x = self.array(SHAPE, name)
        if isinstance(kernel, ElementwiseKernel):
            yield tuple(self.array((4097,), name) for _ in kernel.operands), {}
        elif kernel.name == "diff":
            yield (x, None, None), {"axis": 0, "n": 2}
            yield (x, self.array((), name), x[:2]), {"axis": 0}
        elif kernel.name == "graph":
            nodes = '["negative",[-1]],["multiply",[-1,0]],["roll",[1],{"axis":0,"shift":5}],["subtract",[-1,2]]'
            yield (x,), {"graph": f'{{"nodes":[{nodes}],"results":[3]}}'}
        elif kernel.name == "gradient":
            yield (x, np.float64(0.3)), {"axis": 0}
        elif kernel.name in ("shift", "roll"):
            yield (x,), {"axis": 0, "shift": 5}
        elif kernel.name == "laplacian":
            yield (x,), {}
            yield (x, np.float64(0.3), np.float64(0.7)), {"boundary": "edge"}
        elif kernel.name in ("uniform", "normal"):
            yield (SEED, np.float64(-1.3), np.float64(2.7)), {"shape": (4097,), "dtype": name}
        elif kernel.name == "randint":
            yield (SEED, np.int64(3), np.int64(100)), {"shape": (4097,), "dtype": name}
        elif kernel.name == "permutation":
            yield (SEED, x), {}
        elif kernel.name == "convolve":
            yield (x, self.array((5,), name)), {"axis": 0}
        elif kernel.name in ("matmul", "collective_matmul"):
            yield (x, self.array((67, 41), name)), {"axis_name": "x"} if "collective" in kernel.name else {}
        elif kernel.name == "einsum":
            yield (x, self.array((67, 41), name)), {"subscripts": "ij,jk->ki"}
        elif isinstance(kernel, TableKernel):
            yield self.of_row(kernel, name)
        else:  # one array
            yield (x,), {"axis": 0} if any(info.name == "axis" for info in kernel.parameters) else {}

    def of_row(self, kernel: TableKernel, name: str) -> tuple[tuple[np.ndarray | None, ...], dict[str, object]]:
        """The operands and parameters of a call of a row of the table."""
        x = self.array(SHAPE, name)
        if kernel.name == "getitem":
            return (x, np.array([3, 2])), {"sizes": (100, 60), "steps": (1, 1)}
        if kernel.name == "setitem":
            return (x, x[:100, :60], np.array([3, 2])), {"sizes": (100, 60), "steps": (1, 1)}
        if kernel.name in ("take_at", "put_at", "flatnonzero"):
            indices = np.arange(40)[:, None] % 7, np.arange(30) % 11
            values = (self.array((), name),) if kernel.name == "put_at" else ()
            return (
                ((x,), {"size": 1000}) if kernel.name == "flatnonzero" else ((x, *values, *indices), {"axes": (0, 1)})
            )
        if kernel.name in ("sort", "argsort", "lexsort", "cumprod"):
            return (x,), {"axis": 0}
        if kernel.name.startswith("take") or kernel.name == "put_along_axis":
            values = (x[:120],) if kernel.name == "put_along_axis" else ()
            return (x, *values, np.arange(-60, 60)[:, None] % np.arange(50, 117)), {"axis": 0}
        if kernel.name == "searchsorted":
            return (np.sort(self.array((67,), name)), x), {}
        if kernel.name == "bincount":
            return (x[0] & 7 if x.dtype.kind in "iu" else x[0],), {"length": 8}
        if kernel.name == "astype":
            return (x,), {"dtype": "float32"}
        if kernel.name in ("arange", "linspace"):
            return tuple(x[: len(kernel.operands), 0]), {"size": 4097}
        if kernel.name in ("nextafter", "complex", "ldexp", "frexp"):
            others = x[::-1] if kernel.name in ("nextafter", "complex") else np.arange(x.shape[1]) * 7 - 100
            return (x, others)[: len(kernel.operands)], {}
        if kernel.name == "eye":
            return (np.int64(3),), {"shape": SHAPE, "dtype": name}
        if kernel.name.startswith("full"):
            return (x[0, 0],) if kernel.name == "full" else (x, x[0, 0]), {
                "shape": SHAPE
            } if kernel.name == "full" else {}
        shapes, parameters = {**MOVES, **OTHERS}[kernel.name][0]
        return tuple(None if shape is None else self.array(shape, name) for shape in shapes), parameters


def promised(kernel: Kernel, name: str) -> Iterator[tuple[KernelCase, tuple[np.ndarray | None, ...]]]:
    """The calls of an element type whose bits are promised, on one device."""
    for operands, parameters in Draw(sum(kernel.name.encode())).of(kernel, name):
        case = kernel_case(kernel, *operands, mesh={"x": 1}, parameters=parameters)
        try:
            problem = case.resolve().problem
        except CallError:  # not of this element type
            continue
        if kernel.is_reproducible(problem):
            yield case, operands


def run_together(
    calls: Sequence[KernelCase], operands: Sequence[Sequence[np.ndarray | None]]
) -> list[list[np.ndarray]]:
    """The results of calls on one mesh, compiled as one program, since separate programs take several times as long."""
    resolved, copier = [case.resolve() for case in calls], ParallelCopier()
    mesh = build_mesh(resolved[0].problem.mesh, resolved[0].device_ids)
    bodies = [item.strategy.build(item.problem, mesh) for item in resolved]
    placed = []
    for item, arrays in zip(resolved, operands, strict=True):
        problem = item.problem
        for array, spec in zip(arrays, problem.in_specs, strict=False):  # those at the end may be left out
            if array is not None and spec is not None:
                placement = Placement(padded_shape(array.shape, spec, problem.mesh), named_sharding(mesh, spec))
                placed.append(put_padded(np.asarray(array), placement, copier, may_alias=True))

    def together(*arrays: jax.Array) -> list[tuple[jax.Array, ...]]:
        left = iter(arrays)
        computed = [
            body(*[next(left) for array in arrays if array is not None])
            for body, arrays in zip(bodies, operands, strict=True)
        ]
        return [results[: len(item.problem.results)] for results, item in zip(computed, resolved, strict=True)]

    shardings = [
        tuple(None if spec is None else named_sharding(mesh, spec) for spec in item.problem.out_specs)
        for item in resolved
    ]
    everything = jax.jit(together, out_shardings=shardings)(*placed)
    gathered = [[np.zeros(result.shape, result.dtype) for result in item.problem.results] for item in resolved]
    for computed, results in zip(everything, gathered, strict=True):
        for array, result in zip(computed, results, strict=True):
            gather(array, result, copier, lambda _: None)
    return gathered


def check_bits(
    cases: Sequence[tuple[KernelCase, Sequence[np.ndarray | None]]], meshes: Sequence[dict[str, int]]
) -> None:
    for i in range(0, len(cases), MAX_CALLS):
        check_bits_of_some(cases[i : i + MAX_CALLS], meshes)


def check_bits_of_some(
    cases: Sequence[tuple[KernelCase, Sequence[np.ndarray | None]]], meshes: Sequence[dict[str, int]]
) -> None:
    calls, operands = [case for case, _ in cases], [arrays for _, arrays in cases]
    expected = run_together(calls, operands)
    for mesh in meshes:
        results = run_together([replace(case, mesh=tuple(mesh.items())) for case in calls], operands)
        wrong = {
            f"{case.kernel.name} of {arrays[-1] if arrays[-1] is None else arrays[-1].dtype}": count
            for case, arrays, results_of_case, of_one in zip(calls, operands, results, expected, strict=True)
            if (count := sum(map(differing_bits, results_of_case, of_one)))
        }
        assert not wrong, f"on mesh {mesh} other bits than on one device: {wrong}"


def rounds(kernel: Kernel) -> bool:
    return kernel.name in ROUNDED_ROWS if isinstance(kernel, TableKernel) else kernel.name not in EXACT


def test_promised_bits_of_what_rounds_are_the_same_on_one_device_and_on_three():
    cases = []
    for i, kernel in enumerate(filter(rounds, PROMISING.values())):
        turned = [*TYPES[i % len(TYPES) :], *TYPES[: i % len(TYPES)]]  # kernels alternate between the types
        of_types = (list(promised(kernel, name)) for name in turned)
        matches = next(filter(None, of_types), [])
        assert matches, f"{kernel.name} promises something and none of these calls shows it"
        cases.append(matches[0])
    check_bits(cases, MESHES[:1])


@pytest.mark.parametrize("name", TYPES)
def test_promised_bits_are_the_same_on_every_mesh(pytestconfig, name):
    """Every call on one mesh, with --every-case on all; a call is on another mesh for the next element type."""
    cases = [case for kernel in PROMISING.values() for case in promised(kernel, name)]
    for i, mesh in enumerate(MESHES):
        first = (i + TYPES.index(name)) % len(MESHES)
        check_bits(cases if pytestconfig.getoption("every_case") else cases[first :: len(MESHES)], [mesh])
