"""Basic indices, read as NumPy reads them."""

import itertools

import numpy as np
import pytest
from rows import rows

from shardcall_core.functions.indexing import basic_index, is_basic

SHAPES = [(), (1,), (5,), (0,), (3, 4), (2, 0, 3), (3, 4, 5)]
ITEMS = [
    *(0, -1, 2, np.int8(1), np.asarray(1)),
    *(slice(None), slice(1, -1), slice(None, None, -1), slice(4, 0, -2), slice(9, 2), slice(-100, 100, 3)),
    *(slice(np.int64(1), None), None, Ellipsis),
]
WRONG = [1.0, True, np.float64(1), "x", slice(1.5), slice(None, None, 0), [0], 10, -10, slice("a", None)]


def taken(x, index):
    """An array's slices, as the kernel takes them."""
    for axis, (start, size, step) in enumerate(zip(index.starts, index.sizes, index.steps, strict=True)):
        assert not size or 0 <= start < x.shape[axis]
        assert not size or 0 <= start + (size - 1) * step < x.shape[axis]
        x = np.take(x, [start + i * step for i in range(size)], axis)
    return np.expand_dims(np.squeeze(x, index.dropped), index.inserted)


def result_or_message(indexed):
    """The result, or else the text of the IndexError."""
    try:
        return indexed(), ""
    except IndexError as error:
        return None, str(error)


@rows("shape", SHAPES)
def test_indices_are_numpys(shape):
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    seen = 0
    for count in range(4):
        for key in itertools.product(ITEMS, repeat=count):
            expected, message = result_or_message(lambda: np.asarray(x[key]))  # noqa: B023
            actual, actual_message = result_or_message(lambda: taken(x, basic_index(shape, key)))  # noqa: B023
            assert message == actual_message, key
            if expected is not None:
                seen += 1
                np.testing.assert_array_equal(actual, expected, strict=True)
    assert seen


def test_an_item_is_a_tuple_of_one_and_arrays_are_no_basic_indices():
    for item in ITEMS:
        assert basic_index((3, 4), item) == basic_index((3, 4), (item,))
        assert is_basic(item)
    assert all(map(is_basic, (0, None, ..., slice(2), np.uint8(3))))
    for key in ([0, 1], np.arange(2), True, np.True_, 1.0, (0, 1), (), np.zeros(()), "x"):
        assert not is_basic(key)


@rows("item", WRONG)
def test_errors_are_of_numpys_classes(item):
    if isinstance(item, list | bool):  # which NumPy takes for an array
        expected = IndexError
    else:
        with pytest.raises((IndexError, TypeError, ValueError)) as raised:
            np.zeros((3, 4))[0, item]
        expected = raised.type
    with pytest.raises(expected) as refused:
        basic_index((3, 4), (0, item))
    if expected is not IndexError or not isinstance(item, list | bool):
        assert str(refused.value) == str(raised.value)


def test_a_slice_of_one_element_has_the_step_1():
    assert basic_index((9,), slice(3, 4, 5)).steps == (1,)
    assert basic_index((9,), slice(3, 4, -5)) == ((0,), (0,), (1,), (), ())
