"""The tensors of a request: typed, raw or in registered shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.layouts.layout import ArrayType
from shardcall_inference.v1 import inference_service_pb2
from shardcall_server.frontend.dispatch.operand_reader import check_inline
from shardcall_server.frontend.inference.datatypes import array_type
from shardcall_server.frontend.inference.shared_memory_regions import MAX_REGION_NAME

_MAX_INPUTS = 1024
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
_SENT = {"int_contents": np.int32, "uint_contents": np.uint32}
_REGION, _OFFSET, _SIZE = "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"

Parameters = Mapping[str, inference_service_pb2.InferParameter]


@dataclass(frozen=True)
class RegisteredPart:
    """A part of a registered region.

    Attributes:
        name: the region.
        offset: the first byte.
        nbytes: the size.
    """

    name: str
    offset: int
    nbytes: int


class InputTensor(NamedTuple):
    """An input of a request.

    Attributes:
        name: its name.
        field: its field in the request.
        type: its type.
        data: its bytes; empty if it is in a region.
        part: the part of a region that it is in; None if it is in the message.
    """

    name: str
    field: str
    type: ArrayType
    data: bytes
    part: RegisteredPart | None


def read_inputs(request: inference_service_pb2.ModelInferRequest) -> list[InputTensor]:
    """Returns the inputs of a request, with checked types and sizes.

    Raises:
        CallError: names the field.
    """
    if len(request.inputs) > _MAX_INPUTS:
        raise malformed("inputs", f"{len(request.inputs)} inputs came, and at most {_MAX_INPUTS} are allowed")
    raw = iter(request.raw_input_contents)
    names: set[str] = set()
    tensors = []
    for i, message in enumerate(request.inputs):
        tensor = _read_input(message, f"inputs[{i}]", raw, is_raw=bool(request.raw_input_contents))
        if tensor.name in names:
            raise malformed(f"{tensor.field}.name", f"input {shorten(tensor.name)!r} came twice; send it once")
        names.add(tensor.name)
        tensors.append(tensor)
    if next(raw, None) is not None:
        count = sum(tensor.part is None for tensor in tensors)
        raise malformed(
            "raw_input_contents",
            f"{len(request.raw_input_contents)} entries came for {count} inputs that are in no shared memory; send one "
            "for each",
        )
    return tensors


def _read_input(
    message: inference_service_pb2.ModelInferRequest.InferInputTensor, field: str, raw: Iterator[bytes], *, is_raw: bool
) -> InputTensor:
    array = array_type(message.datatype, tuple(message.shape), field)
    part = region_part(message.parameters, field) if message.parameters else None
    has_contents = message.HasField("contents")
    if part is not None:
        if has_contents:
            raise malformed(f"{field}.contents", f"{field} is in shared memory and has contents; send one of them")
        check_size(array, part.nbytes, f"{field}.parameters[{_SIZE}]")
        return InputTensor(message.name, field, array, b"", part)
    if not is_raw:
        return InputTensor(message.name, field, array, _typed(message, array, field), None)
    if has_contents:
        raise malformed(f"{field}.contents", f"{field} has contents beside raw_input_contents; send one of them")
    data = next(raw, None)
    if data is None:
        raise malformed("raw_input_contents", f"there is no entry for {field}; send one for each input")
    check_inline(array, data, field)
    return InputTensor(message.name, field, array, data, None)


def _typed(message: inference_service_pb2.ModelInferRequest.InferInputTensor, array: ArrayType, field: str) -> bytes:
    """Returns the bytes of typed contents."""
    name = _CONTENTS.get(message.datatype)
    if name is None:
        raise malformed(
            f"{field}.contents", f"the protocol has no contents for {message.datatype}; send raw_input_contents"
        )
    others = [item.name for item, _ in message.contents.ListFields() if item.name != name]
    if others:
        raise malformed(
            f"{field}.contents.{others[0]}", f"{field} is {message.datatype} and has {others[0]}; send {name}"
        )
    values = getattr(message.contents, name)
    count = int(np.prod(array.shape, dtype=object))
    if len(values) != count:
        raise CallError(
            Reason.SIZE_MISMATCH,
            f"{field}.contents.{name} has {len(values)} elements, and {shorten(str(array))} has {count}; send "
            "them all, or raw_input_contents",
            field=f"{field}.contents.{name}",
            metadata={"expected": str(count), "given": str(len(values))},
        )
    sent = np.array(values, _SENT.get(name, array.dtype))
    elements = sent.astype(array.dtype)
    if array.dtype.kind in "iu" and (elements != sent).any():
        raise CallError(
            Reason.INVALID_OPERAND,
            f"{field}.contents.{name} has {sent[elements != sent][0]}, which is no {message.datatype}; send values of "
            "that type",
            field=f"{field}.contents.{name}",
        )
    return elements.tobytes()


def region_part(parameters: Parameters, field: str) -> RegisteredPart | None:
    """Returns the part of a region that the parameters of a tensor name; None for no region.

    Raises:
        CallError: a parameter is of another type, or unknown.
    """
    for name in parameters:
        if name not in (_REGION, _OFFSET, _SIZE) and name != "binary_data":
            raise CallError(
                Reason.UNKNOWN_PARAMETER,
                f"{field}.parameters has {shorten(name)!r}; tensors have {_REGION}, {_OFFSET} and {_SIZE}",
                field=f"{field}.parameters[{shorten(name)}]",
            )
    if _REGION not in parameters:
        return None
    if parameters[_REGION].WhichOneof("value") != "string_param":
        raise malformed(f"{field}.parameters[{_REGION}]", f"{_REGION} is no string; send string_param")
    name = parameters[_REGION].string_param
    if len(name) > MAX_REGION_NAME:
        raise malformed(
            f"{field}.parameters[{_REGION}]",
            f"{_REGION} has {len(name)} characters, and at most {MAX_REGION_NAME} are allowed; send the "
            "name of a region",
        )
    offset, nbytes = (integer(parameters, key, field) for key in (_OFFSET, _SIZE))
    return RegisteredPart(name, offset, nbytes)


def integer(parameters: Parameters, name: str, field: str) -> int:
    """Returns an integer of 0 or more among parameters; 0 if it is missing.

    Raises:
        CallError: it is something else.
    """
    if name not in parameters:
        return 0
    value = parameters[name]
    field_name = value.WhichOneof("value")
    number = getattr(value, field_name) if field_name in ("int64_param", "uint64_param") else -1
    if number < 0:
        label = f"{field}.parameters[{name}]" if field else f"parameters[{name}]"
        raise CallError(Reason.INVALID_PARAMETER, f"{label} is no integer of 0 or more; send int64_param", field=label)
    return int(number)


def check_size(array: ArrayType, nbytes: int, field: str) -> None:
    """Raises CallError unless a region has the bytes of an array."""
    if array.nbytes != nbytes:
        raise CallError(
            Reason.SIZE_MISMATCH,
            f"{field} is {nbytes}, and {shorten(str(array))} has {array.nbytes} bytes; send its size",
            field=field,
            metadata={"expected": str(array.nbytes), "given": str(nbytes)},
        )


def malformed(field: str, message: str) -> CallError:
    """Returns the error of a field that breaks the protocol."""
    return CallError(Reason.MALFORMED_REQUEST, message, field=field)
