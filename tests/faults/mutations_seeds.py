"""The valid requests that are changed at random: some of every method, on small arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from end_to_end.messages import mesh, operand, spec, tensor
from faults.bad_input_rows import F32, I32, X8, call, inline_operand
from faults.mutations import ValidRequest

from shardcall.v1 import array_pb2, array_service_pb2, file_service_pb2, kernel_pb2, kernel_service_pb2
from shardcall.v1 import segment_service_pb2 as segment_pb2
from shardcall.v1 import server_info_service_pb2 as info_pb2

_X = np.arange(24.0).reshape(6, 4)
_SEED = tensor(element_type=I32)
_Calls = list[tuple[kernel_pb2.KernelCall, list[array_pb2.ArrayType]]]


def _calls() -> _Calls:
    x, two = [tensor(6, 4)], [tensor(8, 8), tensor(8, 8)]
    return [
        (call(), x),
        (call("diff", {"axis": 0, "n": 2}, mesh=X8, in_specs=[spec("x", None)]), [*x, tensor()]),
        (call("shift", {"shift": 1, "axis": 0, "mode": "periodic"}, mesh=mesh(x=2)), x),
        (call("gradient", {"axis": (0,), "edge_order": 2}), x),
        (call("laplacian", {"axes": (0, 1), "boundary": "zero"}, mesh=mesh(x=2, y=2)), x),
        (call("cumsum", {"axis": 0, "dtype": "float64"}, mesh=X8), x),
        (call("convolve", {"mode": "same", "axis": 0}, mesh=mesh(x=2)), [*x, tensor(3)]),
        (call("matmul", {}, mesh=mesh(a=4, b=2), in_specs=[spec("a", None), spec(None, "b")]), two),
        (call("einsum", {"subscripts": "ij,jk->ik"}, mesh=X8), two),
        (call("collective_matmul", {"axis_name": "x"}, mesh=X8, strategy="ring"), two),
        (call("uniform", {"shape": (4, 3), "dtype": "float32"}), [_SEED]),
        (call("randint", {"shape": 8, "dtype": "int32"}), [_SEED] * 3),
        (call("permutation", {"axis": 0}), [_SEED, *x]),
        (call("stack", {"axis": 1}, mesh=mesh(x=2)), [*x, *x, *x]),
        (call("sum", {"axis": (0, 1), "keepdims": True}, mesh=X8), x),
        (call("std", {"axis": 0, "ddof": 1}), x),
        (call("add", mesh=mesh(0, 1, x=2)), [tensor(6, 4), tensor(4)]),
        (call("where"), [tensor(6, element_type=1), tensor(6), tensor(6)]),
        (call("transpose", {"axes": (1, 0)}, mesh=X8, out_specs=[spec("x", None)]), x),
        (call("reshard", mesh=X8, out_specs=[spec(None, "x")]), x),
    ]


def _filled(array_type: array_pb2.ArrayType) -> kernel_service_pb2.Operand:
    sizes = {1: 1, I32: 4}
    count = int(np.prod(array_type.shape))
    return inline_operand(
        array_type.shape, bytes(count * sizes.get(array_type.element_type, 8)), array_type.element_type
    )


def _chunk(request_class, data: bytes, offset: int = 0):
    return request_class(chunk=array_pb2.TensorChunk(index=0, offset=offset, data=data))


def _executions(handle: bytes, lease_id: bytes) -> Iterator[ValidRequest]:
    for asked, array_types in _calls():
        operands = [_filled(array_type) for array_type in array_types]
        yield ValidRequest("Execute", (kernel_service_pb2.ExecuteRequest(call=asked, operands=operands),))
    plain = operand(_X)
    resident = kernel_service_pb2.Operand(resident={"handle": handle})
    for asked in (call(), call("diff", {"axis": 0}, mesh=X8), call("diff", {"n": 3})):
        yield ValidRequest("Execute", (kernel_service_pb2.ExecuteRequest(call=asked, operands=[plain]),))
        yield ValidRequest(
            "Execute", (kernel_service_pb2.ExecuteRequest(call=asked, operands=[plain, inline_operand((), bytes(8))]),)
        )
        yield ValidRequest("Execute", (kernel_service_pb2.ExecuteRequest(call=asked, operands=[resident]),))
    staying = kernel_service_pb2.ExecuteRequest(call=call(), operands=[resident], refuse_transfers=True)
    yield ValidRequest("Execute", (staying,))
    planned = kernel_service_pb2.PlanRequest(call=call(), operands=[tensor(6, 4)], handles=[handle])
    yield ValidRequest("Plan", (planned,))
    narrow = inline_operand((6, 4), _X.astype(np.float32).tobytes(), F32)
    kept = kernel_service_pb2.ExecuteRequest(call=call(), operands=[narrow], keep_results=True, lease_id=lease_id)
    yield ValidRequest("Execute", (kept,))
    request = kernel_service_pb2.ExecuteStreamRequest
    streamed = kernel_service_pb2.Operand(type=tensor(6, 4), streamed={})
    opening = request(header=kernel_service_pb2.ExecuteRequest(call=call(), operands=[streamed]))
    data = _X.tobytes()
    yield ValidRequest("ExecuteStream", (opening, _chunk(request, data)))
    yield ValidRequest("ExecuteStream", (opening, _chunk(request, data[:64]), _chunk(request, data[64:], 64)))


def _arrays(handle: bytes, lease_id: bytes) -> Iterator[ValidRequest]:
    request = array_service_pb2.PutArrayRequest
    inline = array_service_pb2.PutArrayHeader(array=operand(_X), mesh=X8, spec=spec("x", None), lease_id=lease_id)
    yield ValidRequest("PutArray", (request(header=inline),))
    streamed = kernel_service_pb2.Operand(type=tensor(6, 4), streamed={})
    opening = request(header=array_service_pb2.PutArrayHeader(array=streamed, lease_id=lease_id))
    yield ValidRequest("PutArray", (opening, _chunk(request, _X.tobytes())))
    for method in ("GetArray", "DescribeArray"):
        yield ValidRequest(method, (getattr(array_service_pb2, f"{method}Request")(handle=handle),))
    yield ValidRequest("NameArray", (array_service_pb2.NameArrayRequest(handle=bytes(16), name="u", keep_seconds=1),))
    yield ValidRequest("OpenArray", (array_service_pb2.OpenArrayRequest(name="u"),))
    yield ValidRequest("ShareArray", (array_service_pb2.ShareArrayRequest(name="u", principal="guest"),))
    yield ValidRequest("UnshareArray", (array_service_pb2.UnshareArrayRequest(name="u", principal="guest"),))
    for method in ("ListArrays", "RenewLease"):
        yield ValidRequest(method, (getattr(array_service_pb2, f"{method}Request")(lease_id=lease_id),))
    yield ValidRequest("DeleteArrays", (array_service_pb2.DeleteArraysRequest(handles=[bytes(16), b"x" * 16]),))


def _files(handle: bytes, lease_id: bytes) -> Iterator[ValidRequest]:
    yield ValidRequest("SaveArray", (file_service_pb2.SaveArrayRequest(handle=handle, name="a/b.npy"),))
    loaded = file_service_pb2.LoadArrayRequest(name="a/b.npy", mesh=X8, spec=spec("x", None), lease_id=lease_id)
    yield ValidRequest("LoadArray", (loaded,))
    yield ValidRequest("SaveCheckpoint", (file_service_pb2.SaveCheckpointRequest(),))
    yield ValidRequest("SaveArray", (file_service_pb2.SaveArrayRequest(handle=handle, name="a/b.zarr"),))
    loaded = file_service_pb2.LoadArrayRequest(name="a/b.zarr", mesh=X8, spec=spec("x", None), lease_id=lease_id)
    yield ValidRequest("LoadArray", (loaded,))
    yield ValidRequest("ListFiles", (file_service_pb2.ListFilesRequest(prefix="a"),))
    yield ValidRequest("RemoveFile", (file_service_pb2.RemoveFileRequest(name="a/c.npy"),))


def valid_requests(handle: bytes, lease_id: bytes) -> list[ValidRequest]:
    """Requests of every method that anybody may call.

    Args:
        handle: an array on the mesh.
        lease_id: the lease for those that are made.
    """
    planned = [
        ValidRequest(method, (request(call=asked, operands=types),))
        for method, request in (
            ("Plan", kernel_service_pb2.PlanRequest),
            ("Compile", kernel_service_pb2.CompileRequest),
        )
        for asked, types in _calls()
    ]
    return [
        *planned,
        *_executions(handle, lease_id),
        *_arrays(handle, lease_id),
        *_files(handle, lease_id),
        ValidRequest("ListKernels", (kernel_service_pb2.ListKernelsRequest(),)),
        ValidRequest("DescribeKernel", (kernel_service_pb2.DescribeKernelRequest(kernel="diff"),)),
        ValidRequest("OpenSegment", (segment_pb2.OpenSegmentRequest(size_bytes=1 << 21),)),
        ValidRequest("GetServerInfo", (info_pb2.GetServerInfoRequest(),)),
        ValidRequest("GetUsage", (info_pb2.GetUsageRequest(),)),
        ValidRequest("GetProgress", (info_pb2.GetProgressRequest(request_ids=["a", "b"]),)),
    ]
