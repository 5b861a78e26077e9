"""Whatever NumPy makes an array of is put on the mesh and comes back, bit for bit."""

import array as standard_library
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardcall as sc
from shardcall_core.types.element_types import DTYPES

KIB, MIB = 1 << 10, 1 << 20
ELEMENT_TYPES = list(DTYPES.values())
MESHES = [sc.Mesh(x=1), sc.Mesh(x=3), sc.Mesh(x=8), sc.Mesh(a=4, b=2), sc.Mesh(a=2, b=2, c=2)]
TRANSPORTS = ["shared", "in shared memory", "streamed"]
SHORT_CHUNK = 4 * KIB
THRESHOLDS = [64 * KIB, 256 * KIB, MIB]  # riding along; shared memory; one message, which is one chunk too
CHUNKS = [SHORT_CHUNK, 2 * SHORT_CHUNK, 3 * SHORT_CHUNK]


class OnlyDLPack:
    """An array of a library that speaks DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def strided(x: np.ndarray) -> np.ndarray:
    """Every second element of an array twice as large, along every other axis backwards."""
    steps = [slice(None, None, 2 if axis % 2 else -2) for axis in range(x.ndim)]
    view = np.zeros([2 * n for n in x.shape], x.dtype)[(*steps, ...)]
    view[...] = x
    return view


def unaligned(x: np.ndarray) -> np.ndarray:
    memory = np.frombuffer(bytearray(1) + x.tobytes(), np.uint8)
    return memory[1:].view(x.dtype).reshape(x.shape)


def swapped(x: np.ndarray) -> np.ndarray:
    return x.byteswap().view(x.dtype.newbyteorder())


def read_only(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


def in_a_file(x: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryFile() as file:
        file.write(x.tobytes())
        file.flush()
        return np.memmap(file, np.uint8, "r").view(x.dtype).reshape(x.shape)


def always(x: np.ndarray) -> bool:
    return True


def is_numpys(x: np.ndarray) -> bool:
    return x.dtype.isbuiltin == 1


def listable(x: np.ndarray) -> bool:
    """Python has such numbers, and the list has the array's shape."""
    return x.dtype.name in ("bool", "int64", "float64", "complex128") and (0 < x.size < 500 or x.shape == (0,))


LAYOUTS: dict[str, tuple[Callable[[np.ndarray], Any], Callable[[np.ndarray], bool]]] = {
    "row-major": (lambda x: x, always),
    "Fortran": (np.asfortranarray, always),
    "transposed": (lambda x: x.T, always),
    "strided": (strided, always),
    "repeated": (lambda x: np.broadcast_to(x[:1], x.shape), lambda x: x.ndim > 0),
    "unaligned": (unaligned, lambda x: x.size > 0),
    "swapped": (swapped, lambda x: is_numpys(x) and x.itemsize > 1),
    "swapped and strided": (lambda x: strided(swapped(x)), lambda x: is_numpys(x) and x.itemsize > 1),
    "read-only": (read_only, always),
    "in a file": (in_a_file, lambda x: x.size > 0),
    "list": (np.ndarray.tolist, listable),
    "scalar": (lambda x: x[()], lambda x: x.ndim == 0),
    "DLPack": (OnlyDLPack, is_numpys),
    "memoryview": (memoryview, is_numpys),
    "bytearray": (lambda x: bytearray(x.tobytes()), lambda x: x.dtype.name == "uint8"),
    "array.array": (lambda x: standard_library.array(x.dtype.char, x.tobytes()), lambda x: x.dtype.char in "bBhHlLfd"),
}


def specials(dtype: np.dtype) -> np.ndarray:
    """Bit patterns that careless code changes: −0.0, subnormals, infinities, NaNs quiet and signalling."""
    info = ml_dtypes.finfo(dtype)
    exponent_ones = ((1 << info.nexp) - 1) << info.nmant
    sign, quiet = 1 << (info.bits - 1), 1 << (info.nmant - 1)
    patterns = [sign, 1, sign | (1 << info.nmant) - 1, exponent_ones, exponent_ones | 1, exponent_ones | quiet | 1]
    return np.array([*patterns, *(sign | pattern for pattern in patterns)], f"u{dtype.itemsize}").view(dtype)


