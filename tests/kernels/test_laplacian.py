"""`laplacian` is the sum of second differences of the array padded by np.pad, on every mesh."""

import itertools

import numpy as np
import pytest

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.stencils.laplacian import Laplacian

LAPLACIAN = Laplacian()
MODES = {"periodic": "wrap", "zero": "constant", "edge": "edge"}
X8 = {"mesh": {"x": 8}, "in_specs": [("x", None)]}
AB = {"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b")]}
ABC = {"mesh": {"a": 2, "b": 2, "c": 2}, "in_specs": [("a", "c", "b")]}
CASES = [
    (X8, (64, 5), None),
    (X8, (61, 3), None),
    (X8, (9, 1), (0, 1)),
    (AB, (13, 7), (1, 0)),
    (AB, (16, 8), (1,)),
    (ABC, (5, 6, 7), None),
    (ABC, (8, 4, 2), (2, 0)),
    ({"mesh": {"x": 1}, "in_specs": [("x",)]}, (5,), None),
]
SHORT = [  # each boundary where the mesh divides nothing, and every layout
    *[(boundary, *CASES[i]) for boundary in MODES for i in (1, 3)],
    *[(boundary, *case) for boundary, case in zip(itertools.cycle(MODES), CASES, strict=False)],
]


def expected(x, axes, boundary, spacing=()):
    named = range(x.ndim) if axes is None else np.atleast_1d(axes)
    total = np.zeros_like(x)
    for i, axis in enumerate(named):
        rows = np.moveaxis(np.pad(x, [(int(j == axis),) * 2 for j in range(x.ndim)], MODES[boundary]), axis, 0)
        term = rows[:-2] - (rows[1:-1] + rows[1:-1]) + rows[2:]
        total = total + np.moveaxis(term / spacing[i] ** 2 if spacing else term, 0, axis)
    return total


def check(run, same, x, layout, axes, boundary, strategy="halo"):
    same(
        run(LAPLACIAN, x, padding=np.nan, axes=axes, boundary=boundary, strategy=strategy, **layout),
        expected(x, axes, boundary),
    )


@pytest.mark.parametrize(("boundary", "layout", "shape", "axes"), SHORT)
def test_the_sum_is_numpys(run, values, same, boundary, layout, shape, axes):
    check(run, same, values.normal(shape, np.float64), layout, axes, boundary)


@pytest.mark.parametrize("spec", [(None, "x", None), (None, None, "x")])
def test_the_compiler_pads_sharded_axes_with_complex_zeros(run, values, same, spec):
    x = values.small((3, 4, 4), np.dtype(np.complex64))
    check(run, same, x, {"mesh": {"x": 2}, "in_specs": [spec]}, (1, 2), "zero", "gspmd")


def test_only_outermost_rows_travel(run):
    x = ArrayType((64, 16), np.dtype(np.float64))
    text = run.program(LAPLACIAN, x, strategy="halo", **AB).compiled.as_text()
    assert text.count(" collective-permute(") == 4
    assert text.count("f64[1,8]{1,0} collective-permute(") == 2
    assert text.count("f64[16,1]{1,0} collective-permute(") + text.count("f64[16,1]{0,1} collective-permute(") == 2
    assert not any(word in text for word in ("all-gather", "all-to-all", "all-reduce"))


F32 = np.dtype(np.float32)
MATRIX = ArrayType((64, 8), F32)
SCALAR = ArrayType((), F32)


@pytest.mark.parametrize(
    ("operands", "parameters", "reason", "field", "says"),
    [
        ([SCALAR], {}, Reason.INVALID_OPERAND, "x", "a scalar"),
        ([ArrayType((8,), np.dtype(bool))], {}, Reason.UNSUPPORTED_ELEMENT_TYPE, "x", "bool"),
        ([MATRIX], {"axes": 2}, Reason.AXIS_OUT_OF_RANGE, "axes", "from -2 to 1"),
        ([MATRIX], {"axes": (0, -2)}, Reason.INVALID_PARAMETER, "axes", "twice"),
        ([MATRIX], {"axes": ()}, Reason.INVALID_PARAMETER, "axes", "name one or more"),
        ([MATRIX], {"boundary": "wrap"}, Reason.INVALID_PARAMETER, "boundary", "give 'periodic' or 'zero' or 'edge'"),
        ([MATRIX, SCALAR, SCALAR, SCALAR], {}, Reason.OPERAND_COUNT, "spacing", "3 spacings for 2 axes"),
        ([MATRIX, ArrayType((64,), F32), SCALAR], {}, Reason.INVALID_OPERAND, "spacing[0]", "give a scalar"),
    ],
)
def test_what_cannot_be_is_refused(refused, operands, parameters, reason, field, says):
    error = refused(LAPLACIAN, *operands, **parameters)
    assert (error.reason, error.field) == (reason, field)
    assert says in error.message
