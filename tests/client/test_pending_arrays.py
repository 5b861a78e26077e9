"""Arrays of submitted calls, on a call stream whose calls run when a test says so."""

import gc
import inspect
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from client.call_stream import FakeCallStream
from client.conftest import with_call_streams
from client_parts import lease_of, pending_of, remote_arrays_of, unanswered_of, uses_of, version_of
from rows import rows

import shardcall
from shardcall import Array
from shardcall._src.device_arrays import shown_values

pytestmark = pytest.mark.usefixtures("quick_collections")

INVALID = shardcall.InvalidOperandError("y holds a negative integer", reason="INVALID_VALUE", field="y")


@pytest.fixture
def stream(memory):
    return FakeCallStream(memory)


@pytest.fixture
def connect(memory, stream, monkeypatch):
    """Connects a client to the call stream, which sends each call at once: tests count and answer them in between."""
    with_call_streams(memory.info)
    monkeypatch.setattr("shardcall.client.CallStream", lambda transport, limits: stream)
    return partial(shardcall.connect, memory.server.address, shared_memory=False, fuse=False, show_values=False)


@pytest.fixture
def client(connect):
    connected = connect()
    yield connected
    connected.close()


def line():
    """Returns the file and line of the caller, as errors name it."""
    frame = inspect.currentframe().f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def test_a_submitted_call_returns_before_it_runs(client, stream):
    h = client.submit("add", np.ones((8, 4), np.float32), np.float32(2))
    (call,) = stream.sent
    assert (h.shape, h.dtype, h.ndim, h.size, h.nbytes, len(h)) == ((8, 4), np.float32, 2, 32, 128, 8)
    assert (h.type, repr(h)) == (Array((8, 4), "float32"), "<RemoteArray float32[8,4], pending>")
    assert call.handles == [bytes.fromhex(h.handle)]
    assert (len(call.handles[0]), call.request_id, call.deadline.timeout_s) == (16, h.handle, 300.0)
    assert call.lease_id == remote_arrays_of(client).lease_id
    assert not call.done
    stream.run()
    np.testing.assert_array_equal(h.get(), np.full((8, 4), 3.0, np.float32))
    assert repr(h).startswith("<RemoteArray float32[8,4] P('x') on Mesh(x=4")


@rows("show", [str, repr, lambda h: f"{h}", lambda h: f"{[h]}", lambda h: h._repr_html_()])
def test_a_display_waits_a_short_time_for_a_pending_array(client, stream, monkeypatch, show):
    monkeypatch.setattr(shown_values, "_DEBUGGER_WAIT_S", 0.05)
    monkeypatch.setattr(shown_values, "_DISPLAY_WAIT_S", 0.05)
    client._shows_values = True
    h = client.submit("add", np.ones((8, 4), np.float32), np.float32(2))
    assert "pending" in eval("show(h)", {"__name__": "bdb", "show": show, "h": h})  # as in a debugger
    assert "pending" in h._repr_html_()
    with monkeypatch.context() as session:
        session.setattr(sys, "ps1", ">>> ", raising=False)
        assert repr(h) == "<RemoteArray float32[8,4], pending>"
    stream.run()
    assert str(h).startswith(f"{np.full((8, 4), 3.0, np.float32)}\n<float32[8,4] P('x') on Mesh(x=4")


