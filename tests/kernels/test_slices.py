"""Slices of arrays, and arrays with values in slices, are NumPy's bit for bit, and move no more than they must."""

import numpy as np
import pytest
from kernels.test_movement import assert_same_bits

from shardcall_core.functions.indexing import basic_index
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.library import kernels

KERNELS = {kernel.name: kernel for kernel in kernels()}


def in_long_form(*values):
    return pytest.param(*values, marks=pytest.mark.long)


LAYOUTS = [({"x": 8}, ("x", None)), ({"x": 3}, ("x", None)), ({"a": 4, "b": 2}, (("b", "a"), None))]
BOTH_SHARDED = [({"a": 4, "b": 2}, ("a", "b")), ({"a": 2, "b": 3}, ("b", "a"))]


def index(x, key):
    """The operands and parameters of a call of getitem, by NumPy's own rules."""
    starts, sizes, steps, dropped, inserted = basic_index(x.shape, key)
    return np.array(starts, np.int64), {"sizes": sizes, "steps": steps, "dropped": dropped, "inserted": inserted}


def check_slice(run, x, key, mesh, spec):
    starts, parameters = index(x, key)
    result = run(KERNELS["getitem"], x, starts, mesh=mesh, in_specs=[spec], padding=7, **parameters)
    assert_same_bits(result, np.asarray(x[key]))


ROWS = [  # of 61 rows
    np.s_[1:-1],
    np.s_[9:-5],
    np.s_[:30],
    np.s_[25:],
    np.s_[40:44],
    np.s_[33],
    np.s_[5:5],
    np.s_[::-1],
    np.s_[50:3:-1],
    np.s_[::2],
    np.s_[1::7],
    np.s_[-2::-5],
    np.s_[20:31, None],
]


ALIKE = {1, 2, 10}  # other numbers in a slice of ROWS than in one beside it


@pytest.mark.parametrize("number", [in_long_form(i) if i in ALIKE else i for i in range(len(ROWS))])
def test_slices_of_rows(run, values, number):
    mesh, spec = LAYOUTS[number % 3]
    check_slice(run, values.normal((61, 3)), ROWS[number], mesh, spec)


@pytest.mark.parametrize("key", [in_long_form(np.s_[1:-1]), in_long_form(np.s_[5:7]), np.s_[6:1:-1]])
def test_slices_of_every_type(run, values, dtype, key):
    check_slice(run, values.any((13, 4), dtype), key, {"x": 3}, ("x", None))


@pytest.mark.parametrize("sizes", [(4,), in_long_form((20,)), (33,), in_long_form((59,))])
def test_a_loop_of_starts_compiles_once(run, values, sizes):
    """All devices take the same branch at every start, and starts outside the array are clamped."""
    x = values.normal((61,))
    run.programs.clear()
    for k in range(-1, 62):
        result = run(KERNELS["getitem"], x, np.array([k]), mesh={"x": 8}, sizes=sizes, steps=(1,))
        first = min(max(k, 0), 61 - sizes[0])
        assert_same_bits(result, x[first : first + sizes[0]])
    assert len(run.programs) == run.is_local


X, STARTS = ArrayType((4096, 16), np.dtype("float32")), ArrayType((2,), np.dtype("int64"))


def assign(run, x, key, assigned, mesh, specs):
    starts, parameters = index(x, key)
    how = {"mesh": mesh, "in_specs": [*specs, None], "padding": 7}
    result = run(KERNELS["setitem"], x, assigned, starts, **how, **parameters)
    expected = x.copy()
    expected[key] = assigned
    assert_same_bits(result, expected)


ASSIGNED = [
    (np.s_[1:-1], ()),
    (np.s_[1:-1], (59, 14)),
    (np.s_[9:50, 3:5], (1, 2)),
    (np.s_[33], (14,)),
    (np.s_[::-1, 2], (61,)),
    (np.s_[50:3:-3], (16, 14)),
    (np.s_[5:5], (0, 14)),
    (np.s_[2:40, None, :], (38, 1, 1)),
    (np.s_[:], (14,)),
]


@pytest.mark.parametrize("number", range(len(ASSIGNED)))
def test_values_are_assigned(run, values, number):
    (key, shape), (mesh, spec) = ASSIGNED[number], (*LAYOUTS, *BOTH_SHARDED)[number % 5]
    x, assigned = values.normal((61, 14)), values.normal(shape)
    assign(run, x, key, assigned, mesh, [spec, [None] * len(shape)])


@pytest.mark.parametrize(("mesh", "spec"), [LAYOUTS[0], in_long_form(*LAYOUTS[2]), in_long_form(*BOTH_SHARDED[1])])
@pytest.mark.parametrize("key", [in_long_form(np.s_[1:-1]), in_long_form(np.s_[20:31]), np.s_[:40, 1:], np.s_[40:2:-2]])
def test_sharded_values_are_assigned(run, values, mesh, spec, key):
    x = values.normal((61, 14))
    assign(run, x, key, values.normal(x[key].shape), mesh, [spec, spec])


@pytest.mark.parametrize(("to", "of"), [("float32", "int64"), ("bool", "float64"), ("complex64", "float32")])
def test_values_are_converted(run, to, of):
    assign(run, np.zeros((7,), to), np.s_[2:5], np.array([0, 2, -1], of), {"x": 3}, [("x",), (None,)])


@pytest.mark.parametrize(
    ("values", "field", "reason"),
    [
        (ArrayType((3, 16), np.dtype("float32")), "values", "INVALID_OPERAND"),
        (ArrayType((1, 2, 16), np.dtype("float32")), "values", "INVALID_OPERAND"),
        (ArrayType((), np.dtype("complex64")), "values", "UNSUPPORTED_ELEMENT_TYPE"),
    ],
)
def test_values_that_do_not_fit_are_refused(refused, values, field, reason):
    error = refused(KERNELS["setitem"], X, values, STARTS, mesh={"x": 2}, sizes=(2, 16), steps=(1, 1))
    assert (error.field, error.reason.name) == (field, reason)
