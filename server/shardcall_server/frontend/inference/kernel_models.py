"""Kernels as models: their inputs by name, and their parameters."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from shardcall.v1 import kernel_pb2, mesh_pb2
from shardcall_core.call_error import CallError, Reason, did_you_mean, shorten
from shardcall_core.types.errors import ShardcallError
from shardcall_core.types.parameters import to_proto
from shardcall_inference.v1 import inference_service_pb2
from shardcall_server.frontend.dispatch.compiled_call import CallTemplate
from shardcall_server.frontend.inference.tensors import InputTensor, malformed

PROGRAMS = "graph"
"""The kernel that runs programs, and is no model."""

_MAX_CACHED_BYTES = 1 << 10  # of the parameters of one call
_MAX_TEMPLATES = 256
_MESH_AXIS = re.compile(r"\s*([A-Za-z_]\w{0,63})=([1-9]\d{0,8})\s*")
_REPEATED = re.compile(r"(?P<name>.*)\[(?P<index>\d{1,4})\]")


class KernelTemplates:
    """The templates of calls of kernels, so that equal requests share one."""

    def __init__(self) -> None:
        self._cached = lru_cache(maxsize=_MAX_TEMPLATES)(_template)

    def of_request(self, kernel: str, parameters: Mapping[str, inference_service_pb2.InferParameter]) -> CallTemplate:
        """Returns the template of a call.

        Args:
            kernel: the kernel's name.
            parameters: its parameters, ``mesh`` and ``strategy``, as the caller sent them.

        Raises:
            CallError: a parameter has no value, or the mesh has another form.
        """
        if not parameters:
            return self._cached(kernel, ())
        key = tuple((name, parameters[name].SerializeToString()) for name in sorted(parameters))
        if sum(len(name) + len(value) for name, value in key) > _MAX_CACHED_BYTES:
            return _template(kernel, key)
        return self._cached(kernel, key)


def _template(kernel: str, parameters: tuple[tuple[str, bytes], ...]) -> CallTemplate:
    call = kernel_pb2.KernelCall(kernel=kernel)
    for name, data in parameters:
        message = inference_service_pb2.InferParameter.FromString(data)
        if name == "mesh":
            call.mesh.CopyFrom(_mesh(_text(name, message)))
        elif name == "strategy":
            call.strategy = _text(name, message)
        else:
            try:
                call.parameters[name].CopyFrom(to_proto(name, _value(name, message)))
            except ShardcallError as error:
                raise CallError(Reason.INVALID_PARAMETER, str(error), field=f"parameters[{name}]") from None
    return CallTemplate(call)


def _text(name: str, message: inference_service_pb2.InferParameter) -> str:
    if message.WhichOneof("value") != "string_param":
        raise malformed(f"parameters[{name}]", f"parameter {name!r} is no string; send string_param")
    return message.string_param


def _value(name: str, message: inference_service_pb2.InferParameter) -> Any:
    """Returns a parameter; integers in brackets, as JSON, are a list, and null is None."""
    field_name = message.WhichOneof("value")
    if field_name is None:
        raise malformed(f"parameters[{name}]", f"parameter {shorten(name)!r} has no value; set one")
    value = getattr(message, field_name)
    if field_name != "string_param" or not (value == "null" or value.startswith("[")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _mesh(text: str) -> mesh_pb2.Mesh:
    axes = [_MESH_AXIS.fullmatch(axis) for axis in text.split(",")]
    if not all(axes):
        raise CallError(
            Reason.INVALID_MESH,
            f"mesh is {shorten(text)!r}; send axes of the form name=size, such as x=4,y=2",
            field="parameters[mesh]",
        )
    return mesh_pb2.Mesh(axes=[mesh_pb2.MeshAxis(name=axis[1], size=int(axis[2])) for axis in axes if axis])


def operands_of(kernel: kernel_pb2.KernelDescription, inputs: Sequence[InputTensor]) -> list[InputTensor | None]:
    """Returns the inputs of a request in the order of the kernel's operands; None for an omitted one.

    Raises:
        CallError: the kernel has no operand of a name.
    """
    if len(inputs) <= len(kernel.operands) and all(
        tensor.name == operand.name and not operand.repeated
        for tensor, operand in zip(inputs, kernel.operands, strict=False)
    ):
        return list(inputs)
    indices = {operand.name: i for i, operand in enumerate(kernel.operands)}
    slots: dict[int, InputTensor] = {}
    for tensor in inputs:
        index = indices.get(tensor.name, -1)
        match = _REPEATED.fullmatch(tensor.name) if index < 0 else None
        if match is not None and (index := indices.get(match["name"], -1)) >= 0:
            is_repeated = kernel.operands[index].repeated
            index = index + int(match["index"]) if is_repeated else -1
        if index < 0:
            names = [f"{operand.name}[0]" if operand.repeated else operand.name for operand in kernel.operands]
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"kernel {kernel.name!r} has no input {shorten(tensor.name)!r}; {did_you_mean(tensor.name, names)}",
                field=f"{tensor.field}.name",
            )
        if index in slots:
            raise malformed(f"{tensor.field}.name", f"input {shorten(tensor.name)!r} came twice; send it once")
        slots[index] = tensor
    return [slots.get(i) for i in range(max(slots, default=-1) + 1)]
