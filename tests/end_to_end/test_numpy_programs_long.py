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
def compared(client, record_property):
    """Compares programs, line by line or as many lines as agree, and records what they are counted as."""

    def compare(comparison, programs, *, by_lines=False):
        tally = Tally()
        if by_lines:
            compare_lines(comparison(client, tally), programs)
        else:
            for program in programs:
                comparison(client, tally).check(program)
        record_property("figure", f"NumPy programs, seed {SEED}: {tally}")
        check(tally)

    return compare


def block_of(block, count):
    return (drawn_program(SEED, number) for number in range(block * count, (block + 1) * count))


def test_programs_have_numpys_shapes_types_and_errors(compared):
    compared(TracedComparison, block_of(0, _TRACED))


def test_programs_have_numpys_values(compared):
    compared(ValueComparison, block_of(0, _VALUES))


@pytest.mark.parametrize("uses_xp", [False, True], ids=["numpy", "xp"])
def test_functions_of_several_operands_promote_every_pair_of_types(compared, uses_xp):
    compared(TracedComparison, pair_programs(CORE, uses_xp=uses_xp, numbers=False), by_lines=True)


@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(_BLOCKS))
def test_thousands_of_programs_have_numpys_shapes_types_and_errors(compared, block):
    compared(TracedComparison, block_of(block, _LONG_TRACED))


@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(_BLOCKS))
def test_a_thousand_programs_have_numpys_values(compared, block):
    compared(ValueComparison, block_of(block, _LONG_VALUES))


@pytest.mark.fuzz
@pytest.mark.parametrize("uses_xp", [False, True], ids=["numpy", "xp"])
def test_every_call_promotes_every_pair_of_types_and_numbers_of_python(compared, uses_xp):
    programs = chain(pair_programs(uses_xp=uses_xp), triple_programs(SEED, 700, uses_xp=uses_xp))
    compared(TracedComparison, programs, by_lines=True)
