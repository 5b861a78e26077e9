"""Rows about names that the server issues (handles, leases, segments), and about the call itself."""

import numpy as np
from end_to_end.messages import operand, tensor
from faults.bad_input_rows import LEASE, Row, call, inline_operand, put, row, shown

from shardcall.v1 import array_service_pb2 as arrays
from shardcall.v1 import file_service_pb2 as files
from shardcall.v1 import kernel_service_pb2 as kernels
from shardcall.v1 import profile_service_pb2 as profiles
from shardcall.v1 import segment_service_pb2 as segments
from shardcall.v1 import server_info_service_pb2 as infos
from shardcall_core.wire.token_file import user_name

_X = operand(np.arange(8.0))
_HANDLES = [b"", b"x", b"x" * 15, b"x" * 17, bytes(16), b"0123456789abcdef", b"x" * (1 << 20)]
_LEASES = [b"", b"x", b"x" * 15, b"x" * 65, b"x" * (1 << 20)]
_SECONDS = [-1.0, float("inf"), float("nan")]
_SIZES = [2**63, 2**64 - 1, 1 << 50]
_TIMEOUTS = ["", "soon", "-1", "nan", "-inf", "1e", "0x10", "1 s", "1,5", "-0.001", "y" * 4000]
_REQUEST_IDS = ["", "a b", "x" * 65, "a/b", "../x", "%00", "id;", "x" * 4000]
_NO_NAMES = ["", "..\\u", "x" * 100_000, "ü", "a\n", "a\0"]
_NO_FILES = [
    *("", "u", "/u.npy", "../u.npy", "a/../u.npy", ".u.npy", "a.zarr/u.npy", "a/" * 8 + "u.npy", "a\0.npy"),
    "x" * 100_000 + ".npy",
]
_PATHS = [
    *(f"/shardcall.v1.KernelService/{name}" for name in ("Run", "execute", "")),
    *("/shardcall.v1.NoService/Plan", "/shardcall.v2.KernelService/Plan", "/shardcall_worker.v1.Link/Execute"),
    *("/KernelService/Plan", "/"),
]


def _handles():
    for handle in _HANDLES:
        name = shown(handle)
        reason, field = ("ARRAY_LOST", "") if len(handle) == 16 else ("MALFORMED_REQUEST", "handle")
        for request_class in (arrays.GetArrayRequest, arrays.DescribeArrayRequest):
            yield row(name, request_class(handle=handle), reason, field)
        for request_class in (kernels.PlanRequest, kernels.CompileRequest) if handle else ():
            request = request_class(call=call(), operands=[tensor(8)], handles=[handle])
            yield row(name, request, reason, field and "operand 0")
    request = kernels.PlanRequest(call=call(), operands=[tensor(8)], handles=[b"", b""])
    yield row("more handles than operands", request, "MALFORMED_REQUEST", "handles")
    many = arrays.DeleteArraysRequest(handles=[bytes(16)] * 1025)
    yield row("1,025 handles", many, "MALFORMED_REQUEST", "handles")


def _leases():
    for lease_id in _LEASES:
        name = f"lease {shown(lease_id)}"
        yield put(name, "MALFORMED_REQUEST", "lease_id", lease_id=lease_id)
        kept = kernels.ExecuteRequest(call=call(), operands=[_X], keep_results=True, lease_id=lease_id)
        yield row(name, kept, "MALFORMED_REQUEST", "lease_id")
        yield row(name, arrays.RenewLeaseRequest(lease_id=lease_id), "MALFORMED_REQUEST", "lease_id")
        if lease_id:  # without one it lists the arrays of the principal
            yield row(name, arrays.ListArraysRequest(lease_id=lease_id), "MALFORMED_REQUEST", "lease_id")
    for seconds in (*_SECONDS, 1e9):
        request = arrays.RenewLeaseRequest(lease_id=bytes(16), min_seconds=seconds)
        yield row(f"{seconds} seconds", request, "MALFORMED_REQUEST", "min_seconds")


def _names():
    def named(name="u", handle=bytes(16), **fields):
        return arrays.NameArrayRequest(handle=handle, name=name, **fields)

    for name in (*_NO_NAMES, "x" * 65, "a/b"):
        yield row(shown(name), named(name), "INVALID_PARAMETER", "name")
    for name in (*_NO_NAMES, "x" * 65):
        yield row(shown(name), arrays.OpenArrayRequest(name=name), "INVALID_PARAMETER", "name")
    for name in ("unused", "nobody/u", "/u", "a/b/c", "x" * 100_000 + "/u"):
        yield row(f"lost: {shown(name)}", arrays.OpenArrayRequest(name=name), "ARRAY_LOST")
    for seconds in _SECONDS:
        yield row(f"{seconds} seconds", named(keep_seconds=seconds), "INVALID_PARAMETER", "keep_seconds")
    for handle in (b"", bytes(15), bytes(17)):
        yield row(f"a handle of {len(handle)}", named(handle=handle), "MALFORMED_REQUEST", "handle")
    yield row("no array", named(), "ARRAY_LOST")
    yield row("a short lease", named(lease_id=b"short"), "MALFORMED_REQUEST", "lease_id")
    for name in ("nobody/u", "/u", "a/b/c"):
        yield row(f"a write to {name}", named(name, expected_handle=bytes(16)), "ARRAY_LOST")


