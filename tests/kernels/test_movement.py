"""The rows of the table that move elements give NumPy's results, bit for bit, in every layout."""

from functools import partial

import numpy as np
import pytest
from kernels.conftest import COLLECTIVE, ELEMENT_TYPES, KERNELS, assert_same_bits
from kernels.table_cases import MOVES, OTHERS, expected
from rows import rows

from shardcall_core.element_types import NAMED
from shardcall_core.layouts.layout import ArrayType

LAYOUTS = [
    ({"x": 1}, (None, None, None)),
    ({"x": 8}, ("x", None, None)),
    ({"x": 3}, (None, "x", None)),
    ({"a": 4, "b": 2}, ("b", None, "a")),
    ({"a": 2, "b": 2}, (("b", "a"), None, None)),
]
same_bits_or_nan = partial(assert_same_bits, any_nan=True)


def specs(shapes, spec):
    return [None if shape is None else spec[: len(shape)] for shape in shapes]


def calls_of(run, table, mesh, spec):
    """Calls of a table of names, operands and parameters, and NumPy's results."""
    for name, operands, parameters in table:
        in_specs = specs([None if operand is None else operand.shape for operand in operands], spec)
        call = run.call(KERNELS[name], *operands, mesh=mesh, in_specs=in_specs, **parameters)
        yield call, expected(name, operands, parameters)


@pytest.mark.parametrize("layout", LAYOUTS[3:4])
def test_results_are_numpys(run, values, layout):
    sums_are_near = partial(np.testing.assert_allclose, rtol=1e-6, strict=True)
    for families, compare in ((MOVES, same_bits_or_nan), (OTHERS, sums_are_near)):
        table = [
            (name, tuple(None if s is None else values.normal(s) for s in shapes), parameters)
            for name, calls in families.items()
            for shapes, parameters in calls
        ]
        run.check_together(calls_of(run, table, *layout), compare, np.nan)


@pytest.mark.parametrize("first", [0])
def test_every_bit_is_kept(run, values, first):
    """Each function moves elements of another type."""
    table = []
    for i, name in enumerate(MOVES):
        shapes, parameters = MOVES[name][0]
        dtype = ELEMENT_TYPES[(i + first) % len(ELEMENT_TYPES)]
        table.append((name, tuple(None if s is None else values.any(s, dtype) for s in shapes), parameters))
    run.check_together(calls_of(run, table, {"a": 2, "b": 2}, ("a", None, "b")), same_bits_or_nan)


def test_traces_overflow_as_numpys(run):
    x = np.full((300, 300), 250, np.uint8)
    assert_same_bits(run(KERNELS["trace"], x, mesh={"x": 8}, dtype="uint8"), np.asarray(np.trace(x, dtype=np.uint8)))


CONVERTED = ("bool", "int4", "uint8", "int64", "float16", "bfloat16", "float32", "complex64")
NUMBERS = np.array([0, 1, -1, 2.5, -3.75, 100, 7, 0.125])


@pytest.mark.parametrize("first", [0])
def test_astype_is_numpys(run, first):
    """Each type becomes another one."""
    calls = []
    for i, of in enumerate(ELEMENT_TYPES):
        to = NAMED[CONVERTED[(i + first) % len(CONVERTED)]]
        if {of.name, to.name} == {"int4", "uint4"}:
            continue  # NumPy converts neither to the other
        unsigned, narrow = "uint" in of.name + to.name, "int4" in of.name + to.name
        x = abs(NUMBERS) % 8 if unsigned else np.clip(NUMBERS, -8, 7) if narrow else NUMBERS
        calls.append((x.astype(of), to))
    results = run.together(run.call(KERNELS["astype"], x, mesh={"x": 3}, dtype=to.name) for x, to in calls)
    for (x, to), result in zip(calls, results, strict=True):
        with np.errstate(all="ignore"):
            reference = (x.real if x.dtype.kind == "c" and to.kind not in "cb" else x).astype(to)
        assert result.dtype == to
        np.testing.assert_array_equal(result.astype(complex), reference.astype(complex))


NO_COLLECTIVE = [
    ("reshape", (16, 6), {"shape": (16, 2, 3)}, ("x", None, None)),
    ("expand_dims", (16, 6), {"axis": 0}, (None, "x", None)),
    ("broadcast_to", (16, 1), {"shape": (4, 16, 5)}, (None, "x", None)),
    ("flip", (16, 6), {"axis": 1}, ("x", None)),
    ("astype", (16, 6), {"dtype": "float64"}, ("x", None)),
    ("tile", (16, 6), {"reps": (1, 2)}, ("x", None)),
    ("repeat", (16, 6), {"repeats": 2, "axis": 1}, ("x", None)),
    ("tril", (16, 6), {}, ("x", None)),
    ("diagonal", (16, 6, 6), {"axis1": 1, "axis2": 2}, ("x", None)),
    ("trace", (16, 6, 6), {"axis1": 1, "axis2": 2}, ("x",)),
    ("pad", (16, 6), {"pad_width": (0, 0, 1, 2)}, ("x", None)),
]


@rows("name, shape, parameters, out_spec", NO_COLLECTIVE)
def test_nothing_moves_along_axes_that_are_not_sharded(run, name, shape, parameters, out_spec):
    x = ArrayType(shape, np.dtype("float32"))
    how = {"mesh": {"x": 8}, "in_specs": [("x", *[None] * (len(shape) - 1))], **parameters}
    resolved = run.resolve(KERNELS[name], x, **how)
    assert resolved.strategy.name == "blocks"
    assert resolved.problem.out_specs == (tuple((n,) if n else () for n in out_spec),)
    if name == "pad":
        assert not COLLECTIVE.search(run.program(KERNELS[name], x, **how).text)


def test_a_sharded_axis_that_is_sliced_stays_sharded(run):
    x, starts = ArrayType((16, 6), np.dtype("float32")), ArrayType((2,), np.dtype("int64"))
    how = {"mesh": {"x": 8}, "in_specs": [("x", None)], "steps": (1, 1)}
    assert run.resolve(KERNELS["getitem"], x, starts, **how, sizes=(14, 6)).problem.out_specs == ((("x",), ()),)
    how |= {"sizes": (16, 4)}
    assert run.resolve(KERNELS["getitem"], x, starts, **how).strategy.name == "blocks"
