"""Right answers to changed requests that were served."""

import grpc
import numpy as np
from faults.mutations import MutatedRequest

from shardcall.v1 import array_service_pb2, array_service_pb2_grpc, kernel_service_pb2
from shardcall_core.types.element_types import to_dtype


def wrong(channel: grpc.Channel, request: MutatedRequest, answers: list[bytes]) -> str | None:
    """Describes the fault of an answer; empty for none, None where the right answer is not known.

    Known are differences of arrays in the message, which NumPy takes too, and arrays that were put: they come back.
    """
    if request.method == "PutArray":
        return _put(channel, request, array_service_pb2.PutArrayResponse.FromString(answers[0]))
    if request.method == "Execute":
        sent = kernel_service_pb2.ExecuteRequest.FromString(request.messages[0])
        result = kernel_service_pb2.ExecuteResponse.FromString(answers[0]).results[0]
        return _difference(sent, result.type, result.inline.data, result.WhichOneof("source"))
    return None


def _put(channel: grpc.Channel, request: MutatedRequest, answer: array_service_pb2.PutArrayResponse) -> str:
    messages = [array_service_pb2.PutArrayRequest.FromString(data) for data in request.messages]
    sent = messages[0].header.array.inline.data + b"".join(message.chunk.data for message in messages[1:])
    stub = array_service_pb2_grpc.ArrayServiceStub(channel)
    handle = answer.array.handle
    got = list(stub.GetArray(array_service_pb2.GetArrayRequest(handle=handle), timeout=60))
    stub.DeleteArrays(array_service_pb2.DeleteArraysRequest(handles=[handle]), timeout=60)
    source = got[0].header.array
    data = source.inline.data + b"".join(message.chunk.data for message in got)
    return "" if data == sent else f"put {sent[:100]!r} and got {data[:100]!r}"


def _difference(sent: kernel_service_pb2.ExecuteRequest, array_type, data: bytes, source: str) -> str | None:
    if sent.call.kernel != "diff" or source != "inline":
        return None
    arrays = [_array(operand) for operand in sent.operands]
    options = {name: value.int_value for name, value in sent.call.parameters.items()}
    if not arrays or any(array is None or not array.size for array in arrays) or len(arrays) > 3:
        return None
    if any(value.WhichOneof("kind") != "int_value" for value in sent.call.parameters.values()):
        return None
    edges = dict(zip(("prepend", "append"), arrays[1:], strict=False))
    if "n" in options:  # NumPy continues when no row is left
        options["n"] = min(options["n"], 1 + sum(array.size for array in arrays))
    with np.errstate(all="ignore"):
        expected = np.diff(arrays[0], **options, **edges)
    result = np.frombuffer(data, to_dtype(array_type.element_type)).reshape(array_type.shape)
    return "" if _equal(result, expected) else f"answered {result.tolist()} where NumPy has {expected.tolist()}"


def _array(operand: kernel_service_pb2.Operand) -> np.ndarray | None:
    """An operand as NumPy has it; None for one that is elsewhere, and for types that NumPy itself lacks."""
    if operand.WhichOneof("source") != "inline":
        return None
    dtype = to_dtype(operand.type.element_type)
    if dtype.kind not in "biufc" or not dtype.isbuiltin:
        return None
    return np.frombuffer(operand.inline.data, dtype).reshape(operand.type.shape)


def _equal(result: np.ndarray, expected: np.ndarray) -> bool:
    """True if results are the same, except for numbers so small that the platform flushes them to zero."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return False
    if result.dtype.kind in "biu":
        return bool(np.array_equal(result, expected))
    tiny = float(np.finfo(result.dtype).tiny)
    return bool(np.allclose(result, expected, rtol=1e-6, atol=16 * tiny, equal_nan=True))
