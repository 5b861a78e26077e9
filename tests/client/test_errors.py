"""Errors: their classes, what they say of a status, and the metadata of calls."""

import copy
import inspect
import pickle
import sys
from types import ModuleType, SimpleNamespace

import grpc
import numpy as np
import pytest
from rows import rows

import shardcall
from shardcall._src.rpc.status import ERRORS_BY_REASON, ERRORS_BY_STATUS, add_versions, to_error
from shardcall.v1 import error_pb2, kernel_service_pb2, timing_pb2
from shardcall_core.types import errors
from shardcall_core.types.timing import Timing
from shardcall_core.versions import build_version
from shardcall_core.wire.metadata import rpc_metadata

CLASSES = [item for item in vars(errors).values() if inspect.isclass(item) and issubclass(item, errors.ShardcallError)]
REASONS = [name.removeprefix("ERROR_REASON_") for name in error_pb2.ErrorReason.keys()][1:]  # noqa: SIM118
EXHAUSTED, INVALID = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT
LATE = grpc.StatusCode.DEADLINE_EXCEEDED
ENDS = {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED}  # the one is no failure, the other the caller's own


# Classes


def test_every_reason_of_the_contract_and_every_status_of_grpc_has_a_class():
    assert set(ERRORS_BY_REASON) == set(error_pb2.ErrorReason.values()) - {error_pb2.ERROR_REASON_UNSPECIFIED}
    assert set(ERRORS_BY_STATUS) == set(grpc.StatusCode)
    for error_class, sentence in ERRORS_BY_STATUS.values():
        assert issubclass(error_class, shardcall.ShardcallError)
        assert sentence.format(address="host:1", timeout="1 s", details="why")


@rows("error_class", CLASSES)
def test_every_class_can_be_imported_created_shown_copied_and_pickled(error_class):
    assert getattr(shardcall, error_class.__name__) is error_class
    fields = {"reason": "REASON", "field": "mesh", "timing": Timing(total=1.0), "status": LATE, "retry_after_s": 0.5}
    error = error_class("text", metadata={"axis": "3", "ndim": "2"}, **fields)
    for same in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert str(same) == same.message == "text"
        assert {name: getattr(same, name) for name in fields} == fields
    assert repr(error) == f"{error_class.__name__}('text')"
    assert error_class("text").metadata == {}


@rows("error_class", CLASSES)
def test_every_class_is_a_builtin_that_one_would_catch_and_where_the_docstring_has_it(error_class):
    (line,) = [line for line in errors.__doc__.splitlines() if f" {error_class.__name__}" in line]
    if error_class is shardcall.ShardcallError:
        return
    ours = [base for base in error_class.mro() if base in CLASSES]
    assert {base for base in error_class.mro() if base not in ours} > {Exception, BaseException, object}
    assert line.index(error_class.__name__) // 4 - 1 == len(ours) - 1
    if "(" in line:
        assert line.split("(")[1].split(")")[0].rpartition(".")[2] in [base.__name__ for base in error_class.mro()]


def test_an_axis_error_is_numpys():
    error = shardcall.AxisError("axis 3", metadata={"axis": "3", "ndim": "2"})
    assert isinstance(error, np.exceptions.AxisError)
    assert (error.axis, error.ndim) == (3, 2)
    bare = shardcall.AxisError("axis 3", metadata={"axis": "x"})
    assert (bare.axis, bare.ndim) == (None, None)


# Statuses


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
        assert caught.value.request_id == server.metadata[-1]["shardcall-request-id"]
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
    status = INVALID, "SPEC_TOO_LONG", "in_specs[1] is too long"
    server.execute = server.plan = server.compile = lambda _, context: abort(context, *status, at="in_specs[1]")
    with pytest.raises(shardcall.ShardingError, match=r"^in_specs\[1\] is too long$") as caught:
        getattr(client, call)("matmul", 1.0, 1.0)
    assert caught.value.field == "rhs_spec"


def test_a_status_without_details_may_have_the_reason_in_its_message(failed):
    message, says = "the caller sent nothing for 30 s (STREAM_IDLE)", "the caller sent nothing for 30 s$"
    assert failed(shardcall.DeadlineExceededError, LATE, message, says=says).reason == "STREAM_IDLE"


@rows("reason", [reason for reason in REASONS if reason != "STREAM_REQUIRED"])
def test_the_reason_decides_the_class(failed, reason):
    error = failed(shardcall.ShardcallError, grpc.StatusCode.UNKNOWN, "from the server", reason, says="from the server")
    assert error.reason == reason
    assert type(error) is ERRORS_BY_REASON[error_pb2.ErrorReason.Value(f"ERROR_REASON_{reason}")]


