"""Metadata of calls: the request id and the trace context."""

import sys
from types import ModuleType, SimpleNamespace

import grpc
import pytest
from rows import rows

import shardcall as sc
from shardcall_core.wire.metadata import rpc_metadata


def sent(monkeypatch, span_context):
    """The metadata of a call in a program whose present OpenTelemetry span is this one."""
    api = ModuleType("opentelemetry.trace")
    api.get_current_span = lambda: SimpleNamespace(get_span_context=lambda: span_context)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", api)
    return dict(rpc_metadata(1.5, "some-id"))


def span_context(*, state: str = "", is_valid: bool = True):
    trace_state = SimpleNamespace(to_header=lambda: state)
    return SimpleNamespace(is_valid=is_valid, trace_id=0xAB, span_id=0xCD, trace_flags=1, trace_state=trace_state)


def test_the_callers_span_is_the_parent(monkeypatch):
    metadata = sent(monkeypatch, span_context())
    assert metadata["traceparent"] == f"00-{'0' * 30}ab-{'0' * 14}cd-01"
    assert "tracestate" not in metadata
    assert sent(monkeypatch, span_context(state="vendor=1"))["tracestate"] == "vendor=1"


def test_without_a_span_nothing_is_said_of_one(monkeypatch):
    assert "traceparent" not in sent(monkeypatch, span_context(is_valid=False))


def test_an_error_has_the_id_under_which_its_call_was_sent(server, client):
    server.execute = lambda request, context: context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")
    with pytest.raises(sc.ShardcallError) as caught:
        client.call("echo", 1.0)
    assert caught.value.request_id == server.metadata[-1]["shardcall-request-id"]
    assert caught.value.request_id not in str(caught.value)


@rows("status", [grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN])
def test_an_internal_error_contains_the_id_to_report(server, client, status):
    server.execute = lambda request, context: context.abort(status, "oh")
    with pytest.raises(sc.InternalServerError) as caught:
        client.call("echo", 1.0)
    assert caught.value.request_id
    assert f"(request {caught.value.request_id})" in str(caught.value)
    assert caught.value.message == str(caught.value)


def test_an_error_of_the_client_has_no_id(client):
    with pytest.raises(sc.ShardcallError) as caught:
        client.call("echo", object())
    assert caught.value.request_id == ""
