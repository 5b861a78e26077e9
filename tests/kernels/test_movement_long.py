"""The functions that move elements in every layout, of every element type."""

import itertools

import numpy as np
import pytest
from kernels import test_movement as short
from kernels.conftest import ELEMENT_TYPES, with_cases
from kernels.table_cases import MOVES, OTHERS, expected
from kernels.test_movement import (
    KERNELS,
    LAYOUTS,
    assert_same_bits,
    index,
    specs,
)

pytestmark = pytest.mark.long


@pytest.mark.parametrize("out_spec", range(3))
@pytest.mark.parametrize("name", MOVES)
def test_results_are_sharded_as_the_call_says(run, values, name, out_spec):
    shapes, parameters = MOVES[name][0]
    operands = tuple(None if shape is None else values.normal(shape) for shape in shapes)
    reference = expected(name, operands, parameters)
    ndim = reference.ndim
    out_specs = [None] * ndim, ["a", *[None] * (ndim - 1)], [*[None] * (ndim - 1), ("b", "a")]
    how = {"mesh": {"a": 2, "b": 2}, "in_specs": specs(shapes, ("a", "b", None)), "out_specs": [out_specs[out_spec]]}
    assert_same_bits(run(KERNELS[name], *operands, **how, padding=np.nan, **parameters), reference)


@pytest.mark.parametrize("name", ["stack", "concatenate"])
def test_every_operand_may_be_sharded_differently(run, values, name):
    x, y = values.normal((13, 9), np.float32), values.normal((13, 9), np.float32)
    for in_specs in itertools.permutations([(None, None), (None, "a"), ("b", "a")], 2):
        result = run(KERNELS[name], x, y, axis=1, mesh={"a": 4, "b": 2}, in_specs=in_specs, padding=float("nan"))
        assert_same_bits(result, getattr(np, name)([x, y], axis=1))


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@pytest.mark.parametrize("spec", [("x", None, None), (None, None, "x")])
def test_traces_are_numpys(run, values, dtype, spec):
    for shapes, parameters in OTHERS["trace"]:
        x = values.small(shapes[0], dtype)
        how = {"mesh": {"x": 3}, "in_specs": specs(shapes, spec), "padding": 7}
        wide = x.astype(np.float32) if dtype.name.startswith("float8") else x  # NumPy rounds every step of those
        reference = expected("trace", (wide,), parameters)
        reference = reference.astype(parameters.get("dtype", dtype)) if wide is not x else reference
        assert_same_bits(run(KERNELS["trace"], x, **how, **parameters), reference)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_slices_of_every_type(run, values, dtype):
    x = values.any((7, 4), dtype)
    starts, parameters = index(x, np.s_[5:1:-1])
    result = run(KERNELS["getitem"], x, starts.astype(np.int32), mesh={"x": 3}, **parameters)
    assert_same_bits(result, x[5:1:-1])


test_results_are_numpys = with_cases(short.test_results_are_numpys, {"mesh, spec": LAYOUTS})
test_every_bit_is_kept = with_cases(short.test_every_bit_is_kept, {"first": range(len(ELEMENT_TYPES))})
test_astype_is_numpys = with_cases(short.test_astype_is_numpys, {"first": range(len(short.CONVERTED))})
test_slices_are_numpys = with_cases(short.test_slices_are_numpys, {"mesh, spec": LAYOUTS})
