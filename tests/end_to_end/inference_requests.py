"""The Open Inference Protocol in its own words."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import grpc
import ml_dtypes
import numpy as np
from end_to_end.messages import open_channel
from google.protobuf import message_factory

from shardcall_inference.v1 import inference_service_pb2 as pb

DTYPES = {"BOOL": np.bool_, "FP16": np.float16, "BF16": ml_dtypes.bfloat16, "FP32": np.float32, "FP64": np.float64} | {
    f"{sign}INT{bits}": np.dtype(f"{sign}int{bits}".lower()) for sign in ("", "U") for bits in (8, 16, 32, 64)
}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
Method = Callable[..., Any]


class Stub:
    """The methods of the service."""

    def __init__(self, channel: grpc.Channel) -> None:
        for method in pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods:
            make = channel.stream_stream if method.client_streaming else channel.unary_unary
            request, response = (message_factory.GetMessageClass(t) for t in (method.input_type, method.output_type))
            path = f"/inference.GRPCInferenceService/{method.name}"
            setattr(self, method.name, make(path, request.SerializeToString, response.FromString))

    ModelInfer: Method
    ModelStreamInfer: Method


@contextmanager
def connected(address: str, **options: Any) -> Iterator[Stub]:
    """A channel with the stub."""
    with open_channel(address, **options) as channel:
        yield Stub(channel)


def parameter(value: Any) -> pb.InferParameter:
    field = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}[type(value)]
    return pb.InferParameter(**{field: value})


def parameters(values: dict[str, Any]) -> dict[str, pb.InferParameter]:
    return {name: parameter(value) for name, value in values.items()}


def tensor(name: str, array: np.ndarray, **fields: Any) -> pb.ModelInferRequest.InferInputTensor:
    return pb.ModelInferRequest.InferInputTensor(name=name, datatype=NAMES[array.dtype], shape=array.shape, **fields)


def infer(model: str, arrays: dict[str, np.ndarray], settings: dict[str, Any] | None = None, **fields: Any) -> Any:
    """Returns a request with raw inputs."""
    return pb.ModelInferRequest(
        model_name=model,
        inputs=fields.pop("inputs", [tensor(name, array) for name, array in arrays.items()]),
        raw_input_contents=[array.tobytes() for array in arrays.values()],
        parameters=parameters(settings or {}),
        **fields,
    )


def arrays_of(response: pb.ModelInferResponse) -> dict[str, np.ndarray]:
    return {
        output.name: np.frombuffer(data, DTYPES[output.datatype]).reshape(output.shape)
        for output, data in zip(response.outputs, response.raw_output_contents, strict=True)
    }


@contextmanager
def shared_file(data: bytes) -> Iterator[SharedMemory]:
    """A file in /dev/shm that begins with bytes."""
    memory = SharedMemory(create=True, size=max(1, len(data)))
    try:
        memory.buf[: len(data)] = data
        yield memory
    finally:
        memory.close()
        memory.unlink()


def placed(name: str, nbytes: int, offset: int = 0) -> dict[str, pb.InferParameter]:
    return parameters({"shared_memory_region": name, "shared_memory_byte_size": nbytes, "shared_memory_offset": offset})
