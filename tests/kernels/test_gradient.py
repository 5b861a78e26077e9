"""`gradient` is np.gradient, on every mesh."""

import itertools

import numpy as np
import pytest

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.stencils.gradient import Gradient

GRADIENT = Gradient()
X8 = {"mesh": {"x": 8}, "in_specs": [("x", None)]}
SHAPES = [(64, 6), (57, 5), (9, 3)]  # the last block holds 8 rows, 1, and none
SPACINGS = ["none", "one", "each", "coordinates"]
CASES = [*zip(itertools.product(SHAPES, SPACINGS), itertools.cycle([2, 1, 1, 2, 1]), strict=False)]
SHORT = [*CASES[::3], *CASES[7::4]]  # each shape and spacing, coordinates with each shape


def spacing(values, form, shape, axes):
    sizes = [shape[axis] for axis in axes]
    return {
        "none": (),
        "one": (np.float64(0.3),),
        "each": tuple(np.float64(0.5 + i) for i in range(len(sizes))),
        "coordinates": tuple(np.cumsum(values.random.uniform(0.5, 2, size)) for size in sizes),
    }[form]


def check(run, x, steps, axis, edge_order, rtol=1e-12, **how):
    results = run(GRADIENT, x, *steps, axis=axis, edge_order=edge_order, padding=np.nan, **how)
    want = np.gradient(x, *steps, axis=axis, edge_order=edge_order)
    results, want = (r if isinstance(r, tuple) else (r,) for r in (results, want))
    for result, numpys in zip(results, want, strict=True):
        assert result.dtype == numpys.dtype
        np.testing.assert_allclose(result, numpys, rtol=rtol, atol=rtol)


@pytest.mark.parametrize(("case", "edge_order"), SHORT)
def test_every_spacing_gives_numpys_result(run, values, case, edge_order):
    shape, form = case
    steps = spacing(values, form, shape, (0,))
    check(run, values.normal(shape, np.float64), steps, 0, edge_order, strategy="halo", **X8)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_blocks_of_one_row(run, values, size):
    check(run, values.normal((size,), np.float64), (), 0, 1, mesh={"x": 8}, in_specs=[("x",)], strategy="halo")


def test_steps_of_1_are_exact(run, values, same):
    x = values.normal((61, 3), np.float64)
    same(run(GRADIENT, x, axis=0, **X8), np.gradient(x, axis=0))


def test_only_outermost_rows_travel(run):
    text = run.program(GRADIENT, MATRIX, axis=0, strategy="halo", **X8).compiled.as_text()
    assert text.count(" collective-permute(") == 2
    assert text.count("f32[1,8]{1,0} collective-permute(") == 2
    assert not any(word in text for word in ("all-gather", "all-to-all", "all-reduce"))


F32 = np.dtype(np.float32)
MATRIX = ArrayType((64, 8), F32)
SCALAR = ArrayType((), F32)
REFUSED = [
    ([SCALAR], {}, Reason.INVALID_OPERAND, "x", "a scalar"),
    ([ArrayType((8,), np.dtype(bool))], {}, Reason.UNSUPPORTED_ELEMENT_TYPE, "x", "bool"),
    ([MATRIX], {"axis": 2}, Reason.AXIS_OUT_OF_RANGE, "axis", "from -2 to 1"),
    ([MATRIX], {"axis": (0, 0)}, Reason.INVALID_PARAMETER, "axis", "twice"),
    ([MATRIX], {"edge_order": 3}, Reason.INVALID_PARAMETER, "edge_order", "give 1 or 2"),
    ([ArrayType((2, 8), F32)], {"edge_order": 2}, Reason.INVALID_OPERAND, "x", "axis 0 of x has 2 elements"),
    ([ArrayType((1, 8), F32)], {}, Reason.INVALID_OPERAND, "x", "edge_order=1 needs 2"),
    ([MATRIX, SCALAR, SCALAR, SCALAR], {}, Reason.OPERAND_COUNT, "spacing", "3 spacings for 2 axes"),
    ([MATRIX, ArrayType((8,), F32)], {}, Reason.OPERAND_COUNT, "spacing", "1 spacing for 2 axes"),
    ([MATRIX, ArrayType((8,), F32), SCALAR], {}, Reason.INVALID_OPERAND, "spacing[0]", "the 64 coordinates"),
    ([MATRIX, ArrayType((8, 8), F32), SCALAR], {}, Reason.INVALID_OPERAND, "spacing[0]", "shape (8, 8)"),
]


@pytest.mark.parametrize(("operands", "parameters", "reason", "field", "says"), REFUSED)
def test_what_cannot_be_is_refused(refused, operands, parameters, reason, field, says):
    error = refused(GRADIENT, *operands, **parameters)
    assert (error.reason, error.field) == (reason, field)
    assert says in error.message


@pytest.mark.parametrize(("operands", "parameters"), [case[:2] for case in REFUSED[1:]])
def test_numpy_refuses_it_too(operands, parameters):
    arrays = [np.ones(operand.shape, operand.dtype) for operand in operands]
    with pytest.raises((ValueError, TypeError, np.exceptions.AxisError)):
        np.gradient(*arrays, **parameters)


@pytest.mark.parametrize("shape", [(0,), (1, 3), (2, 0), (3, 0, 2)])
def test_shapes_that_numpy_takes_are_taken(shape):
    x = ArrayType(shape, F32)
    try:
        np.gradient(np.zeros(shape, F32))
    except ValueError:
        with pytest.raises(CallError):
            GRADIENT.validate((x,), {"axis": None, "edge_order": 1})
    else:
        assert GRADIENT.validate((x,), {"axis": None, "edge_order": 1}).results[0] == x
