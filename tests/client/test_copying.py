import threading

import numpy as np
import pytest

from shardcall.copying import Copier

MIB = 2**20


@pytest.fixture
def copier():
    made = Copier()
    yield made
    made.close()


@pytest.mark.parametrize(
    "shape", [(), (0,), (3, 0), (2 * MIB,), (1, 2 * MIB), (1, 1, 3, 700_001), (5, 400_001)], ids=str
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_element_is_copied(copier, shape, order):
    source = np.asarray(np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape), order=order)
    target = np.empty(shape)
    copier.copy(target, source)
    np.testing.assert_array_equal(target, source)


def test_one_thread_helps_with_large_copies_and_ends_on_closing(copier):
    before = set(threading.enumerate())
    copier.copy(np.empty(MIB, np.uint8), np.zeros(MIB, np.uint8))
    assert set(threading.enumerate()) <= before
    for _ in range(3):
        copier.copy(np.empty(16 * MIB, np.uint8), np.zeros(16 * MIB, np.uint8))
    (helper,) = set(threading.enumerate()) - before
    copier.close()
    helper.join(10)
    assert not helper.is_alive()
    target = np.empty(16 * MIB, np.uint8)
    copier.copy(target, np.ones(16 * MIB, np.uint8))
    assert target.all()
