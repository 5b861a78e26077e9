"""The tests of `test_element_types.py` that take long."""

import itertools

import jax
import numpy as np
import pytest
from kernels.test_element_types import FLOAT8

from shardcall_server.kernels.core.element_types import (
    convert,
)

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("source", "small"), [*itertools.product(["uint8", "int8", "bool"], FLOAT8)], ids=str)
def test_integers_convert_to_float8_as_numpy_does(source, small, same):
    values = np.arange(2 if source == "bool" else 256).astype(np.uint8).view(source)
    same(np.asarray(jax.jit(lambda a: convert(a, small))(values)), values.astype(small))
