"""Servers that break the contract, answer late, or go away; all over real connections."""

import os
import signal
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from client.conftest import echo_stream
from rows import rows

import shardcall
from shardcall.v1 import array_pb2, kernel_service_pb2, timing_pb2
from shardcall_core.versions import build_version

LARGE = np.zeros(2 * 2**20, np.uint8)
FLOATS = array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_FLOAT64, shape=[4])


def header(*types, **source):
    results = [{"type": array_type, **(source or {"streamed": {}})} for array_type in types]
    return kernel_service_pb2.ExecuteStreamResponse(header={"results": results})


def chunk(offset, size, index=0):
    return kernel_service_pb2.ExecuteStreamResponse(chunk={"index": index, "offset": offset, "data": bytes(size)})


END = kernel_service_pb2.ExecuteStreamResponse(timing=timing_pb2.Timing())
NOTHING = kernel_service_pb2.ExecuteStreamResponse()
NO_TYPE = array_pb2.ArrayType(shape=[4])
NEGATIVE = array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_INT8, shape=[-1])
HALF = array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_INT8, shape=[2**27])
HUGE = array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_INT8, shape=[2**40])

TWO = header(FLOATS, FLOATS)

FAULTS = {
    "nothing at all": ([], "nothing came where the header was due"),
    "no header": ([chunk(0, 32), END], "chunk came where the header was due"),
    "two headers": ([header(FLOATS), header(FLOATS)], "a header came where a chunk was due"),
    "a message of no kind": ([header(FLOATS), NOTHING], "a message of no kind"),
    "no chunks": ([header(FLOATS), END], "result 0 came with 0 of 32 bytes"),
    "too few bytes": ([header(FLOATS), chunk(0, 16), END], "16 of 32 bytes"),
    "too many bytes": ([header(FLOATS), chunk(0, 40), END], "more than its 32 bytes"),
    "a gap": ([header(FLOATS), chunk(0, 8), chunk(16, 16), END], "for byte 16, not 8"),
    "an overlap": ([header(FLOATS), chunk(0, 16), chunk(8, 16), END], "for byte 8, not 16"),
    "the second first": ([header(FLOATS), chunk(16, 16), chunk(0, 16), END], "for byte 16, not 0"),
    "an unknown result": ([header(FLOATS), chunk(0, 32, index=1), END], "a chunk of result 1 came"),
    "results out of order": (
        [TWO, chunk(0, 32, index=1), chunk(0, 32)],
        "a chunk of result 0 came after result 1 of 2",
    ),
    "an inline result of another size": ([header(FLOATS, inline={"data": b"123"}), END], "3 of 32 bytes"),
    "no timing": ([header(FLOATS), chunk(0, 32)], "ended before the timing"),
    "more after the timing": ([header(FLOATS), chunk(0, 32), END, END], "came after the timing"),
    "a result without a type": ([header(NO_TYPE), END], "has no element type"),
    "a negative size": ([header(NEGATIVE), END], "has shape"),
    "a result over the server's own limit": ([header(HUGE), END], "are over 268435456 bytes"),
    "results that are over it together": ([header(HALF, HALF, FLOATS), END], "are over 268435456 bytes"),
}


@rows(("messages", "says"), FAULTS.values())
def test_an_answer_that_breaks_the_contract_is_an_error_and_no_array(server, client, messages, says):
    server.execute_stream = lambda requests, context: iter(messages)
    with pytest.raises(shardcall.ProtocolError, match=says):
        client.call("echo", LARGE)


@pytest.mark.parametrize("call_stream", [False, True])
def test_a_result_of_a_newer_server_is_refused_with_both_versions(server, streams, call_stream):
    results = [{"type": FLOATS}]
    server.execute = lambda *_: kernel_service_pb2.ExecuteResponse(results=results)
    streams.on_call = lambda call: call.answer(results=results)
    server.execute_stream = lambda *_: iter([header(FLOATS, streamed=None), END])
    for x in (np.ones(4), LARGE):
        newer = pytest.raises(shardcall.ProtocolError, match="result 0 has no source that this client knows")
        with shardcall.connect(server.address, call_stream=call_stream) as client, newer as caught:
            client.call("echo", x)
        assert f"(the server is shardcall 0, and this client {build_version()}; install the" in str(caught.value)


@rows("array_type", [FLOATS, HUGE])
@rows("size", [0, 31, 33])
def test_a_unary_result_of_another_size_is_an_error(server, client, size, array_type):
    results = [{"type": array_type, "inline": {"data": bytes(size)}}]
    server.execute = lambda request, context: kernel_service_pb2.ExecuteResponse(results=results)
    with pytest.raises(shardcall.ProtocolError, match=r"result 0"):
        client.call("echo", 1.0)