def _guests():
    for request_class in (arrays.ShareArrayRequest, arrays.UnshareArrayRequest):
        for name in (*_NO_NAMES, "a/b"):
            yield row(shown(name), request_class(name=name, principal="guest"), "INVALID_PARAMETER", "name")
        for name in ("a/b", "../we", "-", "x" * 65, "x" * 100_000, "ü", "a\n", "a\0", user_name()):
            request = request_class(name="u", principal=name)
            yield row(f"with {shown(name)}", request, "INVALID_PARAMETER", "principal")
        yield row("no array", request_class(name="unused", principal="guest"), "ARRAY_LOST")
    yield row("with nobody", arrays.ShareArrayRequest(name="u"), "INVALID_PARAMETER", "principal")


def _files():
    for name in _NO_FILES:
        for request_class in (files.SaveArrayRequest, files.LoadArrayRequest, files.RemoveFileRequest):
            yield row(shown(name), request_class(name=name), "INVALID_PARAMETER", "name")
    yield row("no array", files.SaveArrayRequest(handle=bytes(16), name="u.npy"), "ARRAY_LOST")
    request = files.SaveArrayRequest(handle=b"short", name="u.npy")
    yield row("a short handle", request, "MALFORMED_REQUEST", "handle")
    yield row("no file", files.LoadArrayRequest(name="unused.npy", lease_id=LEASE), "FILE_NOT_FOUND")
    for name in ("", "a/b", "x" * 65):
        yield row(shown(name), files.SaveCheckpointRequest(names=[name]), "INVALID_PARAMETER", "name")
    yield row("no array", files.SaveCheckpointRequest(names=["unused"]), "ARRAY_LOST", "name")
    yield row("many names", files.SaveCheckpointRequest(names=["u"] * 1025), "MALFORMED_REQUEST", "names")


def _segments():
    """Segments that do not exist, as operands and for results, at offsets up to the last."""
    segment_id = b"0123456789abcdef"
    for offset in (0, 1, 64, 2**63, 2**64 - 1):
        there = kernels.Operand(type=tensor(8), segment={"segment_id": segment_id, "offset": offset})
        request = kernels.ExecuteRequest(call=call(), operands=[there])
        yield row(f"an operand at {offset}", request, "SEGMENT_NOT_FOUND")
        yield put(f"an array at {offset}", "SEGMENT_NOT_FOUND", "", array=there)
        space = {"segment_id": segment_id, "offset": offset, "size_bytes": _SIZES[0]}
        request = kernels.ExecuteRequest(call=call(), operands=[_X], result_space=space)
        yield row(f"result space at {offset}", request, "SEGMENT_NOT_FOUND")
    for size in _SIZES:
        yield row(f"{size} bytes", segments.OpenSegmentRequest(size_bytes=size), "CALL_TOO_LARGE")
    yield row("0 bytes", segments.OpenSegmentRequest(), "MALFORMED_REQUEST", "size_bytes")


def _headers():
    """Rows about a call's metadata: timeouts and ids of requests."""
    many = infos.GetProgressRequest(request_ids=["a"] * 65)
    yield row("65 calls", many, "MALFORMED_REQUEST", "request_ids")
    for header, request, values in (
        ("shardcall-timeout", kernels.PlanRequest(call=call()), _TIMEOUTS),
        ("shardcall-request-id", infos.GetUsageRequest(), _REQUEST_IDS),
    ):
        for value in values:
            yield row(f"{header} {shown(value)}", request, "MALFORMED_REQUEST", header, ((header, value),))


def _profiles():
    """Invalid recordings; none is made."""
    for seconds in (*_SECONDS, -5e-324, float("-inf"), 1e308):
        request = profiles.StartProfileRequest(max_seconds=seconds)
        yield row(f"{seconds} s", request, "MALFORMED_REQUEST", "max_seconds")
    yield row("no recording", profiles.StopProfileRequest(), "PROFILE_STATE")


def _calls():
    for path in _PATHS:
        yield Row(f"method {path}", path, [kernels.PlanRequest(call=call())], "UNIMPLEMENTED")
    yield put("an array that is there", "MALFORMED_REQUEST", "array", array={"resident": {"handle": bytes(16)}})
    yield put("no array", "MALFORMED_REQUEST", "array", array=None)
    for kernel in ("", "k" * (1 << 20)):
        yield row(shown(kernel), kernels.DescribeKernelRequest(kernel=kernel), "KERNEL_NOT_FOUND")
    large = inline_operand((1 << 18,), bytes(1 << 21))
    yield row("operands for a stream", kernels.ExecuteRequest(call=call(), operands=[large]), "STREAM_REQUIRED")


ROWS = [
    *(*_handles(), *_leases(), *_names(), *_files(), *_guests()),
    *(*_segments(), *_headers(), *_profiles(), *_calls()),
]