def test_a_kernel_with_several_results_returns_a_tuple(client, stream):
    by_row, by_column = client.submit("gradient", np.arange(12.0).reshape(3, 4))
    assert by_row.shape == by_column.shape == (3, 4)
    assert (len(stream.sent[0].handles), stream.sent[0].request_id) == (2, by_row.handle)
    stream.run()
    for actual, expected in zip((by_row, by_column), np.gradient(np.arange(12.0).reshape(3, 4)), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    "read",
    [
        *(lambda client, h, name=name: getattr(h, name)() for name in ("get", "visualize", "__array__")),
        *(lambda client, h, name=name: getattr(h, name) for name in ("mesh", "spec", "placement", "padded_shape")),
        lambda client, h: h.device_bytes,
        lambda client, h: client.get(h.handle),
        lambda client, h: client.describe(h),
        lambda client, h: client.plan("negative", h),
        lambda client, h: client.compile("negative", h),
        lambda client, h: client.synchronize(),
        *(lambda client, h, show=show: show(h) for show in (str, repr, "{}".format, lambda h: f"{[h]} {h!r}")),
    ],
)
def test_reading_waits_for_the_call_and_raises_its_error(client, stream, read):
    client._shows_values = True
    with ThreadPoolExecutor(1) as pool:
        h = client.submit("add", [1.0, 2.0], 1)
        waiting = pool.submit(read, client, h)
        assert not waiting.done()
        stream.run()
        waiting.result(20)
        stream.failures["add"] = INVALID
        h = client.submit("add", [1.0, 2.0], 1)
        waiting = pool.submit(read, client, h)
        stream.run()
        with pytest.raises(shardcall.InvalidOperandError, match="y holds a negative integer") as caught:
            waiting.result(20)
    assert (caught.value.reason, caught.value.field) == ("INVALID_VALUE", "y")
    client.synchronize()


def test_an_error_names_the_call_that_failed_and_calls_that_use_its_array_later_fail_too(client, stream):
    stream.failures["power"] = INVALID
    x = client.put(np.arange(4))
    h, where = client.submit("power", x, -1), line()
    k = client.submit("add", client.submit("add", h, 1.0), 1.0)
    stream.run()
    stream.failed.clear()  # an answered call is unknown to the server
    later = client.submit("add", h, 1)
    stream.run()
    for array in (k, h, later, k):
        with pytest.raises(shardcall.InvalidOperandError) as caught:
            array.get()
        expected = f"power of int64[4], int64[], submitted at {where}, failed: y holds a negative integer"
        assert str(caught.value) == expected
    assert repr(k) == "<RemoteArray float64[4], failed>"
    client.synchronize()


def test_errors_that_nobody_waited_for_are_raised_once_and_counted(client, stream):
    x = client.put([1.0, 2.0])
    stream.failures["power"] = INVALID
    client.submit("add", client.submit("power", x, -1), 1)
    stream.run()
    with pytest.raises(shardcall.InvalidOperandError, match=r"^power of .*negative integer$"):
        client.synchronize()
    client.synchronize()
    for count, others in ((2, "another submitted call"), (3, "2 other submitted calls")):
        for _ in range(count):
            client.submit("power", x, -1)
        stream.run()
        with pytest.raises(shardcall.InvalidOperandError, match=f"negative integer; {others} failed, too"):
            client.synchronize()
    assert x.get().tolist() == [1.0, 2.0]


def test_reading_another_array_warns_of_an_error_that_nobody_can_read(client, stream):
    x = client.put([1.0, 2.0])
    stream.failures["power"] = INVALID
    kept = client.submit("power", x, -1)
    stream.run()
    assert x.get().tolist() == [1.0, 2.0]  # whoever has the result reads its error
    with pytest.raises(shardcall.InvalidOperandError):
        kept.get()
    dependent = client.submit("add", client.submit("power", x, -1), 1)
    stream.run()
    assert x.get().tolist() == [1.0, 2.0]
    del dependent
    warning = r"^nobody has read that power of .*test_pending_arrays.py:\d+, failed: .*negative integer$"
    with pytest.warns(shardcall.FailedCallWarning, match=warning) as caught:
        x.get()
    assert [item.filename for item in caught] == [__file__]
    x.get()
    with pytest.raises(shardcall.InvalidOperandError):
        client.synchronize()
    client.synchronize()


def test_an_error_is_raised_at_the_end_of_the_block_unless_the_block_raises(connect, stream):
    stream.automatic = True
    stream.failures["power"] = INVALID
    with pytest.raises(shardcall.InvalidOperandError, match=r"^power of "), connect() as client:
        client.submit("power", [1], -1)
    with pytest.raises(ZeroDivisionError), connect() as client:  # noqa: PT012  # after an error that nobody has read
        client.submit("power", [1], -1)
        raise ZeroDivisionError
    with connect() as client, pytest.raises(shardcall.InvalidOperandError):
        client.submit("power", [1], -1).get()


