"""Rows about names that the server issues (handles, leases, segments), and about the call itself."""

from __future__ import annotations

import numpy as np
from end_to_end.messages import operand, tensor
from faults.bad_input_rows import LEASE, Row, call, inline_operand

from shardcall.v1 import (
    array_service_pb2,
    file_service_pb2,
    kernel_service_pb2,
    profile_service_pb2,
    segment_service_pb2,
    server_info_service_pb2,
)
from shardcall_core.wire.token_file import user_name

_X = operand(np.arange(8.0))
_HANDLES = [
    ("no handle", b""),
    ("a handle of 1 byte", b"x"),
    ("a handle of 15 bytes", b"x" * 15),
    ("a handle of 17 bytes", b"x" * 17),
    ("a handle of zeros", bytes(16)),
    ("a handle that was never issued", b"0123456789abcdef"),
    ("a handle of a MiB", b"x" * (1 << 20)),
]
_LEASES = [
    ("no lease", b""),
    ("a lease of 1 byte", b"x"),
    ("a lease of 15 bytes", b"x" * 15),
    ("a lease of 65 bytes", b"x" * 65),
    ("a lease of a MiB", b"x" * (1 << 20)),
]
_OFFSETS = [0, 1, 64, 2**63, 2**64 - 1]
_SIZES = [2**63, 2**64 - 1, 1 << 50]
_TIMEOUTS = ["", "soon", "-1", "nan", "-inf", "1e", "0x10", "1 s", "1,5", "-0.001", "y" * 4000]
_REQUEST_IDS = ["", "a b", "x" * 65, "a/b", "../x", "%00", "id;", "x" * 4000]
_PATHS = [
    "/shardcall.v1.KernelService/Run",
    "/shardcall.v1.KernelService/execute",
    "/shardcall.v1.KernelService/",
    "/shardcall.v1.NoService/Plan",
    "/shardcall.v2.KernelService/Plan",
    "/shardcall_worker.v1.Link/Execute",
    "/KernelService/Plan",
    "/",
]


def _put(name, reason, field, **fields):
    header = array_service_pb2.PutArrayHeader(**{"array": inline_operand((8,), bytes(64)), "lease_id": LEASE, **fields})
    return Row(f"put: {name}", "PutArray", [array_service_pb2.PutArrayRequest(header=header)], reason, field)


def _handles():
    for name, handle in _HANDLES:
        reason, field = ("ARRAY_LOST", "") if len(handle) == 16 else ("MALFORMED_REQUEST", "handle")
        for method in ("GetArray", "DescribeArray"):
            request_class = getattr(array_service_pb2, f"{method}Request")
            yield Row(f"{method}: {name}", method, [request_class(handle=handle)], reason, field)
        for method in ("Plan", "Compile") if handle else ():
            request_class = getattr(kernel_service_pb2, f"{method}Request")
            request = request_class(call=call(), operands=[tensor(8)], handles=[handle])
            yield Row(f"{method}: {name}", method, [request], reason, field and "operand 0")
    request = kernel_service_pb2.PlanRequest(call=call(), operands=[tensor(8)], handles=[b"", b""])
    yield Row("more handles than operands", "Plan", [request], "MALFORMED_REQUEST", "handles")
    many = array_service_pb2.DeleteArraysRequest(handles=[bytes(16)] * 1025)
    yield Row("1,025 handles to delete", "DeleteArrays", [many], "MALFORMED_REQUEST", "handles")


def _leases():
    for name, lease_id in _LEASES:
        yield _put(name, "MALFORMED_REQUEST", "lease_id", lease_id=lease_id)
        kept = kernel_service_pb2.ExecuteRequest(call=call(), operands=[_X], keep_results=True, lease_id=lease_id)
        yield Row(f"keep: {name}", "Execute", [kept], "MALFORMED_REQUEST", "lease_id")
        for method in ("ListArrays", "RenewLease"):
            if method == "ListArrays" and not lease_id:
                continue  # lists the arrays of the principal
            request_class = getattr(array_service_pb2, f"{method}Request")
            yield Row(f"{method}: {name}", method, [request_class(lease_id=lease_id)], "MALFORMED_REQUEST", "lease_id")
    for seconds in (-1.0, 1e9, float("inf"), float("nan")):
        request = array_service_pb2.RenewLeaseRequest(lease_id=bytes(16), min_seconds=seconds)
        yield Row(f"RenewLease: {seconds} seconds", "RenewLease", [request], "MALFORMED_REQUEST", "min_seconds")


