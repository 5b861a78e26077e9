"""The element types of the Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from shardcall.v1 import array_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.types.element_types import to_element_type
from shardcall_server.link.wire import decode_array_type

_OF_TYPES = {
    "FLOAT16": "FP16",
    "BFLOAT16": "BF16",
    "FLOAT32": "FP32",
    "FLOAT64": "FP64",
} | {name: name for name in ("BOOL", *(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)))}

ELEMENT_TYPES: Mapping[str, array_pb2.ElementType.ValueType] = MappingProxyType(
    {datatype: array_pb2.ElementType.Value(f"ELEMENT_TYPE_{name}") for name, datatype in _OF_TYPES.items()}
)
"""The element types by their names in the protocol."""

DATATYPES: Mapping[int, str] = MappingProxyType({code: name for name, code in ELEMENT_TYPES.items()})
"""The names of element types in the protocol; those that it has not are missing."""


def array_type(datatype: str, shape: tuple[int, ...], field: str) -> ArrayType:
    """Returns the type of a tensor.

    Args:
        datatype: its element type, as the caller sent it.
        shape: its shape, as the caller sent it.
        field: the tensor, for the error message.

    Raises:
        CallError: the protocol or this server has no such type.
    """
    try:
        return _valid_type(datatype, shape)
    except (KeyError, CallError):
        pass  # refused below, by its field
    code = ELEMENT_TYPES.get(datatype)
    if code is None:
        no_texts = "; this server computes no texts" if datatype == "BYTES" else ""
        raise CallError(
            Reason.UNSUPPORTED_ELEMENT_TYPE,
            f"{field}.datatype is {shorten(datatype)!r}{no_texts}; send one of {', '.join(ELEMENT_TYPES)}",
            field=f"{field}.datatype",
        )
    return decode_array_type(array_pb2.ArrayType(element_type=code, shape=shape), field)


@lru_cache(maxsize=4096)
def _valid_type(datatype: str, shape: tuple[int, ...]) -> ArrayType:
    return decode_array_type(array_pb2.ArrayType(element_type=ELEMENT_TYPES[datatype], shape=shape), "it")


def datatype_of(array: ArrayType, field: str) -> str:
    """Returns the name of an element type in the protocol.

    Raises:
        CallError: the protocol has no such type.
    """
    code = to_element_type(array.dtype)
    if code not in DATATYPES:
        raise CallError(
            Reason.UNSUPPORTED_ELEMENT_TYPE,
            f"{field} is {array}, and the Open Inference Protocol has no {array.dtype.name}; use one of "
            f"{', '.join(ELEMENT_TYPES)}, as by astype",
            field=field,
        )
    return DATATYPES[code]


def shape_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns a shape as the protocol has it: one of at least one axis."""
    return shape or (1,)
