import grpc
import numpy as np
import pytest
from rows import rows

import shardcall
from shardcall._src.rpc.status import ERRORS_BY_REASON, ERRORS_BY_STATUS, to_error
from shardcall.v1 import error_pb2, kernel_service_pb2, timing_pb2

REASONS = [name.removeprefix("ERROR_REASON_") for name in error_pb2.ErrorReason.keys()][1:]  # noqa: SIM118
EXHAUSTED, INVALID = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT
LATE = grpc.StatusCode.DEADLINE_EXCEEDED
ENDS = {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED}  # the one is no failure, the other the caller's own


@pytest.fixture
def client(server):
    """A client that raises the server's error at once, without retries."""
    with shardcall.connect(server.address, retries=False) as connected:
        yield connected


@pytest.fixture
def failed(server, client, abort):
    """Makes a call that the server ends with a status, and with details if there is a reason; returns the error."""

    def fail(error_class, status, message, reason="", *, says=r"^from the server$", **details):
        def end(request, context):
            if reason:
                abort(context, status, reason, message, **details)
            context.abort(status, message)

        server.execute = end
        with pytest.raises(error_class, match=says) as caught:
            client.call("echo", 1.0)
        return caught.value

    return fail


def test_the_error_has_every_field_of_the_servers_status(failed):
    details = {"at": "operand 0", "retry_after_s": 1.5, "limit": "4", "says": "^too many calls$"}
    error = failed(shardcall.ResourceExhaustedError, EXHAUSTED, "too many calls", "SERVER_BUSY", **details)
    assert (error.reason, error.field, error.metadata) == ("SERVER_BUSY", "operand 0", {"limit": "4"})
    assert (error.retry_after_s, error.status) == (1.5, EXHAUSTED)
    assert (error.timing.execute, error.timing.total) == (0.5, 1.0)
    assert error.timing.round_trip > 0
    assert error.__cause__ is None
    assert error.__suppress_context__


@rows("call", ["call", "plan", "compile"])
def test_a_field_of_a_registered_kernel_has_its_callers_name(server, client, abort, call):
    server.execute = server.plan = server.compile = lambda request, context: abort(
        context, grpc.StatusCode.INVALID_ARGUMENT, "SPEC_TOO_LONG", "in_specs[1] is too long", at="in_specs[1]"
    )
    with pytest.raises(shardcall.ShardingError, match=r"^in_specs\[1\] is too long$") as caught:
        getattr(client, call)("matmul", 1.0, 1.0)
    assert caught.value.field == "rhs_spec"


def test_a_status_without_details_may_have_the_reason_in_its_message(failed):
    message, says = "the caller sent nothing for 30 s (STREAM_IDLE)", "the caller sent nothing for 30 s"
    error = failed(shardcall.DeadlineExceededError, LATE, message, says=says)
    assert error.reason == "STREAM_IDLE"
    assert "(STREAM_IDLE)" not in str(error)


@rows("reason", [reason for reason in REASONS if reason != "STREAM_REQUIRED"])
def test_the_reason_decides_the_class(failed, reason):
    error = failed(shardcall.ShardcallError, grpc.StatusCode.UNKNOWN, "from the server", reason, says="from the server")
    assert error.reason == reason
    assert type(error) is ERRORS_BY_REASON[error_pb2.ErrorReason.Value(f"ERROR_REASON_{reason}")]


def test_an_axis_error_knows_axis_and_rank(failed):
    axis = {"axis": "5", "ndim": "2"}
    error = failed(np.exceptions.AxisError, INVALID, "from the server", "AXIS_OUT_OF_RANGE", **axis)
    assert (error.axis, error.ndim) == (5, 2)


def test_a_reason_that_is_not_ours_falls_back_to_the_status(failed):
    error = failed(
        shardcall.NotSupportedError, grpc.StatusCode.UNIMPLEMENTED, "later", "OF_A_NEWER_SERVER", says="^later$"
    )
    assert error.reason == "OF_A_NEWER_SERVER"
    domain = {"domain": "proxy", "says": None}
    error = failed(shardcall.InvalidRequestError, grpc.StatusCode.NOT_FOUND, "later", "KERNEL_NOT_FOUND", **domain)
    assert error.reason == ""


@rows("status", [code for code in grpc.StatusCode if code not in ENDS])
def test_a_status_without_reason_has_a_class(failed, status):
    error = failed(shardcall.ShardcallError, status, "of a proxy", says=None)
    assert type(error) is ERRORS_BY_STATUS[status][0]
    assert (error.reason, error.status, error.timing) == ("", status, None)


def test_a_call_cancelled_by_the_server_reports_its_shutdown(failed):
    failed(shardcall.ServerUnavailableError, grpc.StatusCode.CANCELLED, "of a server that ends", says="shuts down")


def test_keys_of_grpc_are_metadata(server, failed):
    details = "Stream removed (Socket closed (GOAWAY received; Error code: 0))"
    advice = "went away or cannot be reached; see whether it runs, and repeat the call"
    says = f"^the server at {server.address} {advice}$"
    error = failed(shardcall.ServerUnavailableError, grpc.StatusCode.UNAVAILABLE, details, says=says)
    assert error.metadata == {"grpc": details}


@rows("key", ["grpc-status-details-bin", "shardcall-timing-bin"])
def test_details_that_cannot_be_read_do_not_hide_the_status(server, client, key):
    def garbage(request, context):
        context.set_trailing_metadata(((key, b"\xff\xff\xff"),))
        context.abort(grpc.StatusCode.ABORTED, "why")

    server.execute = garbage
    with pytest.raises(shardcall.InternalServerError, match=r"why"):
        client.call("echo", 1.0)


def test_a_late_answer_lists_the_phases_that_took_the_time(failed):
    says = r"^5 s have passed \(the server's time: receive 0.25 s, execute 0.5 s\)$"
    failed(TimeoutError, LATE, "5 s have passed", "DEADLINE_EXCEEDED", says=says)


def test_a_late_answer_reports_the_time_before_the_server_had_the_call():
    class Late(grpc.RpcError):
        code = staticmethod(lambda: grpc.StatusCode.DEADLINE_EXCEEDED)
        details = staticmethod(lambda: "late")

        def __init__(self, spent):
            self.trailing_metadata = lambda: (("shardcall-timing-bin", spent.SerializeToString()),)

    at_once = timing_pb2.Timing(receive_seconds=0.00002, total_seconds=0.00002)
    message = to_error(Late(at_once), "host:1", 20.0, round_trip_s=20.0).message
    assert message.endswith(" (of 20 s, 20 s passed in the client, in transport or in earlier attempts)")
    message = to_error(Late(at_once), "host:1", 0.001, round_trip_s=0.004).message
    assert " (of 0.004 s until this error arrived, 0.00398 s passed in the client, " in message
    long_queued = timing_pb2.Timing(queue_seconds=19.0, total_seconds=19.0)
    message = to_error(Late(long_queued), "host:1", 20.0, round_trip_s=20.0).message
    assert message.endswith(" (the server's time: queue 19 s)")


def test_a_message_beyond_the_limit_of_grpc_is_explained(server, client):
    def too_long(request, context):
        response = kernel_service_pb2.ExecuteResponse()
        response.plan.strategy_reason = "x" * (17 * 2**20)
        return response

    server.execute = too_long
    with pytest.raises(shardcall.ResourceExhaustedError, match=r"a limit of gRPC was exceeded: .*larger than max"):
        client.call("echo", 1.0)