def chain(client, name, *operands):
    """Returns three arrays, each of which is computed from the one before."""
    first = client.submit(name, *operands)
    second = client.submit("add", first, 1)
    return first, second, client.submit("add", second, 1)


def test_answers_in_any_order_name_the_first_call(client, stream):
    _, _, k = chain(client, "power", [1], -1)
    for call in reversed(stream.sent):
        call.finish(INVALID)
    with pytest.raises(shardcall.InvalidOperandError, match=r"^power of int64\[1\], int64\[\], submitted"):
        k.get()
    client.synchronize()


def test_a_synchronous_client_raises_in_the_line_that_submits(connect, stream):
    stream.automatic = True
    with connect(synchronous=True) as client:
        assert repr(client.submit("add", [1.0], 1)).startswith("<RemoteArray float64[1] P")
        stream.failures["power"] = INVALID
        with pytest.raises(shardcall.InvalidOperandError):
            client.submit("power", [1], -1)
        client.synchronize()


def test_dropped_arrays_are_deleted_after_the_calls_that_use_them(client, stream):
    x = client.put([1.0])
    handles = [bytes.fromhex(x.handle)]
    for _ in range(3):
        x = client.submit("add", x, 1)
        handles.append(bytes.fromhex(x.handle))
    deleted, used = set(), {}
    for index, item in enumerate(stream.sent):
        if isinstance(item, list):
            assert all(used[handle] < index for handle in item)
            deleted.update(item)
        else:
            operands = {operand for operand in item.operands if isinstance(operand, bytes)}
            assert not deleted & operands
            used.update(dict.fromkeys([*item.handles, *operands], index))
    assert deleted == set(handles[:2])
    stream.run()
    assert x.get() == 4.0


def test_an_array_that_is_deleted_by_name_goes_in_order(client, stream, memory):
    x, y = client.put([1.0]), client.put([2.0])
    h = client.submit("add", x, 1)
    assert client.delete(x, y, h) == 3
    assert [bytes.fromhex(y.handle)] == memory.deleted.get(timeout=20)
    assert stream.sent[1] == [bytes.fromhex(x.handle), bytes.fromhex(h.handle)]
    with pytest.raises(shardcall.ArrayLostError):
        client.submit("add", h, 1)
    stream.run()
    assert client.list() == []
    client.synchronize()


def test_the_memory_of_a_long_chain_is_bounded(client, stream):
    stream.automatic = True
    x = client.submit("add", 0.0, 1.0)
    first = weakref.ref(version_of(x).pending)
    for _ in range(20):
        x = client.submit("add", x, 1)
    gc.collect()
    assert first() is None
    assert not unanswered_of(client)
    assert not uses_of(client)
    assert len(lease_of(client)._arrays) <= 3
    stream.failures["add"] = INVALID
    for _ in range(100):
        x = client.submit("add", x, 1)
        later = weakref.ref(version_of(x).pending)
    x = client.submit("add", x, 1)
    gc.collect()
    assert later() is None
    assert len(pending_of(client)._failed) <= 64
    with pytest.raises(shardcall.InvalidOperandError):
        client.synchronize()


def test_a_kernel_that_the_table_does_not_have_is_refused_by_the_server_in_the_same_line(client, stream):
    stream.automatic = True
    stream.failures["ad"] = shardcall.KernelNotFoundError("refused", reason="KERNEL_NOT_FOUND")
    with pytest.raises(shardcall.KernelNotFoundError, match=r"^refused$"):
        client.submit("ad", 1.0, 2.0)
    assert stream.sent[0].handles == []
    client.synchronize()


