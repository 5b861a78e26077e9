"""Short forms of tests of many layouts: not every combination, but every pair of values."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def pairs_of(*values: Sequence[Any]) -> list[Any]:
    """Returns the parameters of all combinations; `long` are those that the short form needs for no pair of values.

    Of two sequences the short form has every value, of three or more every pair.
    """
    shortest = min(map(len, values))
    indices = product(*(range(len(sequence)) for sequence in values))
    return [
        pytest.param(
            *(sequence[i] for sequence, i in zip(values, numbers, strict=True)),
            marks=() if sum(numbers) % shortest == 0 else pytest.mark.long,
        )
        for numbers in indices
    ]
