"""The locks that know who holds them, and those without SHARDCALL_DEBUG_LOCKS."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardcall_core import locks
from shardcall_core.locks import LEAF, LockError, check_held, lock, rlock


def test_without_the_variable_locks_are_those_of_threading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(locks.VARIABLE)
    assert type(lock("one")) is type(threading.Lock())
    assert type(rlock("one")) is type(threading.RLock())
    check_held(lock("one"))


def test_the_tests_and_their_servers_check_locks() -> None:
    assert os.environ[locks.VARIABLE] == "1"


@pytest.mark.parametrize("make", [lock, rlock])
def test_a_lock_is_held_in_its_block_and_by_that_thread_alone(make: type) -> None:
    one = make("the table")
    with pytest.raises(LockError, match="the table must be held here"):
        check_held(one)
    with one, ThreadPoolExecutor(1) as other:
        check_held(one)
        with pytest.raises(LockError):
            other.submit(check_held, one).result()
        assert not other.submit(one.acquire, False).result()
    with pytest.raises(LockError):
        check_held(one)


def test_a_lock_taken_twice_by_a_thread_is_an_error_and_a_reentrant_one_needs_as_many_releases() -> None:
    one, again = lock("one"), rlock("again")
    with one, pytest.raises(LockError, match="one is taken by the thread that holds it"):
        one.acquire()
    with again:
        with again:
            pass
        check_held(again)


def test_locks_are_taken_in_ascending_order() -> None:
    outer, inner, leaf = rlock("outer", 10), lock("inner", 20), lock("leaf")
    with outer, inner, outer, leaf:
        pass
    with inner, pytest.raises(LockError, match=r"outer \(order 10\) is taken under inner \(order 20\)"):
        outer.acquire()
    with outer:  # the error has taken nothing
        pass


def test_nothing_is_taken_under_a_leaf_but_by_a_thread_that_gives_up() -> None:
    with lock("leaf"), pytest.raises(LockError, match=f"other \\(order {LEAF}\\) is taken under leaf"):
        lock("other").acquire()
    outer, leaf = lock("outer", 10), lock("leaf")
    with leaf:
        assert outer.acquire(timeout=1.0)
        outer.release()
        assert not leaf.acquire(blocking=False)


@pytest.mark.parametrize("make", [lock, rlock])
def test_a_condition_gives_its_lock_back_while_it_waits(make: type) -> None:
    one = make("one")
    changed, is_set = threading.Condition(one), []

    def change() -> None:
        with changed:
            is_set.append(True)
            changed.notify()

    with ThreadPoolExecutor(1) as other, changed:
        done = other.submit(change)
        assert changed.wait_for(lambda: is_set, 60.0)
        check_held(one)
    done.result()


def test_a_thread_waits_for_no_condition_under_another_lock() -> None:
    changed = threading.Condition(rlock("inner", 20))
    with lock("outer", 10), changed, pytest.raises(LockError, match="guards under outer"):
        changed.wait(0.0)


_FORKING = """
import os
from shardcall_core.locks import check_held, lock

one, other = lock("one"), lock("other")
with one:
    if not (pid := os.fork()):
        other.acquire()
        one.release()
        os._exit(0)
    check_held(one)
assert os.waitpid(pid, 0)[1] == 0
"""


def test_a_forked_child_holds_no_lock() -> None:
    """In a process of its own: JAX and gRPC, which other tests load, object to forks."""
    subprocess.run([sys.executable, "-c", _FORKING], check=True, timeout=60)
