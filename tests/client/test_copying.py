import signal
import threading

import numpy as np
import pytest
from rows import rows

from shardcall._src.transfer.copying import Copier

MIB = 2**20


@pytest.fixture
def copier():
    copier_under_test = Copier()
    yield copier_under_test
    copier_under_test.close()


@rows("shape", [(), (0,), (3, 0), (MIB + 3,), (1, MIB + 3), (1, 1, 3, 350_001), (5, 220_001)])
@rows("order", ["C", "F"])
def test_every_element_is_copied(copier, shape, order):
    source = np.asarray(np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape), order=order)
    target = np.empty(shape)
    copier.copy(target, source)
    np.testing.assert_array_equal(target, source)


def helpers():
    return {thread for thread in threading.enumerate() if thread.name.startswith("shardcall-copy")}


def test_one_thread_helps_with_large_copies_and_ends_on_closing(copier):
    before = helpers()
    copier.copy(np.empty(MIB, np.uint8), np.zeros(MIB, np.uint8))
    assert helpers() <= before
    for _ in range(3):
        copier.copy(np.empty(16 * MIB, np.uint8), np.zeros(16 * MIB, np.uint8))
    (helper,) = helpers() - before
    copier.close()
    helper.join(10)
    assert not helper.is_alive()
    target = np.empty(16 * MIB, np.uint8)
    copier.copy(target, np.ones(16 * MIB, np.uint8))
    assert target.all()


def test_ctrl_c_ends_no_copy_before_the_helper_has(copier, monkeypatch):
    copyto, may_copy = np.copyto, threading.Event()

    def copy(*arguments, **keywords):
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGINT)
            may_copy.set()
        else:
            may_copy.wait(60)
        copyto(*arguments, **keywords)

    monkeypatch.setattr(np, "copyto", copy)
    target = np.zeros(16 * MIB, np.uint8)
    with pytest.raises(KeyboardInterrupt):
        copier.copy(target, np.ones_like(target))
    assert target.all()


def test_a_copy_for_which_no_thread_starts_is_not_repeated_later(copier, monkeypatch):
    def refuse(*arguments):
        raise RuntimeError("can't start new thread")

    target = np.zeros(16 * MIB, np.uint8)
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        copier.copy(target, np.ones_like(target))
    assert target.all()
    target[:] = 0
    copier.copy(np.empty_like(target), np.ones_like(target))
    assert not target.any()
