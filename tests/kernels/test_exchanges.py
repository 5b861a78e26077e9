"""Functions that move rows along a sharded axis exchange them: NumPy's bits, padded layouts, edges and short arrays."""

import numpy as np
from kernels.conftest import KERNELS, assert_same_bits
from kernels.table_cases import expected

LAYOUTS = [({"x": 8}, ("x",)), ({"x": 3}, ("x",)), ({"a": 4, "b": 2}, (("b", "a"),))]
ROWS = (61,)
CASES = [
    ("flip", (ROWS,), {}),
    ("flip", ((64, 3),), {"axis": 0}),
    ("concatenate", (ROWS, ROWS), {}),
    ("concatenate", ((61, 3), (2, 3), (0, 3), (5, 3)), {}),
    ("concatenate", ((3,), ROWS, (90,)), {}),
    ("pad", (ROWS, ()), {"pad_width": (2, 1)}),
    ("pad", (ROWS, None), {"pad_width": (40, 90)}),
    ("pad", ((61, 3), None), {"pad_width": (1, 9, 2, 2), "mode": "edge"}),
    ("pad", ((61, 3), None), {"pad_width": (20, 3, 1, 0), "mode": "wrap"}),
    ("pad", (ROWS, None), {"pad_width": (60, 1), "mode": "reflect"}),
    ("pad", (ROWS, None), {"pad_width": (0, 61), "mode": "symmetric"}),
    ("repeat", (ROWS,), {"repeats": 3, "axis": 0}),
    ("repeat", ((5, 3),), {"repeats": 7, "axis": 0}),
    ("reshape", ((61, 6),), {"shape": (366,)}),
    ("reshape", ((366,),), {"shape": (61, 2, 3)}),
    ("reshape", ((62, 4),), {"shape": (31, 8)}),
    ("diagonal", ((61, 40),), {"offset": 3}),
    ("diagonal", ((3, 61, 40),), {"offset": -2, "axis1": 2, "axis2": 0}),
]


def exchanged(run, values, number, layout):
    """A call that exchanges rows, and NumPy's result."""
    (name, shapes, parameters), (mesh, spec) = CASES[number], LAYOUTS[layout]
    operands = tuple(None if shape is None else values.normal(shape) for shape in shapes)
    specs = [None if shape is None else [*spec, *[None] * len(shape)][: len(shape)] for shape in shapes]
    how = {"mesh": mesh, "in_specs": specs, **parameters}
    assert run.resolve(KERNELS[name], *operands, **how).strategy.name in ("exchange", "all_to_all")
    return run.call(KERNELS[name], *operands, **how), expected(name, operands, parameters)


def taken(run, values, layout):
    """Calls that fetch few rows, and NumPy's results."""
    (mesh, spec), x, calls = LAYOUTS[layout], values.normal((61, 3)), []
    how = {"mesh": mesh, "in_specs": [(*spec, None), None], "axis": 0}
    for indices in (-3, [5, -61, 60, 5], [[0], [33]]):
        where = np.asarray(indices)
        calls.append(("take", where, np.asarray(np.take(x, where, 0))))
    along = np.broadcast_to(where, (2, 3))
    calls.append(("take_along_axis", along, np.take_along_axis(x, along, 0)))
    for name, where, result in calls:
        assert run.resolve(KERNELS[name], x, where, **how).strategy.name == "exchange"
        yield run.call(KERNELS[name], x, where, **how), result


def test_rows_are_exchanged(run, values):
    """Each call in another layout."""
    calls = [exchanged(run, values, i, i % len(LAYOUTS)) for i in range(len(CASES))]
    run.check_together([*calls, *taken(run, values, 2)], assert_same_bits, 7)