def test_a_refused_header_is_reported_during_the_upload(server, client, abort):
    status = grpc.StatusCode.NOT_FOUND, "KERNEL_NOT_FOUND", "there is no kernel 'ecco'"
    server.execute_stream = lambda requests, context: abort(context, *status)
    large, let_go = np.zeros(128 * 2**20, np.uint8), threading.Event()
    weakref.finalize(large, let_go.set)
    with pytest.raises(shardcall.KernelNotFoundError, match=r"ecco"):
        client.call("ecco", large)
    del large
    assert let_go.wait(10), "gRPC's thread still reads the operand"


def test_the_deadline_goes_with_every_call(server, client):
    for call in (client.call, client.plan, client.compile):
        call("echo", 1.0, timeout=7)
    client.call("echo", LARGE, timeout=7)
    assert len(server.metadata) == 4
    assert all(6 < float(metadata["shardcall-timeout"]) <= 7 for metadata in server.metadata)


def test_no_timeout_is_the_servers_longest(server, client):
    remaining = []
    server.before_calls(lambda context: remaining.append(context.time_remaining()))
    client.call("echo", 1.0, timeout=None)
    assert 590 < remaining[0] < 602  # the header counts in steps of a second and more


@pytest.mark.parametrize("operand", [1.0, LARGE], ids=["unary", "stream"])
def test_a_server_that_does_not_answer_costs_half_a_second_more(server, client, ended, operand):
    def hold(request, context):
        ended(context).wait(30)
        context.abort(grpc.StatusCode.CANCELLED, "")

    server.execute = server.execute_stream = hold
    with pytest.raises(shardcall.DeadlineExceededError, match=r"no answer from 127.0.0.1:\d+ within 0.05 s") as caught:
        client.call("echo", operand, timeout=0.05)
    assert isinstance(caught.value, TimeoutError)


def is_usable(server, client):
    """Returns whether a client gets its array back from a server that answers again."""
    server.execute_stream = echo_stream
    return client.call("echo", LARGE, timeout=25).array.nbytes == LARGE.nbytes


@pytest.mark.parametrize("operand", [1.0, LARGE, np.zeros(64 * 2**20, np.uint8)], ids=["unary", "stream", "upload"])
def test_ctrl_c_cancels_the_call(server, client, ended, operand):
    events = []

    def interrupt(request, context):
        events.append(ended(context))
        os.kill(os.getpid(), signal.SIGINT)
        events[0].wait(30)
        context.abort(grpc.StatusCode.CANCELLED, "")

    server.execute = server.execute_stream = interrupt
    with pytest.raises(KeyboardInterrupt):
        client.call("echo", operand, timeout=25)
    assert events[0].wait(10)
    assert is_usable(server, client)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture
def handle():
    """Sets the program's handler of a signal until the end of the test."""
    previous = {}

    def handle(number, handler):
        previous.setdefault(number, signal.signal(number, handler))

    yield handle
    for number, handler in previous.items():
        signal.signal(number, handler)


@rows("number", [signal.SIGINT, signal.SIGTERM])
def test_a_handler_of_the_program_that_returns_does_not_end_the_call(server, client, handle, number):
    seen = []

    def interrupt(requests, context):
        os.kill(os.getpid(), number)
        yield from echo_stream(requests, context)

    server.execute_stream = interrupt
    handler = lambda number, frame: seen.append(number)  # noqa: E731
    handle(number, handler)
    assert client.call("echo", LARGE, timeout=25).array.nbytes == LARGE.nbytes
    assert seen == [number]
    assert signal.getsignal(number) is handler


def test_a_handler_that_raises_cancels_the_call_and_may_set_another(server, client, handle):
    """As that of an alarm does."""

    def raise_once(number, frame):
        signal.signal(number, signal.SIG_IGN)
        raise TimeoutError("the alarm") from LookupError("its cause")

    for moment in range(1, 40, 8):  # chunks that have come, each of which wakes code of gRPC that holds locks

        def interrupt(requests, context, moment=moment):
            for i, message in enumerate(echo_stream(requests, context)):
                if i == moment:
                    os.kill(os.getpid(), signal.SIGALRM)
                yield message

        server.execute_stream = interrupt
        handle(signal.SIGALRM, raise_once)
        with pytest.raises(TimeoutError, match="the alarm") as caught:
            client.call("echo", np.zeros(40 * 2**20, np.uint8), timeout=25)
        assert isinstance(caught.value.__cause__, LookupError)
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
    assert is_usable(server, client)


def test_closing_the_client_ends_calls_of_other_threads(server, client, ended):
    running = threading.Event()

    def hold(request, context):
        running.set()
        ended(context).wait(30)
        return iter(())

    server.execute_stream = hold
    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(client.call, "echo", LARGE)
        assert running.wait(10)
        client.close()
        assert isinstance(calling.exception(10), shardcall.CallCancelledError)
