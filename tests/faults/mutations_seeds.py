"""The valid requests that are changed at random: some of every method, on small arrays."""

from collections.abc import Iterator

import numpy as np
from end_to_end.messages import mesh, operand, spec, tensor
from faults.bad_input_rows import F32, I32, X8, call, inline_operand
from faults.mutations import ValidRequest
from google.protobuf.message import Message

from shardcall.v1 import array_pb2, kernel_pb2
from shardcall.v1 import array_service_pb2 as arrays
from shardcall.v1 import file_service_pb2 as files
from shardcall.v1 import kernel_service_pb2 as kernels
from shardcall.v1 import segment_service_pb2 as segments
from shardcall.v1 import server_info_service_pb2 as infos

_X = np.arange(24.0).reshape(6, 4)
_X2 = mesh(x=2)
_SEED = tensor(element_type=I32)
_STREAMED = kernels.Operand(type=tensor(6, 4), streamed={})


def _calls() -> list[tuple[kernel_pb2.KernelCall, list[array_pb2.ArrayType]]]:
    x, two = [tensor(6, 4)], [tensor(8, 8), tensor(8, 8)]
    return [
        (call(), x),
        (call("diff", {"axis": 0, "n": 2}, mesh=X8, in_specs=[spec("x", None)]), [*x, tensor()]),
        (call("shift", {"shift": 1, "axis": 0, "mode": "periodic"}, mesh=_X2), x),
        (call("gradient", {"axis": (0,), "edge_order": 2}), x),
        (call("laplacian", {"axes": (0, 1), "boundary": "zero"}, mesh=mesh(x=2, y=2)), x),
        (call("cumsum", {"axis": 0, "dtype": "float64"}, mesh=X8), x),
        (call("convolve", {"mode": "same", "axis": 0}, mesh=_X2), [*x, tensor(3)]),
        (call("matmul", {}, mesh=mesh(a=4, b=2), in_specs=[spec("a", None), spec(None, "b")]), two),
        (call("einsum", {"subscripts": "ij,jk->ik"}, mesh=X8), two),
        (call("collective_matmul", {"axis_name": "x"}, mesh=X8, strategy="ring"), two),
        (call("uniform", {"shape": (4, 3), "dtype": "float32"}), [_SEED]),
        (call("randint", {"shape": 8, "dtype": "int32"}), [_SEED] * 3),
        (call("permutation", {"axis": 0}), [_SEED, *x]),
        (call("stack", {"axis": 1}, mesh=_X2), [*x, *x, *x]),
        (call("sum", {"axis": (0, 1), "keepdims": True}, mesh=X8), x),
        (call("std", {"axis": 0, "ddof": 1}), x),
        (call("add", mesh=mesh(0, 1, x=2)), [tensor(6, 4), tensor(4)]),
        (call("where"), [tensor(6, element_type=1), tensor(6), tensor(6)]),
        (call("transpose", {"axes": (1, 0)}, mesh=X8, out_specs=[spec("x", None)]), x),
        (call("reshard", mesh=X8, out_specs=[spec(None, "x")]), x),
    ]


def _filled(array_type: array_pb2.ArrayType) -> kernels.Operand:
    size = {1: 1, I32: 4}.get(array_type.element_type, 8) * int(np.prod(array_type.shape))
    return inline_operand(array_type.shape, bytes(size), array_type.element_type)


def _executions(handle: bytes, lease_id: bytes) -> Iterator[Message]:
    for asked, array_types in _calls():
        yield kernels.ExecuteRequest(call=asked, operands=map(_filled, array_types))
    plain, scalar = operand(_X), inline_operand((), bytes(8))
    resident = kernels.Operand(resident={"handle": handle})
    for asked in (call(), call("diff", {"axis": 0}, mesh=X8), call("diff", {"n": 3})):
        for operands in ([plain], [plain, scalar], [resident]):
            yield kernels.ExecuteRequest(call=asked, operands=operands)
    yield kernels.ExecuteRequest(call=call(), operands=[resident], refuse_transfers=True)
    narrow = inline_operand((6, 4), _X.astype(np.float32).tobytes(), F32)
    yield kernels.ExecuteRequest(call=call(), operands=[narrow], keep_results=True, lease_id=lease_id)


def _arrays(handle: bytes, lease_id: bytes) -> Iterator[Message]:
    header = arrays.PutArrayHeader(array=operand(_X), mesh=_X2, spec=spec("x", None), lease_id=lease_id)
    yield arrays.PutArrayRequest(header=header)
    yield arrays.GetArrayRequest(handle=handle)
    yield arrays.DescribeArrayRequest(handle=handle)
    yield arrays.NameArrayRequest(handle=bytes(16), name="u", keep_seconds=1)
    yield arrays.OpenArrayRequest(name="u")
    yield arrays.ShareArrayRequest(name="u", principal="guest")
    yield arrays.UnshareArrayRequest(name="u", principal="guest")
    yield arrays.ListArraysRequest(lease_id=lease_id)
    yield arrays.RenewLeaseRequest(lease_id=lease_id)
    yield arrays.DeleteArraysRequest(handles=[bytes(16), b"x" * 16])
    for name in ("a/b.npy", "a/b.zarr"):
        yield files.SaveArrayRequest(handle=handle, name=name)
        yield files.LoadArrayRequest(name=name, mesh=_X2, spec=spec("x", None), lease_id=lease_id)
    yield files.SaveCheckpointRequest()
    yield files.ListFilesRequest(prefix="a")
    yield files.RemoveFileRequest(name="a/c.npy")


def _streams(lease_id: bytes) -> Iterator[tuple[Message, ...]]:
    def chunk(request, begin=0, end=None):
        return request(chunk=array_pb2.TensorChunk(offset=begin, data=_X.tobytes()[begin:end]))

    request = kernels.ExecuteStreamRequest
    opening = request(header=kernels.ExecuteRequest(call=call(), operands=[_STREAMED]))
    yield opening, chunk(request)
    yield opening, chunk(request, 0, 64), chunk(request, 64)
    put = arrays.PutArrayRequest
    yield put(header=arrays.PutArrayHeader(array=_STREAMED, lease_id=lease_id)), chunk(put)


def valid_requests(handle: bytes, lease_id: bytes) -> list[ValidRequest]:
    """Requests of every method that anybody may call, but those of models and recordings.

    Args:
        handle: an array on the mesh.
        lease_id: the lease for those that are made.
    """
    messages = [
        *(
            plan(call=c, operands=types)
            for plan in (kernels.PlanRequest, kernels.CompileRequest)
            for c, types in _calls()
        ),
        kernels.PlanRequest(call=call(), operands=[tensor(6, 4)], handles=[handle]),
        *_executions(handle, lease_id),
        *_arrays(handle, lease_id),
        kernels.ListKernelsRequest(),
        kernels.DescribeKernelRequest(kernel="diff"),
        segments.OpenSegmentRequest(size_bytes=1 << 21),
        infos.GetServerInfoRequest(),
        infos.GetUsageRequest(),
        infos.GetProgressRequest(request_ids=["a", "b"]),
    ]
    return [*(ValidRequest((message,)) for message in messages), *map(ValidRequest, _streams(lease_id))]