@pytest.mark.parametrize(
    ("name", "operands", "parameters", "error", "message", "field"),
    [
        ("add", [1.0], {}, shardcall.OperandCountError, "needs operand 'y'", "y"),
        ("add", [[1.0, 2.0], [1.0, 2.0, 3.0]], {}, shardcall.InvalidOperandError, "y has shape", "y"),
        ("diff", [[[1.0, 2.0]]], {"axis": 2}, shardcall.AxisError, "axis=2 and x has 2 axes", "axis"),
        ("diff", [[1.0, 2.0]], {"axes": 2}, shardcall.UnknownParameterError, "did you mean 'axis'", "axes"),
        ("sum", [[1.0]], {"dtype": "float31"}, shardcall.OperandTypeError, "is no element type", "dtype"),
    ],
)
def test_arguments_that_the_table_refuses_are_refused_in_the_same_line_without_a_call(
    client, stream, name, operands, parameters, error, message, field
):
    with pytest.raises(error, match=message) as refused:
        client.submit(name, *operands, **parameters)
    assert (refused.value.field, refused.value.reason != "") == (field, True)
    assert not stream.sent


def test_the_types_of_a_kernel_without_an_entry_are_those_of_its_first_answer(client, stream):
    stream.automatic = True
    assert client.submit("echo", [1.0, 2.0]).get().tolist() == [1.0, 2.0]
    stream.automatic = False
    h = client.submit("echo", [3.0, 4.0])
    assert repr(h) == "<RemoteArray float64[2], pending>"
    stream.run()
    assert h.get().tolist() == [3.0, 4.0]
    stream.automatic = True
    assert not version_of(client.submit("echo", [3.0])).pending


def test_large_operands_are_not_streamed(client, stream, memory):
    memory.info.limits.max_inline_bytes = 2**20
    h = client.submit("negative", np.ones(2**18))
    assert (stream.sent, h.mesh.size) == ([], 4)


def test_closing_cancels_submitted_calls_and_leaves_no_error_for_the_end_of_the_block(connect, stream):
    with connect() as client:
        h = client.submit("add", 1.0, 1.0)
        client.close()
    assert stream.sent[0].cancelled
    with pytest.raises(shardcall.ShardcallError):
        h.get()


def test_a_forked_child_does_not_wait_for_its_parents_calls_nor_raise_their_errors(client, stream):
    stream.failures["power"] = INVALID
    client.submit("power", np.array([1, 2]), -1)
    stream.run()
    h = client.submit("add", 1.0, 1.0)
    pending_of(client).begin_anew()
    with pytest.raises(shardcall.ArrayLostError, match=r"forked before .* call client.synchronize\(\) before"):
        h.visualize()
    client.synchronize()


def test_a_forked_child_does_not_take_the_values_before_a_write_for_those_after_it(client):
    h = client.put(np.arange(4))
    h += 1
    pending_of(client).begin_anew()
    for _ in range(2):
        with pytest.raises(shardcall.ArrayLostError, match="forked before"):
            h.visualize()


@pytest.mark.parametrize(("fails", "is_dropped", "is_older"), [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 0, 1), (1, 0, 1)])
def test_the_server_deletes_what_a_write_replaces_and_the_client_what_one_that_failed_has_left(
    client, stream, memory, fails, is_dropped, is_older
):
    pending_of(client).deletes_replaced = not is_older
    h = client.put(np.arange(4))
    handles = []
    for _ in range(3):
        handles.append(bytes.fromhex(h.handle))
        h += 1
    assert [item for item in stream.sent if isinstance(item, list)] == [
        [handle] for handle in handles[:2] if not is_older
    ]
    if fails:
        stream.failures["add"] = INVALID
    if is_dropped:
        del h
    stream.run()
    if not is_dropped:
        there = [*handles[0 if is_older else 2 :], bytes.fromhex(h.handle)]
        assert [*memory.stored] == (handles[:1] if fails else there)
        del h
    client.put(0).delete()  # after what was dropped
    stream.run()
    assert not memory.stored


def test_later_forks_do_not_wait_for_a_call_that_outlasted_one(client, stream):
    pending = pending_of(client)
    client.submit("add", 1.0, 1.0)
    assert pending.has_open_calls
    pending.give_up_calls()
    assert not pending.has_open_calls
    client.submit("add", 1.0, 2.0)
    assert pending.has_open_calls
    stream.run()
    client.synchronize()
    assert not pending.has_open_calls
