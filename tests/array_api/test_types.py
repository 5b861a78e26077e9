"""The element types and shapes of results by the rules of the array API standard 2024.12; functions are traced."""

import itertools
import operator
import re

import numpy as np
import pytest
from array_api import standard

import shardcall as sc
from shardcall.namespace import Namespace

SIGNED, UNSIGNED = ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
REAL, COMPLEX = ("float32", "float64"), ("complex64", "complex128")
INTEGERS, FLOATS = (*SIGNED, *UNSIGNED), (*REAL, *COMPLEX)
NUMERIC = (*INTEGERS, *FLOATS)
TYPES = ("bool", *NUMERIC)
KINDS = {
    "bool": ("bool",),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": INTEGERS,
    "real floating": REAL,
    "complex floating": COMPLEX,
    "numeric": NUMERIC,
}

SAME, BOOL, PART = "same", "bool", "part"
"""The type of a result: that of the operands together, bool, or that of the real and the imaginary part."""

ORDERED = (*INTEGERS, *REAL)
ELEMENTWISE = {
    **dict.fromkeys(standard.UNARY.split(), (FLOATS, SAME)),
    **dict.fromkeys(standard.BINARY.split(), (NUMERIC, SAME)),
    "abs": (NUMERIC, PART),
    **dict.fromkeys(("negative", "positive", "round", "sign", "square"), (NUMERIC, SAME)),
    **dict.fromkeys(("ceil", "floor", "trunc", "floor_divide", "remainder", "maximum", "minimum"), (ORDERED, SAME)),
    **dict.fromkeys(("imag", "real"), (COMPLEX, PART)),
    **dict.fromkeys(("isfinite", "isinf", "isnan"), (NUMERIC, BOOL)),
    **dict.fromkeys(("equal", "not_equal"), (TYPES, BOOL)),
    **dict.fromkeys(("greater", "greater_equal", "less", "less_equal"), (ORDERED, BOOL)),
    **dict.fromkeys(("logical_and", "logical_not", "logical_or", "logical_xor"), (("bool",), BOOL)),
    **dict.fromkeys(("bitwise_and", "bitwise_invert", "bitwise_or", "bitwise_xor"), (("bool", *INTEGERS), SAME)),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), (INTEGERS, SAME)),
    **dict.fromkeys(("atan2", "copysign", "hypot", "logaddexp", "nextafter"), (REAL, SAME)),
    "divide": (FLOATS, SAME),
    "signbit": (REAL, BOOL),
}
"""The element types that the elementwise functions take, and the type of the result."""

_OPERATORS = """
    add:add sub:subtract mul:multiply truediv:divide floordiv:floor_divide mod:remainder pow:pow and_:bitwise_and
    or_:bitwise_or xor:bitwise_xor lshift:bitwise_left_shift rshift:bitwise_right_shift lt:less le:less_equal
    gt:greater ge:greater_equal eq:equal ne:not_equal
"""
OPERATORS = {getattr(operator, name): function for name, function in re.findall(r"(\w+):(\w+)", _OPERATORS)}
"""Python's operators, with the functions that they stand for."""


def width(name):
    return np.dtype(name).itemsize


def together(one, other):
    """Returns the type that the standard promotes two types to; None where it says nothing."""
    if one == other:
        return one
    for kind in (SIGNED, UNSIGNED, REAL, COMPLEX):
        if one in kind and other in kind:
            return max(one, other, key=width)
    if one in FLOATS and other in FLOATS:
        real, imaginary = (one, other) if one in REAL else (other, one)
        return "complex128" if real == "float64" else imaginary
    if one in INTEGERS and other in INTEGERS:
        signed, unsigned = (one, other) if one in SIGNED else (other, one)
        needed = max(width(signed), 2 * width(unsigned))
        return f"int{8 * needed}" if needed <= 8 else None
    return None


def result_of(rule, dtype):
    if rule is PART:
        return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    return "bool" if rule is BOOL else dtype


PAIRS = [(one, other) for one, other in itertools.product(TYPES, repeat=2) if together(one, other)]


def described(computed):
    if isinstance(computed, list | tuple):
        return [described(item) for item in computed]
    return (computed.dtype.name, computed.shape)


def types_of(client, call, *arrays):
    """Returns the element types and shapes in the dict that a function returns for arrays of these types."""
    types = {}

    @client.jit
    def function(*arrays):
        types.update({name: described(computed) for name, computed in call(*arrays).items()})
        return arrays

    function.trace(*arrays)
    return types


def test_functions_of_one_array_keep_its_type(client):
    x = {dtype: sc.Array((3, 2), dtype) for dtype in TYPES}
    rows = [(name, dtype) for name in standard.UNARY.split() for dtype in ELEMENTWISE[name][0]]
    computed = types_of(client, lambda x: {(n, t): getattr(client.xp, n)(x[t]) for n, t in rows}, x)
    assert computed == {(n, t): (result_of(ELEMENTWISE[n][1], t), (3, 2)) for n, t in rows}


def test_types_promote_in_functions_and_operators(client):
    x = {dtype: sc.Array((3, 1), dtype) for dtype in TYPES}
    y = {dtype: sc.Array((2,), dtype) for dtype in TYPES}
    functions = {name: name for name in standard.BINARY.split()} | OPERATORS

    def takes(name, dtype):
        return dtype in ELEMENTWISE[name][0]

    rows = [(f, n, *pair) for f, n in functions.items() for pair in PAIRS if takes(n, pair[0]) and takes(n, pair[1])]

    def call(x, y, function, one, other):
        function = getattr(client.xp, function) if isinstance(function, str) else function
        return function(x[one], y[other])

    computed = types_of(client, lambda x, y: {(f, *t): call(x, y, f, *t) for f, _, *t in rows}, x, y)
    assert computed == {(f, *t): (result_of(ELEMENTWISE[n][1], together(*t)), (3, 2)) for f, n, *t in rows}


