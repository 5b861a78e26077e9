"""Samples of cases: what they cover, that every run has the same, and which stay when a value is added."""

import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from case_sample import Sampling

SAMPLING = Sampling(cases=32, values=16)
PARAMETERS = {"layout": 6, "shape": 5, "edges": 9, "order": 6, "strategy": 2}


class Case(NamedTuple):
    id: str
    params: Mapping[str, object]


def product(counts: Mapping[str, int], value: Callable[[int], object] = str) -> list[Case]:
    """Every case of a test, by the number of values of each parameter."""
    rows = itertools.product(*(range(count) for count in counts.values()))
    return [
        Case("-".join(map(str, row)), {name: value(i) for name, i in zip(counts, row, strict=True)}) for row in rows
    ]


def pairs(cases: Iterable[Case], names: Iterable[str]) -> set[tuple[object, ...]]:
    """The pairs of values of some parameters that occur in cases."""
    chosen = [*itertools.combinations(names, 2)]
    return {(one, other, case.params[one], case.params[other]) for case in cases for one, other in chosen}


@pytest.mark.parametrize("seed", range(5))
def test_every_pair_of_values_occurs(seed: int) -> None:
    drawn = random.Random(seed)
    counts = {name: drawn.randint(1, 9) for name in "abcde"}
    cases = product(counts)
    sample = SAMPLING.sample_of("test", cases)
    assert pairs(sample, counts) == pairs(cases, counts)
    assert len(sample) < len(cases) or len(cases) <= 32


def test_a_sample_is_many_times_smaller_than_the_product_and_has_the_sequence_of_its_cases() -> None:
    cases = product(PARAMETERS)
    sample = SAMPLING.sample_of("test", cases)
    assert len(cases) == 3240
    assert len(sample) < 3240 / 20
    assert sample == [case for case in cases if case in sample]


def test_a_test_of_few_cases_has_them_all() -> None:
    assert len(SAMPLING.sample_of("test", product({"a": 4, "b": 4, "c": 2}))) == 32


def test_values_of_very_many_occur_and_the_others_in_every_pair() -> None:
    cases = product({"name": 40, "a": 3, "b": 4, "c": 5})
    sample = SAMPLING.sample_of("test", cases)
    assert {case.params["name"] for case in sample} == {case.params["name"] for case in cases}
    assert pairs(sample, "abc") == pairs(cases, "abc")
    assert len(sample) < len(cases) / 20


def test_many_numbers_are_covered_by_their_powers_of_two() -> None:
    sample = SAMPLING.sample_of("test", product({"seed": 400, "exact": 2}, int))
    present = {(int(str(case.params["seed"])).bit_length(), case.params["exact"]) for case in sample}
    assert present == {*itertools.product(range(10), range(2))}
    assert 32 <= len(sample) < 60


def test_a_sample_depends_on_names_alone_and_changes_little_when_a_value_is_added() -> None:
    def ids(cases: Sequence[Case]) -> set[str]:
        return {case.id for case in SAMPLING.sample_of("test", cases)}

    cases = product(PARAMETERS)
    assert ids(random.Random(1).sample(cases, len(cases))) == ids(cases)
    assert len(ids(product({**PARAMETERS, "shape": 6})) & ids(cases)) > 0.8 * len(ids(cases))


@pytest.mark.parametrize(
    ("options", "marks", "is_sampled"),
    [
        ({}, (), True),
        ({"markexpr": "not long"}, (), False),
        ({"--every-case": True}, (), False),
        ({}, ("fuzz",), False),
    ],
)
def test_the_long_form_has_the_sample(
    pytestconfig: pytest.Config, root: Path, options: dict[str, object], marks: tuple[str, ...], is_sampled: bool
) -> None:
    """The hook of tests/conftest.py is called with a test of 3,240 cases."""
    conftest = pytestconfig.pluginmanager.get_plugin(str(root / "tests/conftest.py"))
    test = SimpleNamespace(nodeid="test", path=root / "tests/kernels/test.py", get_closest_marker=marks.count)
    called = SimpleNamespace(config=SimpleNamespace(getoption=options.get), definition=test, _calls=product(PARAMETERS))
    conftest.pytest_generate_tests(called)
    assert len(called._calls) < 150 if is_sampled else len(called._calls) == 3240
