"""Functions that move rows along a sharded axis exchange them: NumPy's bits, padded layouts, edges and short arrays."""

import pytest
from kernels.table_cases import expected
from kernels.test_movement import assert_same_bits

from shardcall_server.kernels.library import kernels

KERNELS = {kernel.name: kernel for kernel in kernels()}
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
SHORT = {(i, i % 3) for i in range(len(CASES))}
PAIRS = [
    pytest.param(i, k, marks=() if (i, k) in SHORT else pytest.mark.long) for i in range(len(CASES)) for k in range(3)
]


@pytest.mark.parametrize(("number", "layout"), PAIRS)
def test_rows_are_exchanged(run, values, number, layout):
    (name, shapes, parameters), (mesh, spec) = CASES[number], LAYOUTS[layout]
    operands = tuple(None if shape is None else values.normal(shape) for shape in shapes)
    specs = [None if shape is None else [*spec, *[None] * len(shape)][: len(shape)] for shape in shapes]
    how = {"mesh": mesh, "in_specs": specs, **parameters}
    assert run.resolve(KERNELS[name], *operands, **how).strategy.name in ("exchange", "all_to_all")
    assert_same_bits(run(KERNELS[name], *operands, **how, padding=7), expected(name, operands, parameters))


@pytest.mark.parametrize(
    "name", ["flip", *(pytest.param(name, marks=pytest.mark.long) for name in ("concatenate", "repeat", "reshape"))]
)
def test_every_bit_is_exchanged(run, values, dtype, name):
    parameters = {"flip": {"axis": 0}, "repeat": {"repeats": 2, "axis": 0}, "reshape": {"shape": (39,)}}.get(name, {})
    operands = tuple(values.any((13, 3), dtype) for _ in range(2 if name == "concatenate" else 1))
    how = {"mesh": {"x": 3}, "strategy": "exchange", **parameters}
    if name == "concatenate":
        how["strategy"] = "auto"
    assert_same_bits(run(KERNELS[name], *operands, **how), expected(name, operands, parameters))