def random_values(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    """All bit patterns that the type has, those of `specials` often."""
    random = np.random.default_rng(seed)
    if dtype.name in ("bool", "int4", "uint4"):
        return random.integers(0, 2 if dtype.name == "bool" else 16, shape).astype(dtype)
    x = np.frombuffer(random.bytes(math.prod(shape) * dtype.itemsize), dtype).copy()
    if dtype.kind not in "iu":
        parts = x.view(x.real.dtype) if dtype.kind == "c" else x
        chosen = random.random(parts.size) < 0.3
        parts[chosen] = random.choice(specials(parts.dtype), int(chosen.sum()))
    return x.reshape(shape)


def numpys(value: Any) -> np.ndarray:
    """The array as NumPy converts it, in the host's byte order."""
    x = np.from_dlpack(value) if isinstance(value, OnlyDLPack) else np.asarray(value)
    return x.astype(x.dtype.newbyteorder("="))


@dataclass(frozen=True)
class Case:
    """A round trip."""

    dtype: np.dtype
    shape: tuple[int, ...]
    layout: str
    transport: str
    mesh: sc.Mesh | None
    spec: sc.P | None
    seed: int

    @property
    def value(self) -> Any:
        x = random_values(self.shape, self.dtype, self.seed)
        make, fits = LAYOUTS[self.layout]
        return make(x) if fits(x) else x


@st.composite
def shapes(draw: st.DrawFn, itemsize: int, transport: str) -> tuple[int, ...]:
    """Mostly small; else an element around a threshold, or right at it."""
    if draw(st.integers(0, 14)):
        few, many = st.lists(st.integers(0, 9), max_size=3), st.lists(st.integers(1, 3), min_size=4, max_size=8)
        return tuple(draw(few | many | st.lists(st.integers(0, 3), max_size=8)))
    edges = st.sampled_from(CHUNKS if transport == "in short chunks" else THRESHOLDS)
    size = draw(edges) // itemsize + draw(st.integers(-1, 1))
    rows = draw(st.sampled_from([1, 2, 3, 7]))
    return draw(st.sampled_from([(size,), (size // rows, rows), (rows, 1, size // rows)]))


@st.composite
def specs(draw: st.DrawFn, mesh: sc.Mesh, ndim: int) -> sc.P:
    """Draws for each mesh axis a dimension of the array or none; several may share a dimension."""
    entries: list[list[str]] = [[] for _ in range(ndim)]
    for name, _ in draw(st.permutations(mesh.axes)):
        dimension = draw(st.integers(-1, ndim - 1))
        if dimension >= 0:
            entries[dimension].append(name)
    return sc.P(*(tuple(names) or None for names in entries))


@st.composite
def cases(draw: st.DrawFn, *more_transports: str) -> Case:
    dtype, transport = draw(st.sampled_from(ELEMENT_TYPES)), draw(st.sampled_from([*TRANSPORTS, *more_transports]))
    shape = draw(shapes(dtype.itemsize, transport))
    layout = draw(st.sampled_from(list(LAYOUTS)))
    mesh = draw(st.none() | st.sampled_from(MESHES))
    # What NumPy makes of a bytearray has one axis, whatever the shape was.
    flat = layout in ("bytearray", "array.array")
    spec = draw(st.none() | specs(mesh, len(shape))) if mesh is not None and not flat else None
    return Case(dtype, shape, layout, transport, mesh, spec, draw(st.integers(0, 2**32)))


def check(case: Case, client: sc.Client, through: sc.Client) -> None:
    """Makes a round trip through a client and compares."""
    value = case.value
    expected = numpys(value)
    if case.transport == "in shared memory":
        value = client.empty(expected.shape, expected.dtype)
        value[...] = expected
    with through.put(value, mesh=case.mesh, spec=case.spec) as there:
        assert (there.shape, there.dtype) == (expected.shape, expected.dtype)
        back = there.get()
    assert (back.shape, back.dtype) == (expected.shape, expected.dtype)
    assert back.tobytes() == expected.tobytes()


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left(client, streaming) -> Iterator[None]:
    yield
    assert client.list() == streaming.list() == []


@settings(max_examples=200, deadline=None)
@given(case=cases())
def test_an_array_comes_back_bit_for_bit(client, streaming, case):
    check(case, client, streaming if case.transport == "streamed" else client)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES[9:14] + ELEMENT_TYPES[16:], ids=str)
def test_the_bits_that_careless_code_changes_are_among_the_values(dtype):
    x = random_values((4096,), dtype, seed=0)
    parts = x.view(x.real.dtype) if dtype.kind == "c" else x
    raw = set(parts.view(f"u{parts.itemsize}").tolist())
    assert raw >= set(specials(parts.dtype).view(f"u{parts.itemsize}").tolist())


def test_every_layout_is_of_use_for_some_array():
    for layout, (_, fits) in LAYOUTS.items():
        x = (
            np.zeros((), np.float64)
            if layout == "scalar"
            else np.zeros(4, np.uint8 if layout == "bytearray" else np.float64)
        )
        assert fits(x), layout
