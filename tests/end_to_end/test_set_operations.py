"""Unions, intersections and differences of arrays on the mesh equal NumPy's."""

import numpy as np
import pytest

import shardcall as sc


def test_sizes_that_depend_on_values_are_not_traced(strict_client):
    for function in (np.union1d, np.intersect1d, np.setdiff1d, np.setxor1d):
        with pytest.raises(sc.TracingError):
            strict_client.jit(function).trace(np.arange(3), np.arange(4))
