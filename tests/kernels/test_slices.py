"""Slices of arrays, and arrays with values in slices, are NumPy's bit for bit, and move no more than they must."""

import numpy as np
import pytest
from kernels.conftest import KERNELS
from kernels.type_cases import index, with_values

LAYOUTS = [({"x": 8}, ("x", None)), ({"x": 3}, ("x", None)), ({"a": 4, "b": 2}, (("b", "a"), None))]
BOTH_SHARDED = [({"a": 4, "b": 2}, ("a", "b")), ({"a": 2, "b": 3}, ("b", "a"))]


def sliced(run, x, key, layout):
    """A call of getitem, and NumPy's slice."""
    (mesh, spec), (starts, parameters) = layout, index(x, key)
    return run.call(KERNELS["getitem"], x, starts, mesh=mesh, in_specs=[spec], **parameters), np.asarray(x[key])


def assigned(run, x, key, values, layout):
    """A call of setitem, and the array with NumPy's assignment."""
    (mesh, specs), (starts, parameters) = layout, index(x, key)
    call = run.call(KERNELS["setitem"], x, values, starts, mesh=mesh, in_specs=[*specs, None], **parameters)
    return call, with_values(x, key, values)


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


def test_slices_of_rows(run, values, same_bits):
    x = values.normal((61, 3))
    run.check_together([sliced(run, x, key, LAYOUTS[number % 3]) for number, key in enumerate(ROWS)], same_bits, 7)


@pytest.mark.parametrize("sizes", [(4,), (33,)])
def test_a_loop_of_starts_compiles_once(run, values, same_bits, sizes):
    """All devices take the same branch at every start, and starts outside the array are clamped."""
    x = values.normal((61,))
    run.programs.clear()
    for k in range(-1, 62):
        result = run(KERNELS["getitem"], x, np.array([k]), mesh={"x": 8}, sizes=sizes, steps=(1,))
        first = min(max(k, 0), 61 - sizes[0])
        same_bits(result, x[first : first + sizes[0]])
    assert len(run.programs) == run.is_local


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


SHARDED_KEYS = [np.s_[1:-1], np.s_[20:31], np.s_[:40, 1:], np.s_[40:2:-2]]


def sharded_assignments(run, values, layout):
    x, (mesh, spec) = values.normal((61, 14)), layout
    return [assigned(run, x, key, values.normal(x[key].shape), (mesh, [spec, spec])) for key in SHARDED_KEYS]


def test_values_are_assigned_and_converted(run, values, same_bits):
    x, calls = values.normal((61, 14)), []
    for number, (key, shape) in enumerate(ASSIGNED):
        mesh, spec = (*LAYOUTS, *BOTH_SHARDED)[number % 5]
        calls.append(assigned(run, x, key, values.normal(shape), (mesh, [spec, [None] * len(shape)])))
    for to, of in (("float32", "int64"), ("bool", "float64"), ("complex64", "float32")):
        new, layout = np.array([0, 2, -1], of), ({"x": 3}, [("x",), (None,)])
        calls.append(assigned(run, np.zeros((7,), to), np.s_[2:5], new, layout))
    run.check_together([*calls, *sharded_assignments(run, values, LAYOUTS[0])], same_bits, 7)
