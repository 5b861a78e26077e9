"""Samples of the cases of tests: not every combination of the values of parameters, but every pair.

Most cases are programs of their own, which take a tenth of a second or more to compile.
"""

import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol, TypeVar

import numpy as np


class Case(Protocol):
    """A case of a parametrized test."""

    @property
    def id(self) -> str: ...

    @property
    def params(self) -> Mapping[str, object]: ...


C = TypeVar("C", bound=Case)


@dataclass(frozen=True)
class Sampling:
    """The coverage of a sample.

    Attributes:
        cases: the smallest number of cases of a test in its sample; a test of fewer has them all.
        values: the largest number of values of a parameter of which each occurs with each of others. Of a parameter
            that has more each occurs, and of more numbers their powers of two count as values.
    """

    cases: int
    values: int

    def sample_of(self, test: str, cases: Iterable[C]) -> list[C]:
        """Returns cases of a test that cover the others, in their sequence.

        The sample depends on names alone, and so is the same in every run and process.

        Args:
            test: the name of the test.
            cases: all its cases.
        """
        cases = [*cases]
        pairs_of = self._pairs_of(cases)
        chosen, covered = set[str](), set[Hashable]()
        for case in sorted(cases, key=lambda case: _order(test, case)):
            if len(chosen) < self.cases or not pairs_of[case.id] <= covered:
                covered |= pairs_of[case.id]
                chosen.add(case.id)
        return [case for case in cases if case.id in chosen]

    def _pairs_of(self, cases: Iterable[Case]) -> Mapping[str, set[Hashable]]:
        """The pairs of values, and the values of many, that each case covers, by its id."""
        values: defaultdict[str, set[str]] = defaultdict(set)
        for case in cases:
            for name, value in case.params.items():
                values[name].add(repr(value))
        few = {name for name, texts in values.items() if len(texts) <= self.values}
        return {case.id: {*_pairs(case, few)} for case in cases}


def _pairs(case: Case, few: set[str]) -> Iterator[Hashable]:
    of_few: list[Hashable] = []
    for name, value in case.params.items():
        if name in few:
            of_few.append((name, repr(value)))
        elif isinstance(value, int | np.integer):
            of_few.append((name, int(value).bit_length()))
        else:
            yield name, repr(value)
    yield from combinations(of_few, min(2, len(of_few)))


def _order(test: str, case: Case) -> int:
    return zlib.crc32(f"{test}[{case.id}]".encode())
