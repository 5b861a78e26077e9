"""The tests of `test_elements.py` that take long."""

import numpy as np
import pytest
from end_to_end.same_results import MESH, check
from end_to_end.test_elements import RANDOM, C, I, X

pytestmark = pytest.mark.long

BYTES = RANDOM.integers(0, 256, (13, 6)).astype(np.uint8)


SPECIAL = np.array([0, -0.0, np.inf, np.nan, 1e-45, 3e38, -7], np.float32)


EDGES = np.array([0, -0.0, 1, -1, -0.5, 1.5, -1.5, np.inf, -np.inf, np.nan, 65504, -65504])


def edges(dtype):
    """Numbers of every size of a type, and the first, the smallest and the last ones."""
    info = np.finfo(dtype)
    with np.errstate(over="ignore"):  # some of the numbers are infinite
        sizes = np.ldexp(RANDOM.normal(size=4096).astype(dtype), RANDOM.integers(info.minexp - 30, info.maxexp, 4096))
    ends = np.array([info.max, info.tiny, info.smallest_subnormal], dtype)
    return np.concatenate([sizes, EDGES.astype(dtype), ends, -ends])


SHORT = {
    "packbits": (lambda x: np.packbits(x, axis=0, bitorder="little"), I),
    "unpackbits": (lambda x: np.unpackbits(x, axis=1, count=-3), BYTES),
    "sort_complex": (np.sort_complex, I.astype(np.int8)),
    "real_if_close": (np.real_if_close, C.real + 1e-15j),
    "bitwise_count": (np.bitwise_count, I.astype(np.int64) * 2**40 - 9),
    "i0": (np.i0, X * 9),
    "ldexp": (lambda x: np.ldexp(x, I), X),
    "frexp": (np.frexp, SPECIAL),
    "iscomplex": (np.iscomplex, np.array([1, 2j])),
}


LONG = {
    "packbits, flattened": (np.packbits, I),
    "packbits of bool": (lambda x: np.packbits(x, axis=-1), I > 0),
    "packbits of nothing": (np.packbits, I[:0]),
    "packbits of a number": (np.packbits, np.array(3)),
    "packbits of 4,096": (np.packbits, np.arange(4096) % 3 == 0),
    "unpackbits, flattened": (lambda x: np.unpackbits(x, bitorder="little"), BYTES),
    "unpackbits, more": (lambda x: np.unpackbits(x, axis=0, count=120), BYTES),
    "unpackbits of nothing": (lambda x: np.unpackbits(x, axis=0), BYTES[:0]),
    "sort_complex of complex": (np.sort_complex, C),
    "sort_complex of float32": (np.sort_complex, X.astype("f")),
    "i0 of float32": (np.i0, (X * 9).astype(np.float32)),
    "i0 of integers": (np.i0, I.astype(np.int8)),
    "i0 of 4,096": (np.i0, np.linspace(-700, 700, 4096)),
    "i0 of special numbers": (np.i0, np.array([0, 8, -8, np.nextafter(8, 9), np.inf, np.nan, 800])),
    "i0 of a number": (np.i0, np.array(-2.5)),
    "i0 of nothing": (np.i0, X[:0]),
    "real_if_close, not": (np.real_if_close, C),
    "real_if_close, a bound": (lambda x: np.real_if_close(x, tol=0.5), C.real + 0.4j),
    "real_if_close of reals": (np.real_if_close, X),
    "ldexp of a number": (lambda x: np.ldexp(0.7, x), I * 200),
    "ldexp of float16": (lambda x: np.ldexp(x, np.int32(-3)), X.astype(np.float16)),
    "frexp of integers": (np.frexp, I.astype(np.int8)),
    "frexp of small numbers": (np.frexp, X * 1e-300),
    "isreal": (np.isreal, np.where(X[:, 0] > 0, C, 1)),
    "isreal of reals": (np.isreal, X),
    "iscomplex of reals": (np.iscomplex, I),
}


@pytest.mark.parametrize(
    ("function", "x"),
    [*SHORT.values(), *(pytest.param(*case, marks=pytest.mark.long) for case in LONG.values())],
    ids=[*SHORT, *LONG],
)
def test_functions_of_elements_are_numpys(strict_client, function, x):
    check(strict_client, function, x)


def test_i0_of_zero_is_exactly_one(strict_client):
    for dtype in (np.float16, np.float32, np.float64, np.int8):
        result = np.i0(strict_client.put(np.zeros(9, dtype), mesh=MESH)).get()
        np.testing.assert_array_equal(result, np.ones_like(np.i0(np.zeros(9, dtype))), strict=True)


def test_bits_of_every_type_are_counted(strict_client):
    for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        dtype = np.dtype(name)
        ends = [] if name == "bool" else [np.iinfo(dtype).min, np.iinfo(dtype).max]
        x = np.array([*ends, 0, 1, *RANDOM.integers(0, 2**63, 4096).astype(dtype)], dtype)
        check(strict_client, np.bitwise_count, x)
    check(strict_client, np.bitwise_count, I[:0])
    check(strict_client, np.bitwise_count, np.array(-7))


def test_spacings_are_numpys_bit_for_bit(strict_client):
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    for x in (halves, edges(np.float32), edges(np.float64), I.astype(np.int16), I > 0, X[:0], np.array(-3.0)):
        with np.errstate(all="ignore"):
            expected = np.spacing(x)
        result = np.spacing(strict_client.put(x, mesh=MESH)).get()
        np.testing.assert_array_equal(result, expected, strict=True)
        assert ((result == 0) == (expected == 0)).all()  # also if this process took subnormal numbers for 0
