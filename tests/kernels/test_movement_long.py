"""The functions that move elements in every layout, of every element type."""

import itertools

import numpy as np
import pytest
from kernels import test_movement as short
from kernels.conftest import ELEMENT_TYPES, assert_same_bits, with_cases
from kernels.table_cases import MOVES, expected
from kernels.test_movement import KERNELS, LAYOUTS, specs

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", MOVES)
def test_results_are_sharded_as_the_call_says(run, values, name):
    shapes, parameters = MOVES[name][0]
    operands = tuple(None if shape is None else values.normal(shape) for shape in shapes)
    reference = expected(name, operands, parameters)
    rest = [None] * (reference.ndim - 1)
    how = {"mesh": {"a": 2, "b": 2}, "in_specs": specs(shapes, ("a", "b", None)), **parameters}
    out_specs = [None, *rest], ["a", *rest], [*rest, ("b", "a")]
    cases = [(run.call(KERNELS[name], *operands, **how, out_specs=[spec]), reference) for spec in out_specs]
    run.check_together(cases, assert_same_bits, np.nan)


@pytest.mark.parametrize("name", ["stack", "concatenate"])
def test_every_operand_may_be_sharded_differently(run, values, name):
    arrays, how = values.normal((2, 13, 9)), {"axis": 1, "mesh": {"a": 4, "b": 2}}
    cases = [
        (run.call(KERNELS[name], *arrays, in_specs=in_specs, **how), getattr(np, name)(arrays, axis=1))
        for in_specs in itertools.permutations([(None, None), (None, "a"), ("b", "a")], 2)
    ]
    run.check_together(cases, assert_same_bits, np.nan)


test_results_are_numpys = with_cases(short.test_results_are_numpys, {"layout": LAYOUTS})
test_every_bit_is_kept = with_cases(short.test_every_bit_is_kept, {"first": range(len(ELEMENT_TYPES))})
test_astype_is_numpys = with_cases(short.test_astype_is_numpys, {"first": range(len(short.CONVERTED))})
