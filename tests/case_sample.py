"""Samples of the cases of tests: not every combination of the values of parameters, but every triple or pair.

Most cases are programs of their own, which take a tenth of a second or more to compile.
"""

from __future__ import annotations

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
        strength: 3 for every triple of values, 2 for every pair.
        cases: the smallest number of cases of a test in its sample; a test of fewer has them all.
        values: the largest number of values of which that is so. A value of a parameter that has more occurs in every
            combination of one value fewer, and of more numbers their powers of two count as values.
    """

    strength: int
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
        combinations_of = self._combinations_of(cases)
        chosen, covered = set[str](), set[Hashable]()
        for case in sorted(cases, key=lambda case: _order(test, case)):
            if len(chosen) < self.cases or not combinations_of[case.id] <= covered:
                covered |= combinations_of[case.id]
                chosen.add(case.id)
        return [case for case in cases if case.id in chosen]

    def _combinations_of(self, cases: Iterable[C]) -> Mapping[str, set[Hashable]]:
        """The combinations of values that each case covers, by its id."""
        values: defaultdict[str, set[str]] = defaultdict(set)
        for case in cases:
            for name, value in case.params.items():
                values[name].add(repr(value))
        few = {name for name, texts in values.items() if len(texts) <= self.values}
        return {case.id: {*self._combinations(case, few)} for case in cases}

    def _combinations(self, case: Case, few: set[str]) -> Iterator[Hashable]:
        of_few: list[Hashable] = []
        of_many: list[Hashable] = []
        for name, value in case.params.items():
            if name in few:
                of_few.append((name, repr(value)))
            elif isinstance(value, int | np.integer):
                of_few.append((name, int(value).bit_length()))
            else:
                of_many.append((name, repr(value)))
        yield from combinations(of_few, min(self.strength, len(of_few)))
        for value in of_many:
            others = of_few + [other for other in of_many if other != value]
            for rest in combinations(others, min(self.strength - 2, len(others))):
                yield frozenset([value, *rest])


def _order(test: str, case: Case) -> int:
    return zlib.crc32(f"{test}[{case.id}]".encode())