def _names():
    for name in ("", "a/b", "..\\u", "x" * 65, "x" * 100_000, "ü", "a\n", "a\0"):
        request = array_service_pb2.NameArrayRequest(handle=bytes(16), name=name)
        yield Row(f"NameArray: {name[:9]!r}, {len(name)}", "NameArray", [request], "INVALID_PARAMETER", "name")
        if name != "a/b":
            request = array_service_pb2.OpenArrayRequest(name=name)
            yield Row(f"OpenArray: {name[:9]!r}, {len(name)}", "OpenArray", [request], "INVALID_PARAMETER", "name")
    for name in ("unused", "nobody/u", "/u", "a/b/c", "x" * 100_000 + "/u"):
        request = array_service_pb2.OpenArrayRequest(name=name)
        yield Row(f"OpenArray: {name[:9]!r}, {len(name)}", "OpenArray", [request], "ARRAY_LOST")
    for seconds in (-1.0, float("inf"), float("nan")):
        request = array_service_pb2.NameArrayRequest(handle=bytes(16), name="u", keep_seconds=seconds)
        yield Row(f"NameArray: {seconds} seconds", "NameArray", [request], "INVALID_PARAMETER", "keep_seconds")
    for handle in (b"", bytes(15), bytes(17)):
        request = array_service_pb2.NameArrayRequest(handle=handle, name="u")
        yield Row(f"NameArray: a handle of {len(handle)}", "NameArray", [request], "MALFORMED_REQUEST", "handle")
    request = array_service_pb2.NameArrayRequest(handle=bytes(16), name="u")
    yield Row("NameArray: no array", "NameArray", [request], "ARRAY_LOST")
    request = array_service_pb2.NameArrayRequest(handle=bytes(16), name="u", lease_id=b"short")
    yield Row("NameArray: a short lease", "NameArray", [request], "MALFORMED_REQUEST", "lease_id")
    for name in ("nobody/u", "/u", "a/b/c"):
        request = array_service_pb2.NameArrayRequest(handle=bytes(16), name=name, expected_handle=bytes(16))
        yield Row(f"NameArray: a write to {name}", "NameArray", [request], "ARRAY_LOST")


def _guests():
    for request_class in (array_service_pb2.ShareArrayRequest, array_service_pb2.UnshareArrayRequest):
        method = request_class.__name__.removesuffix("Request")
        for name in ("", "a/b", "..\\u", "x" * 100_000, "ü", "a\n", "a\0"):
            request = request_class(name=name, principal="guest")
            yield Row(f"{method}: {name[:9]!r}, {len(name)}", method, [request], "INVALID_PARAMETER", "name")
        for principal in ("a/b", "../we", "-", "x" * 65, "x" * 100_000, "ü", "a\n", "a\0", user_name()):
            request = request_class(name="u", principal=principal)
            label = f"{method}: with {principal[:9]!r}, {len(principal)}"
            yield Row(label, method, [request], "INVALID_PARAMETER", "principal")
        yield Row(f"{method}: no array", method, [request_class(name="unused", principal="guest")], "ARRAY_LOST")
    request = array_service_pb2.ShareArrayRequest(name="u")
    yield Row("ShareArray: with nobody", "ShareArray", [request], "INVALID_PARAMETER", "principal")


def _files():
    for name in (
        "",
        "u",
        "/u.npy",
        "../u.npy",
        "a/../u.npy",
        ".u.npy",
        "a.zarr/u.npy",
        "a/" * 8 + "u.npy",
        "x" * 100_000 + ".npy",
        "a\0.npy",
    ):
        for method in ("SaveArray", "LoadArray", "RemoveFile"):
            request = getattr(file_service_pb2, f"{method}Request")(name=name)
            yield Row(f"{method}: {name[:9]!r}, {len(name)}", method, [request], "INVALID_PARAMETER", "name")
    request = file_service_pb2.SaveArrayRequest(handle=bytes(16), name="u.npy")
    yield Row("SaveArray: no array", "SaveArray", [request], "ARRAY_LOST")
    request = file_service_pb2.SaveArrayRequest(handle=b"short", name="u.npy")
    yield Row("SaveArray: a short handle", "SaveArray", [request], "MALFORMED_REQUEST", "handle")
    request = file_service_pb2.LoadArrayRequest(name="unused.npy", lease_id=LEASE)
    yield Row("LoadArray: no file", "LoadArray", [request], "FILE_NOT_FOUND")
    for name in ("", "a/b", "x" * 65):
        request = file_service_pb2.SaveCheckpointRequest(names=[name])
        label = f"SaveCheckpoint: {name[:9]!r}, {len(name)}"
        yield Row(label, "SaveCheckpoint", [request], "INVALID_PARAMETER", "name")
    request = file_service_pb2.SaveCheckpointRequest(names=["unused"])
    yield Row("SaveCheckpoint: no array", "SaveCheckpoint", [request], "ARRAY_LOST", "name")
    request = file_service_pb2.SaveCheckpointRequest(names=["u"] * 1025)
    yield Row("SaveCheckpoint: too many names", "SaveCheckpoint", [request], "MALFORMED_REQUEST", "names")


