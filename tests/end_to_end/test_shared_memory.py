"""Clients on the server's host: their arrays are in shared memory, or in messages where sharing is impossible."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from end_to_end.messages import token_of
from end_to_end.processes import wait_for
from servers import ServerProcess

import shardcall as sc

LARGE = np.random.default_rng(1).standard_normal((1024, 1024))  # 8 MiB


@pytest.fixture
def local(limited: ServerProcess) -> Iterator[sc.Client]:
    """A client of that server."""
    with sc.connect(limited.address) as client:
        yield client


def shared(array: np.ndarray) -> bool:
    """Returns whether an array's first byte is in a segment."""
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(bound, 16) for bound in line.split(maxsplit=1)[0].split("-"))
        if begin <= address < end:
            return "shardcall-segment" in line
    raise AssertionError("the array is in no segment")


def test_results_are_read_without_a_copy_and_keep_their_memory(local: sc.Client):
    first = local.diff(LARGE, axis=0, prepend=0.0).array
    assert shared(first)
    assert first.flags.writeable
    expected = np.diff(LARGE, axis=0, prepend=0.0)
    second = local.diff(LARGE + 1, axis=0, prepend=0.0).array
    np.testing.assert_array_equal(first, expected)
    first[...] = 7
    np.testing.assert_array_equal(second, np.diff(LARGE + 1, axis=0, prepend=0.0))


def test_arrays_stay_valid_after_the_client_is_closed(limited: ServerProcess):
    with sc.connect(limited.address) as client:
        result, empty = client.diff(LARGE, axis=0).array, client.empty(LARGE.shape)
        empty[...] = 3
    assert shared(result)
    assert shared(empty)
    with sc.connect(limited.address) as other:  # whose segment is another
        wait_for(lambda: other.usage().segments == 0)
        theirs = other.empty(LARGE.shape)
        theirs[...] = 9
        other.diff(theirs, axis=0)
        np.testing.assert_array_equal(result, np.diff(LARGE, axis=0))
        assert (empty == 3).all()
        result[...] = empty[...] = 5


def test_with_a_full_segment_results_come_as_streams(local: sc.Client):
    held = [local.diff(LARGE + i, axis=0, prepend=0.0).array for i in range(8)]
    in_segments = [shared(array) for array in held]
    assert in_segments[0]
    assert not in_segments[-1]
    assert local.usage().segments == 1
    for i, array in enumerate(held):
        np.testing.assert_array_equal(array, np.diff(LARGE + i, axis=0, prepend=0.0))
    del held, array
    assert shared(local.diff(LARGE, axis=0, prepend=0.0).array)


def test_an_operand_changed_after_the_answer_changes_no_result(local: sc.Client):
    x = local.empty((512, 1024))
    x[...] = LARGE[:512]
    expected = np.diff(x, axis=0)
    result = local.diff(x, axis=0)
    kept = local.diff(x, axis=0, keep=True).array
    copied = local.diff(x, n=0, keep=True).array
    put = local.put(x)
    x[...] = 0
    np.testing.assert_array_equal(result.array, expected)
    np.testing.assert_array_equal(kept.get(), expected)
    for array in (copied, put):
        np.testing.assert_array_equal(array.get(), LARGE[:512])


def test_many_threads_of_two_clients_with_different_shapes(limited: ServerProcess, local: sc.Client):
    shapes = [(256, 1024), (300, 700), (128, 2048), (64, 64)]
    arrays = [np.random.default_rng(i).standard_normal(shape) for i, shape in enumerate(shapes)]

    def hammer(client: sc.Client, thread: int) -> None:
        held = []
        for i in range(12):
            x = arrays[(thread + i) % len(arrays)] + thread
            held = [*held[-2:], (x, client.diff(x, axis=0, prepend=float(i)).array, i)]
            for operand, result, first in held:  # what came before is still as it was
                np.testing.assert_array_equal(result, np.diff(operand, axis=0, prepend=float(first)))

    with sc.connect(limited.address, token=token_of("guest")) as second, ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(hammer, [local, second][i % 2], i) for i in range(8)]:
            done.result(60)
        assert local.usage().segments == 2
