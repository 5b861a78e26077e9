"""Errors as gRPC statuses: total maps, and small enough to arrive."""

import re
from pathlib import Path

from google.rpc import error_details_pb2, status_pb2
from rows import rows

from shardcall.v1 import error_pb2, timing_pb2
from shardcall_core.call_error import CallError, Reason, did_you_mean, shorten
from shardcall_server.frontend.rpc.status import STATUS_CODES, CallStatus

_TIMING = timing_pb2.Timing(**{f.name: 1.0 for f in timing_pb2.Timing.DESCRIPTOR.fields})


def test_every_reason_of_the_contract_is_a_reason_and_has_a_status():
    names = error_pb2.ErrorReason.keys()
    contract = {name.removeprefix("ERROR_REASON_") for name in names} - {"UNSPECIFIED"}
    assert contract == set(Reason) == set(STATUS_CODES)


def test_the_contract_names_the_status_of_every_reason():
    text = (Path(__file__).parents[2] / "protos/shardcall/v1/error.proto").read_text()
    for reason, code in STATUS_CODES.items():
        comment = re.split(r"= [0-9]+;", text.partition(f"ERROR_REASON_{reason} =")[0])[-1]
        assert f"// {code.name}:" in comment, reason


@rows("reason", Reason)
def test_the_longest_status_of_every_reason_stays_below_four_kib(reason):
    for letter in ("m", "\U0001f40d"):
        metadata = {f"{i}" + letter * 10_000: letter * 10_000 for i in range(99)}
        status = CallStatus(CallError(reason, letter * 100_000, field=letter * 100_000, metadata=metadata), _TIMING)
        size = sum(len(key) + len(value) for key, value in status.trailing_metadata)
        assert size + len(status.details.encode()) < 4096


def test_what_a_client_sent_is_quoted_without_control_characters():
    assert shorten("a\x1b[31m\nb") == "a�[31m�b"
    assert shorten("x" * 500).endswith("(500 characters)")


def test_the_details_carry_reason_field_quota_and_retry():
    busy = CallError(Reason.SERVER_BUSY, "busy", metadata={"limit": "calls"})
    wrong = CallError(Reason.INVALID_PARAMETER, "n", field="n")
    for error, expected in ((busy, {"ErrorInfo", "QuotaFailure", "RetryInfo"}), (wrong, {"ErrorInfo", "BadRequest"})):
        metadata = dict(CallStatus(error, _TIMING).trailing_metadata)
        message = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
        names = {detail.type_url.rpartition(".")[2] for detail in message.details}
        assert names == expected
        assert all(hasattr(error_details_pb2, name) for name in names)


def test_only_the_caller_retries_a_call_that_a_restart_ended():
    status = CallStatus(CallError(Reason.MESH_RESTARTED, "restarted"), _TIMING)
    assert ("grpc-retry-pushback-ms", "-1") in status.trailing_metadata


@rows(
    ("requested", "available", "says"),
    [("hallo", ["halo", "gspmd"], "did you mean 'halo'?"), ("zzz", ["b", "a"], "there are: a, b"), ("x", [], "none")],
)
def test_the_nearest_name_is_suggested(requested, available, says):
    assert says in did_you_mean(requested, available)
