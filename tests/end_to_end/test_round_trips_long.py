"""A great many arrays that come back bit for bit, and large ones of every layout."""

from __future__ import annotations

import numpy as np
import pytest
from end_to_end.test_round_trips import LAYOUTS, MIB, Case, cases, round_trip, short_chunks
from hypothesis import given, settings

import shardcall as sc

pytestmark = pytest.mark.long
__all__ = ["round_trip", "short_chunks"]


@settings(max_examples=20_000, deadline=None)
@given(case=cases())
def test_a_great_many_arrays_come_back_bit_for_bit(round_trip, case):
    round_trip(case)


@pytest.mark.parametrize("path", ["shared", "streamed"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_large_arrays_of_every_layout_come_back_too(round_trip, layout, path):
    for dtype in (np.dtype(np.float64), np.dtype(np.uint8)):
        shape = () if layout == "scalar" else (5 * MIB // dtype.itemsize // 23, 23)
        round_trip(Case(dtype, shape, layout, path, sc.Mesh(a=4, b=2), None, seed=1))
