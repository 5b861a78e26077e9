"""A sample of the cases of NumPy's tests: its loops over sizes and element types make thousands of cases of one test.

A size is a program of its own, which takes a tenth of a second to compile.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np
import pytest

CASES = 8
"""The smallest number of cases of a test in the sample, and the largest number of values that is covered."""


def sample_of(cases: Iterable[pytest.Function]) -> set[pytest.Function]:
    """Returns all cases of tests that have few, and of others those that cover every pair of parameters' values.

    Numbers of which there are many are covered by their powers of two. The sample depends on names alone, and so is the
    same in every run and process.
    """
    tests: defaultdict[str, list[pytest.Function]] = defaultdict(list)
    for case in cases:
        tests[case.nodeid.partition("[")[0]].append(case)
    return {case for test in tests.values() for case in _sample_of_test(test)}


def _sample_of_test(cases: Sequence[pytest.Function]) -> Iterator[pytest.Function]:
    if len(cases) <= CASES:
        yield from cases
        return
    values: defaultdict[str, set[str]] = defaultdict(set)
    for case in cases:
        for name, value in case.callspec.params.items():
            values[name].add(repr(value))
    few = {name for name, texts in values.items() if len(texts) <= CASES}
    covered: set[Hashable] = set()
    count = 0
    for case in sorted(cases, key=lambda case: zlib.crc32(case.nodeid.encode())):
        pairs = _pairs(case, few)
        if count < CASES or not pairs <= covered:
            covered |= pairs
            count += 1
            yield case


def _pairs(case: pytest.Function, few: set[str]) -> set[Hashable]:
    """The pairs of values of a case; the value itself where it has only one that counts."""
    values: list[Hashable] = []
    for name, value in case.callspec.params.items():
        if name in few:
            values.append((name, repr(value)))
        elif isinstance(value, int | np.integer):
            values.append((name, int(value).bit_length()))
    return set(combinations(values, 2)) if len(values) > 1 else set(values)