@rows(
    ("error_class", "status", "reason", "expected", "domain"),
    [
        (shardcall.InvalidRequestError, "NOT_FOUND", "OF_A_NEWER_SERVER", "OF_A_NEWER_SERVER", "shardcall"),
        (shardcall.InvalidRequestError, "NOT_FOUND", "KERNEL_NOT_FOUND", "", "proxy"),
    ],
)
def test_a_reason_that_is_not_ours_falls_back_to_the_status(failed, error_class, status, reason, expected, domain):
    error = failed(error_class, grpc.StatusCode[status], "later", reason, says="later$", domain=domain)
    assert error.reason == expected


@rows(
    ("version", "reason", "is_added"),
    [
        ("9.0", "NOT_SUPPORTED", True),
        ("9.0", "UNKNOWN_PARAMETER", True),
        ("9.0", "INVALID_SHAPE", False),
        (build_version(), "NOT_SUPPORTED", False),
    ],
)
def test_an_error_that_versions_explain_names_both_if_they_differ(version, reason, is_added):
    code = grpc.StatusCode.UNIMPLEMENTED if reason == "NOT_SUPPORTED" else INVALID
    error = shardcall.InvalidRequestError("no", reason=reason, status=code)
    add_versions(error, version)
    added = f" (the server is shardcall 9.0, and this client {build_version()}; install the same on both sides)"
    assert str(error) == f"no{added * is_added}"


@rows("status", [code for code in grpc.StatusCode if code not in ENDS])
def test_a_status_without_reason_has_a_class(failed, status):
    error = failed(shardcall.ShardcallError, status, "of a proxy", says=None)
    assert type(error) is ERRORS_BY_STATUS[status][0]
    assert (error.reason, error.status, error.timing) == ("", status, None)
    is_internal = status in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
    assert (error.request_id in str(error)) is is_internal
    assert not is_internal or (f"(request {error.request_id})" in str(error) == error.message)


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


@rows(
    ("spent", "timeout_s", "round_trip_s", "says"),
    [
        ({"receive": 0.00002}, 20.0, 20.0, "(of 20 s, 20 s passed in the client, in transport or in earlier attempts)"),
        ({"receive": 0.00002}, 0.001, 0.004, "(of 0.004 s until this error arrived, 0.00398 s passed in the client, "),
        ({"queue": 19.0}, 20.0, 20.0, "(the server's time: queue 19 s)"),
    ],
)
def test_a_late_answer_reports_the_time_before_the_server_had_the_call(spent, timeout_s, round_trip_s, says):
    class Late(grpc.RpcError):
        code = staticmethod(lambda: LATE)
        details = staticmethod(lambda: "late")

        def trailing_metadata(self):
            seconds = {f"{phase}_seconds": value for phase, value in spent.items()}
            timing = timing_pb2.Timing(**seconds, total_seconds=sum(spent.values()))
            return (("shardcall-timing-bin", timing.SerializeToString()),)

    message = to_error(Late(), "host:1", timeout_s, round_trip_s=round_trip_s).message
    assert f" {says}" in message
    assert says.endswith(" ") or message.endswith(says)


def test_a_message_beyond_the_limit_of_grpc_is_explained(server, client):
    def too_long(request, context):
        response = kernel_service_pb2.ExecuteResponse()
        response.plan.strategy_reason = "x" * (17 * 2**20)
        return response

    server.execute = too_long
    with pytest.raises(shardcall.ResourceExhaustedError, match=r"a limit of gRPC was exceeded: .*larger than max"):
        client.call("echo", 1.0)


# Metadata


@rows(
    ("span", "expected"),
    [
        ({}, {"traceparent": f"00-{'0' * 30}ab-{'0' * 14}cd-01"}),
        ({"state": "vendor=1"}, {"traceparent": f"00-{'0' * 30}ab-{'0' * 14}cd-01", "tracestate": "vendor=1"}),
        ({"is_valid": False}, {}),
    ],
)
def test_the_callers_span_is_the_parent(monkeypatch, span, expected):
    trace_state = SimpleNamespace(to_header=lambda: span.get("state", ""))
    valid = span.get("is_valid", True)
    context = SimpleNamespace(is_valid=valid, trace_id=0xAB, span_id=0xCD, trace_flags=1, trace_state=trace_state)
    api = ModuleType("opentelemetry.trace")
    api.get_current_span = lambda: SimpleNamespace(get_span_context=lambda: context)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", api)
    metadata = dict(rpc_metadata(1.5, "some-id"))
    assert {name: metadata[name] for name in ("traceparent", "tracestate") if name in metadata} == expected


def test_an_error_of_the_client_has_no_id(client):
    with pytest.raises(shardcall.ShardcallError) as caught:
        client.call("echo", object())
    assert caught.value.request_id == ""
