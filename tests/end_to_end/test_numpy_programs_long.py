"""The tests of `test_numpy_programs.py` that take long."""

from itertools import chain

import pytest
from end_to_end.numpy_comparison import Tally, TracedComparison, ValueComparison
from end_to_end.numpy_pairs import CORE, pair_programs, triple_programs
from end_to_end.numpy_programs import drawn_program
from end_to_end.test_numpy_programs import SEED, check, compare_lines

pytestmark = pytest.mark.long

_TRACED, _VALUES, _BLOCKS = 300, 20, 20


_LONG_TRACED, _LONG_VALUES = 20_000 // _BLOCKS, 1_000 // _BLOCKS


@pytest.fixture
def figure(record_property):
    return lambda tally: record_property("figure", f"NumPy programs, seed {SEED}: {tally}")


def compare_drawn(comparison: TracedComparison | ValueComparison, numbers: range) -> None:
    for number in numbers:
        comparison.check(drawn_program(SEED, number))


def test_programs_have_numpys_shapes_types_and_errors(client, figure):
    tally = Tally()
    compare_drawn(TracedComparison(client, tally), range(_TRACED))
    figure(tally)
    check(tally)


def test_programs_have_numpys_values(client, figure):
    tally = Tally()
    compare_drawn(ValueComparison(client, tally), range(_VALUES))
    figure(tally)
    check(tally)


@pytest.mark.parametrize("uses_xp", [False, True], ids=["numpy", "xp"])
def test_functions_of_several_operands_promote_every_pair_of_types(client, uses_xp):
    tally = Tally()
    compare_lines(TracedComparison(client, tally), pair_programs(CORE, uses_xp=uses_xp, numbers=False))
    check(tally)


@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(_BLOCKS))
def test_thousands_of_programs_have_numpys_shapes_types_and_errors(client, figure, block):
    tally = Tally()
    compare_drawn(TracedComparison(client, tally), range(block * _LONG_TRACED, (block + 1) * _LONG_TRACED))
    figure(tally)
    check(tally)


@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(_BLOCKS))
def test_a_thousand_programs_have_numpys_values(client, figure, block):
    tally = Tally()
    compare_drawn(ValueComparison(client, tally), range(block * _LONG_VALUES, (block + 1) * _LONG_VALUES))
    figure(tally)
    check(tally)


@pytest.mark.fuzz
@pytest.mark.parametrize("uses_xp", [False, True], ids=["numpy", "xp"])
def test_every_call_promotes_every_pair_of_types_and_numbers_of_python(client, figure, uses_xp):
    tally = Tally()
    programs = chain(pair_programs(uses_xp=uses_xp), triple_programs(SEED, 700, uses_xp=uses_xp))
    compare_lines(TracedComparison(client, tally), programs)
    figure(tally)
    check(tally)