def _segments():
    """Segments that do not exist, as operands and for results, at offsets up to the last."""
    segment_id = b"0123456789abcdef"
    for offset in _OFFSETS:
        there = kernel_service_pb2.Operand(type=tensor(8), segment={"segment_id": segment_id, "offset": offset})
        request = kernel_service_pb2.ExecuteRequest(call=call(), operands=[there])
        yield Row(f"an operand at {offset}", "Execute", [request], "SEGMENT_NOT_FOUND")
        yield _put(f"an array at {offset}", "SEGMENT_NOT_FOUND", "", array=there)
        space = {"segment_id": segment_id, "offset": offset, "size_bytes": _SIZES[0]}
        request = kernel_service_pb2.ExecuteRequest(call=call(), operands=[_X], result_space=space)
        yield Row(f"result space at {offset}", "Execute", [request], "SEGMENT_NOT_FOUND")
    for size in _SIZES:
        request = segment_service_pb2.OpenSegmentRequest(size_bytes=size)
        yield Row(f"a segment of {size} bytes", "OpenSegment", [request], "CALL_TOO_LARGE")
    nothing = segment_service_pb2.OpenSegmentRequest()
    yield Row("a segment of 0 bytes", "OpenSegment", [nothing], "MALFORMED_REQUEST", "size_bytes")


def _headers():
    """Rows about a call's metadata: timeouts and ids of requests."""
    usage, plan = server_info_service_pb2.GetUsageRequest(), kernel_service_pb2.PlanRequest(call=call())
    many = server_info_service_pb2.GetProgressRequest(request_ids=["a"] * 65)
    yield Row("progress of 65 calls", "GetProgress", [many], "MALFORMED_REQUEST", "request_ids")
    for timeout in _TIMEOUTS:
        metadata = (("shardcall-timeout", timeout),)
        yield Row(f"timeout {timeout[:9]!r}", "Plan", [plan], "MALFORMED_REQUEST", "shardcall-timeout", metadata)
    for request_id in _REQUEST_IDS:
        metadata = (("shardcall-request-id", request_id),)
        row = Row(f"request id {request_id[:66]!r}", "GetUsage", [usage], "MALFORMED_REQUEST", "shardcall-request-id")
        yield Row(row.name, row.method, row.request, row.reason, row.field, metadata)


def _profiles():
    """Invalid recordings; none is made."""
    for seconds in (-1.0, -5e-324, float("nan"), float("inf"), float("-inf"), 1e308):
        request = profile_service_pb2.StartProfileRequest(max_seconds=seconds)
        yield Row(f"a recording of {seconds} s", "StartProfile", [request], "MALFORMED_REQUEST", "max_seconds")
    yield Row("no recording", "StopProfile", [profile_service_pb2.StopProfileRequest()], "PROFILE_STATE")


ROWS = [
    *_handles(),
    *_leases(),
    *_names(),
    *_files(),
    *_guests(),
    *_segments(),
    *_headers(),
    *_profiles(),
    *(Row(f"method {path}", path, [kernel_service_pb2.PlanRequest(call=call())], "UNIMPLEMENTED") for path in _PATHS),
    _put("an array that is there", "MALFORMED_REQUEST", "array", array={"resident": {"handle": bytes(16)}}),
    _put("no array", "MALFORMED_REQUEST", "array", array=None),
    Row("no kernel", "DescribeKernel", [kernel_service_pb2.DescribeKernelRequest()], "KERNEL_NOT_FOUND"),
    Row(
        "a kernel of a MiB",
        "DescribeKernel",
        [kernel_service_pb2.DescribeKernelRequest(kernel="k" * (1 << 20))],
        "KERNEL_NOT_FOUND",
    ),
    Row(
        "operands for a stream",
        "Execute",
        [kernel_service_pb2.ExecuteRequest(call=call(), operands=[inline_operand((1 << 18,), bytes(1 << 21))])],
        "STREAM_REQUIRED",
    ),
]
