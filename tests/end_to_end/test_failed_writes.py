"""Writes to arrays that fail after they were submitted: the arrays have the values again that they had before."""

import copy
import gc

import numpy as np
import pytest
from client_parts import leased_handles_of, version_of
from rows import rows

import shardcall as sc

X = np.arange(2, 8)
REFUSED = r"test_failed_writes\.py:\d+, failed: .*negative integer"
WRITES = (
    "h **= -1",
    "h[2:] **= -1",
    "h[::2][1:] **= -1",
    "h += np.power(h, -1)",
    "np.power(h, -1, out=h)",
    "np.power(h[1:], -1, out=h[1:])",
    "np.copyto(h, h ** (0 * h - 1))",
    "np.put(h, [0, 1], np.power(h[:2], -1))",
    "np.place(h, np.arange(6) > 2, np.power(h, -1))",
    "np.add.at(h, [0, 0], np.power(h, -1)[0])",
    "h[put(np.array([7]))] = 3",
    "h[...] = np.power(h, -1); h.sort()",
    "jit(lambda x: np.power(x, -1, out=x))(h)",
    "h.flat[:2] = np.power(h, -1)[0]",
)


def write(client, statement, h):
    """Runs a statement that changes an array h."""
    exec(statement, {"np": np, "h": h, "put": client.put, "jit": client.jit})


@rows("statement", WRITES)
def test_an_array_has_its_values_again_after_its_error_was_raised(client, statement):
    check(client, statement)


def test_an_array_has_its_values_again_where_calls_are_sent_one_by_one(server):
    with sc.connect(server.address, fuse=False) as client:
        for statement in WRITES[:2]:
            check(client, statement)


def check(client, statement):
    """Checks the values of an array and a view after a statement that fails, and the error."""
    h = client.put(X)
    view, shared = h[2:], copy.copy(h)
    h += 1
    write(client, statement, h)
    h *= 2  # undone with it
    with pytest.raises((ValueError, IndexError), match=r"submitted at .*:\d+, failed"):
        view.get()
    assert (h.get().tolist(), view.get().tolist()) == ((X + 1).tolist(), (X + 1)[2:].tolist())
    h += 1
    assert np.array_equal(h, X + 2)
    assert np.array_equal(shared, X)
    client.synchronize()


def test_the_error_names_the_line_of_the_write_that_failed(client):
    h = client.put(X)
    h += 1
    h **= -1
    h += 1
    with pytest.raises(sc.InvalidOperandError, match=REFUSED) as raised:
        h.get()
    line = test_the_error_names_the_line_of_the_write_that_failed.__code__.co_firstlineno + 3
    assert f"test_failed_writes.py:{line}, failed" in str(raised.value)
    assert np.array_equal(h, X + 1)


def test_an_error_that_another_array_has_raised_is_not_raised_again(client):
    h = client.put(X)
    h **= -1
    doubled = h * 2
    h += 1
    with pytest.raises(sc.InvalidOperandError, match=REFUSED):
        doubled.get()
    client.synchronize()
    assert np.array_equal(h, X)
    with pytest.raises(sc.InvalidOperandError):  # it never had other values
        doubled.get()


@rows(
    ("statements", "reads"),
    [
        ("h **= -1", ["client.synchronize"]),  # which raises the error, too
        ("h **= -1; h **= -2", ["h.get"]),  # of two writes the first
        ("h **= -1; other = copy(h)", ["h.get", "other.get", "other.get"]),  # a copy keeps the error
        ("view = h[2:]; view **= -1; h = view", ["h.get"]),  # whose array is dropped
    ],
)
def test_the_error_is_raised_once_for_an_array_and_always_for_what_has_no_other_values(client, statements, reads):
    names = {"client": client, "copy": copy.copy, "h": client.put(X)}
    exec(statements, names)
    for read in reads:
        with pytest.raises(sc.InvalidOperandError, match=r"power of .*, failed: .*negative integer"):
            eval(read, names)()
    h = names["h"]
    expected = X[-len(h) :]
    assert np.array_equal(h, expected)
    client.synchronize()
    h += 1
    assert np.array_equal(h, expected + 1)


def test_a_deleted_array_stays_deleted(client):
    h = client.put(X)
    h **= -1
    h.delete()
    assert h.lost
    with pytest.raises(sc.ShardcallError):
        client.synchronize()
    assert h.lost
    with pytest.raises(sc.ArrayLostError):
        h.get()


@rows("is_dropped", [True, False])
def test_the_last_write_of_a_program_that_succeeds_stays(server, is_dropped):
    with sc.connect(server.address, fuse=True) as client, sc.connect(server.address) as other:
        for is_lost in (False, False, True):
            h, lost = client.put(X), client.put(X)
            if is_lost:
                other.delete(lost.handle)
            h += 1
            h *= 3
            h += lost
            h += 2
            if is_dropped:
                del lost
            if not is_lost:
                client.synchronize()
        with pytest.raises(sc.ArrayLostError, match=r"^add of .*test_failed_writes.py:\d+, failed"):
            h.get()
        ran = [(call.ran_as, len(call.kernels)) for call in client.trace_calls()]
        assert (ran[0], ran[1][0]) == (("program", 4), "program")
        assert np.array_equal(h, (X + 1) * 3)


def test_an_array_that_is_lost_before_the_write_is_lost_after_it(client, server):
    h = client.put(X)
    with sc.connect(server.address) as other:
        other.delete(h.handle)
    h += 1
    for _ in range(2):
        with pytest.raises(sc.ArrayLostError):
            h.get()


def test_earlier_values_are_deleted_once_a_write_is_answered(client):
    gc.collect()  # what other tests have caught
    h = client.put(X)
    h[1:].get()
    for _ in range(50):
        h += 1
    assert np.array_equal(h, X + 50)
    dropped = client.put(X)
    dropped += 1
    dropped *= 2
    del dropped
    client.synchronize()
    client.put(X).delete()  # deletes what was dropped before
    assert leased_handles_of(client) == [version_of(h).handle]
