"""The tests of `test_reproducibility.py` that take long."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from kernels.table_cases import MOVES, OTHERS
from kernels.test_reproducibility import KERNELS
from kernels.together import Call, run_together

from shardcall_core.call_error import CallError
from shardcall_core.element_types import NAMED
from shardcall_server.authoring.runner import kernel_case
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.kernels.core.reproducibility import Reproducibility, differing_bits
from shardcall_server.kernels.elementwise.elementwise import ElementwiseKernel

pytestmark = pytest.mark.long

PROMISING = {
    name: kernel for name, kernel in KERNELS.items() if kernel.reproducibility is not Reproducibility.NOT_PROMISED
}


MESHES = ({"x": 3}, {"x": 8}, {"x": 2, "y": 4})


TYPES = ("float32", "float64", "bfloat16", "complex64", "float16", "complex128", "int32", "uint8", "bool")


SHAPE = (131, 67)


SEED = np.int64(7)


class Draw:
    """Operands of a kernel."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def array(self, shape: tuple[int, ...], name: str) -> np.ndarray:
        dtype = NAMED[name]
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


def _row(draw: Draw, name: str) -> dict[str, tuple[tuple[np.ndarray | None, ...], dict[str, object]]]:
    """Operands and parameters of the kernels whose calls are not those of `table_cases` or of one array."""
    x = draw.array(SHAPE, name)
    scalar, columns, window = draw.array((), name), draw.array((67, 41), name), draw.array((5,), name)
    at = np.arange(40)[:, None] % 7, np.arange(30) % 11
    along, bounds = np.arange(-60, 60)[:, None] % np.arange(50, 117), (np.float64(-1.3), np.float64(2.7))
    exponents, sliced = np.arange(67) * 7 - 100, {"sizes": (100, 60), "steps": (1, 1)}
    nodes = '["negative",[-1]],["multiply",[-1,0]],["roll",[1],{"axis":0,"shift":5}],["subtract",[-1,2]]'
    drawn: dict[str, object] = {"shape": (4097,), "dtype": name}
    return {
        "diff": ((x, scalar, x[:2]), {"axis": 0}),
        "graph": ((x,), {"graph": f'{{"nodes":[{nodes}],"results":[3]}}'}),
        "gradient": ((x, np.float64(0.3)), {"axis": 0}),
        "shift": ((x,), {"axis": 0, "shift": 5}),
        "roll": ((x,), {"axis": 0, "shift": 5}),
        "laplacian": ((x,), {}),
        "uniform": ((SEED, *bounds), drawn),
        "normal": ((SEED, *bounds), drawn),
        "randint": ((SEED, np.int64(3), np.int64(100)), drawn),
        "permutation": ((SEED, x), {}),
        "convolve": ((x, window), {"axis": 0}),
        "matmul": ((x, columns), {}),
        "collective_matmul": ((x, columns), {"axis_name": "x"}),
        "einsum": ((x, columns), {"subscripts": "ij,jk->ki"}),
        "getitem": ((x, np.array([3, 2])), sliced),
        "setitem": ((x, x[:100, :60], np.array([3, 2])), sliced),
        "take_at": ((x, *at), {"axes": (0, 1)}),
        "put_at": ((x, scalar, *at), {"axes": (0, 1)}),
        "flatnonzero": ((x,), {"size": 1000}),
        "lexsort": ((x,), {"axis": 0}),
        "take": ((x, along), {"axis": 0}),
        "take_along_axis": ((x, along), {"axis": 0}),
        "put_along_axis": ((x, x[:120], along), {"axis": 0}),
        "searchsorted": ((np.sort(x[0]), x), {}),
        "bincount": ((x[0] & 7 if x.dtype.kind in "iu" else x[0],), {"length": 8}),
        "astype": ((x,), {"dtype": "float32"}),
        "arange": ((*x[:2, 0],), {"size": 4097}),
        "linspace": ((*x[:3, 0],), {"size": 4097}),
        "nextafter": ((x, x[::-1]), {}),
        "complex": ((x, x[::-1]), {}),
        "ldexp": ((x, exponents), {}),
        "frexp": ((x,), {}),
        "eye": ((np.int64(3),), {"shape": SHAPE, "dtype": name}),
        "full": ((x[0, 0],), {"shape": SHAPE}),
        "full_like": ((x, x[0, 0]), {}),
    }


def calls_of(kernel: Kernel, name: str) -> Iterator[tuple[tuple[np.ndarray | None, ...], dict[str, object]]]:
    """The operands and parameters of some calls that compute in an element type."""
    draw, table = Draw(sum(kernel.name.encode())), {**MOVES, **OTHERS}
    if isinstance(kernel, ElementwiseKernel):
        yield tuple(draw.array((4097,), name) for _ in kernel.operands), {}
    elif kernel.name in table:
        shapes, parameters = table[kernel.name][0]
        yield tuple(None if shape is None else draw.array(shape, name) for shape in shapes), parameters
    elif kernel.name in (calls := _row(draw, name)):
        yield calls[kernel.name]
    else:  # one array
        has_axis = any(info.name == "axis" for info in kernel.parameters)
        yield (draw.array(SHAPE, name),), {"axis": 0} if has_axis else {}
    if kernel.name == "diff":
        yield (draw.array(SHAPE, name), None, None), {"axis": 0, "n": 2}
    if kernel.name == "laplacian":
        yield (draw.array(SHAPE, name), np.float64(0.3), np.float64(0.7)), {"boundary": "edge"}


def promised(kernel: Kernel, name: str) -> Iterator[Call]:
    """The calls of an element type whose bits are promised, on one device."""
    for operands, parameters in calls_of(kernel, name):
        case = kernel_case(kernel, *operands, mesh={"x": 1}, parameters=parameters)
        try:
            problem = case.resolve().problem
        except CallError:  # not of this element type
            continue
        if kernel.is_reproducible(problem):
            yield case, [None if operand is None else np.asarray(operand) for operand in operands]


def check_bits(cases: Sequence[Call], meshes: Sequence[dict[str, int]]) -> None:
    """Compares the bits of calls on other meshes with those on one device."""
    expected = run_together(cases)
    for mesh in meshes:
        results = run_together([(replace(case, mesh=tuple(mesh.items())), operands) for case, operands in cases])
        wrong = {
            f"{case.kernel.name} of {operands[-1] if operands[-1] is None else operands[-1].dtype}": count
            for (case, operands), results_of_case, of_one in zip(cases, results, expected, strict=True)
            if (count := sum(map(differing_bits, results_of_case, of_one)))
        }
        assert not wrong, f"on mesh {mesh} other bits than on one device: {wrong}"


def test_calls_show_every_promise():
    for kernel in PROMISING.values():
        assert kernel.name == "graph" or any(next(promised(kernel, name), None) for name in TYPES), kernel.name


@pytest.mark.parametrize("name", TYPES)
def test_promised_bits_are_the_same_on_every_mesh(pytestconfig, name):
    """Every call on one mesh, with --every-case on all; a call is on another mesh for the next element type."""
    cases = [case for kernel in PROMISING.values() for case in promised(kernel, name)]
    for i, mesh in enumerate(MESHES):
        first = (i + TYPES.index(name)) % len(MESHES)
        check_bits(cases if pytestconfig.getoption("every_case") else cases[first :: len(MESHES)], [mesh])
