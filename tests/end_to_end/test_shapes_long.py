"""The tests of `test_shapes.py` that take long."""

import numpy as np
import pytest
from end_to_end.test_shapes import MESH, X

from shardcall import P

pytestmark = pytest.mark.long

CALLS = [
    ("reshape", ((3, -1),), {}),
    ("expand_dims", ((0, -1),), {}),
    ("squeeze", (), {}),
    ("broadcast_to", ((2, 9, 6),), {}),
    ("flip", (), {"axis": 1}),
    ("astype", (np.int16,), {}),
    ("tile", ((2, 1),), {}),
    ("repeat", (3,), {"axis": 0}),
    ("tril", (-1,), {}),
    ("triu", (), {"k": 2}),
    ("diagonal", (1,), {}),
    ("trace", (), {"dtype": np.float32}),
    ("pad", (((1, 2), (0, 3)),), {"constant_values": 7}),
    ("pad", (2, "reflect"), {}),
    ("sort", (), {"axis": None}),
    ("argsort", (0,), {}),
    ("take", (np.array([[3, -1]]), 0), {}),
    ("take_along_axis", (np.array([[3, -1]] * 9), 1), {}),
]


@pytest.mark.parametrize(("name", "arguments", "keywords"), CALLS)
def test_methods_are_numpys(client, name, arguments, keywords):
    expected = np.asarray(getattr(np, name)(X, *arguments, **keywords))
    result = getattr(client, name)(X, *arguments, mesh=MESH, spec=P("x", None), **keywords)
    np.testing.assert_array_equal(result.array, expected, strict=True)


@pytest.mark.parametrize(
    ("window", "axis"), [(3, 0), ((2, 3), None), ((2, 2), (1, 1)), (70, 0), (1, -1), ((), ())], ids=str
)
def test_windows_are_numpys(client, window, axis):
    windows = np.lib.stride_tricks.sliding_window_view
    values = np.arange(90.0 * 4).reshape(90, 4)
    result = windows(client.put(values, mesh=MESH, spec=P("x", None)), window, axis=axis)
    np.testing.assert_array_equal(result.get(), windows(values, window, axis=axis), strict=True)