def test_numbers_take_the_type_of_the_array_beside_them(client):
    numbers = {True: ("bool",), 2: NUMERIC, 2.5: FLOATS, 2j: COMPLEX}
    rows = [(number, dtype) for number, dtypes in numbers.items() for dtype in dtypes]
    rows += [(2j, dtype) for dtype in REAL]
    x = {dtype: sc.Array((3,), dtype) for dtype in TYPES}

    def use(x, number):
        xp = client.xp
        add, multiply = (xp.logical_and, operator.or_) if number is True else (xp.add, operator.mul)
        yes = xp.equal(x, x)
        return [add(x, number), add(number, x), multiply(x, number), multiply(number, x), xp.where(yes, x, number)]

    computed = types_of(client, lambda x: {(n, t): use(x[t], n) for n, t in rows}, x)
    for number, dtype in rows:
        mixed = {"float32": "complex64", "float64": "complex128"} if isinstance(number, complex) else {}
        assert computed[number, dtype] == [(mixed.get(dtype, dtype), (3,))] * 5, (number, dtype)


def test_result_types_are_those_of_promotion():
    xp = Namespace(None)
    for one, other in PAIRS:
        assert xp.result_type(np.dtype(one), np.dtype(other)) == together(one, other)
    assert xp.result_type(xp.int8, xp.uint8, xp.int32) == xp.int32
    assert xp.result_type(xp.float32, xp.complex64, xp.float64) == xp.complex128
    for number, dtypes in ((True, TYPES), (1, NUMERIC), (1.0, FLOATS), (1j, COMPLEX)):
        assert all(xp.result_type(np.dtype(dtype), number) == dtype for dtype in dtypes)


def test_casts_that_promotion_makes_are_allowed():
    xp = Namespace(None)
    for one, other in PAIRS:
        assert xp.can_cast(np.dtype(one), np.dtype(other)) is (together(one, other) == other)
    assert not xp.can_cast(xp.float64, xp.int64)


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_types(kind):
    xp = Namespace(None)
    assert [name for name in TYPES if xp.isdtype(getattr(xp, name), kind)] == [n for n in TYPES if n in KINDS[kind]]
    assert {*xp.__array_namespace_info__().dtypes(kind=kind)} == {*KINDS[kind]}
    assert xp.isdtype(xp.int8, (xp.float64, kind)) is (kind in ("signed integer", "integral", "numeric"))


def test_the_namespace_describes_its_types():
    xp = Namespace(None)
    info = xp.__array_namespace_info__()
    assert info.dtypes() == {name: np.dtype(name) for name in TYPES}
    assert {*info.dtypes(kind=("bool", "real floating"))} == {"bool", *REAL}
    defaults = {"real floating": "float64", "complex floating": "complex128", "integral": "int64", "indexing": "int64"}
    assert info.default_dtypes() == info.default_dtypes(device=info.default_device()) == defaults
    assert info.default_device() in info.devices()
    assert {key: type(value) for key, value in info.capabilities().items()} == {
        "boolean indexing": bool,
        "data-dependent shapes": bool,
        "max dimensions": int,
    }


def test_limits_of_types():
    xp = Namespace(None)
    for name in INTEGERS:
        bits, lowest = 8 * width(name), 0 if name in UNSIGNED else -(2 ** (8 * width(name) - 1))
        limits = xp.iinfo(getattr(xp, name))
        assert (limits.bits, limits.min, limits.max, limits.dtype) == (bits, lowest, 2**bits - 1 + lowest, name)
    for name, bits, digits, exponent in (("float32", 32, 24, 128), ("float64", 64, 53, 1024)):
        for item in (name, f"complex{2 * bits}"):
            limits = xp.finfo(getattr(xp, item))
            greatest = float((2 - 2.0 ** (1 - digits)) * 2.0 ** (exponent - 1))
            assert (limits.bits, limits.eps, limits.max, limits.min) == (bits, 2.0 ** (1 - digits), greatest, -greatest)
            assert (limits.smallest_normal, limits.dtype) == (2.0 ** (2 - exponent), name)


AXES = {None: (), 0: (3,), -1: (2,), (0, 1): (), (): (2, 3)}
KEPT = {None: (1, 1), 0: (1, 3), -1: (2, 1), (0, 1): (1, 1), (): (2, 3)}


def accumulated(dtype):
    return "int64" if dtype in SIGNED else "uint64" if dtype in UNSIGNED else dtype


REDUCTIONS = {
    **dict.fromkeys(("sum", "prod"), (NUMERIC, accumulated)),
    **dict.fromkeys(("max", "min"), (ORDERED, str)),
    "mean": (FLOATS, str),
    **dict.fromkeys(("std", "var"), (REAL, str)),
    **dict.fromkeys(("all", "any"), (TYPES, lambda dtype: "bool")),
    "count_nonzero": (TYPES, lambda dtype: "int64"),
    "linalg.vector_norm": (FLOATS, lambda dtype: result_of(PART, dtype)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(client, name):
    dtypes, rule = REDUCTIONS[name]
    x = {dtype: sc.Array((2, 3), dtype) for dtype in dtypes}
    function = operator.attrgetter(name)(client.xp)

    def call(x):
        rows = itertools.product(dtypes, AXES, (False, True))
        return {(t, a, k): function(x[t], axis=a, keepdims=k) for t, a, k in rows}

    computed = types_of(client, call, x)
    for dtype, axis in itertools.product(dtypes, AXES):
        assert computed[dtype, axis, False] == (rule(dtype), AXES[axis])
        assert computed[dtype, axis, True] == (rule(dtype), KEPT[axis])
