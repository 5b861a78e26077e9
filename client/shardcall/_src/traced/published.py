"""Functions of the caller as models: their programs, inputs by name, and what is a part of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardcall._src.calls.call_request import CallOptions, prepare
from shardcall._src.device_arrays.remote_array import RemoteArray, find_remote_array
from shardcall._src.traced.program import TracedProgram
from shardcall.v1 import model_service_pb2
from shardcall_core.types import arrays
from shardcall_core.types.errors import (
    InvalidOperandError,
    InvalidParameterError,
    ResourceExhaustedError,
    TracingError,
)
from shardcall_core.types.sizes import exact
from shardcall_core.types.specs import PartitionSpec


def model_request(
    program: TracedProgram,
    operands: Sequence[Any],
    objects: Sequence[Any],
    names: Mapping[int, str],
    out_specs: Sequence[PartitionSpec | None] | None,
    limit_bytes: int,
) -> model_service_pb2.PublishModelRequest:
    """Returns the request to publish a program, without its name.

    Args:
        program: the program.
        operands: its operands.
        objects: the leaves of the arguments.
        names: the names of the inputs of the model, by the indices of the leaves that they are.
        out_specs: the sharding of the results.
        limit_bytes: the most bytes of its constants.

    Raises:
        TracingError: the program writes to arrays of its caller.
        InvalidOperandError: it refers to an array on the mesh that has no name.
        ResourceExhaustedError: its constants have more bytes.
    """
    if program.writes:
        raise TracingError(f"{program.name} writes to an array of its caller; begin with a copy, and return it")
    if out_specs and len(out_specs) > len(program.types):
        raise InvalidParameterError(
            f"out_specs has {len(out_specs)} specs, and {program.name} returns {len(program.types)} arrays; give at "
            "most one for each",
            field="out_specs",
        )
    parameters = {"graph": program.form, **({"exact": True} if program.exact else {})}
    types = [item.array_type for item in program.inputs]
    call = prepare("graph", types, parameters, CallOptions(out_specs=out_specs))
    leaves = list(names)
    constants = [i for i, value in enumerate(operands) if _is_constant(program, i, value, leaves)]
    _check_constants(program, constants, limit_bytes)
    return model_service_pb2.PublishModelRequest(
        call=call.message,
        inputs=[model_service_pb2.ModelTensor(name=names[i], type=arrays.to_proto(objects[i])) for i in leaves],
        operands=[_operand(program, i, value, objects, leaves) for i, value in enumerate(operands)],
    )


def _is_input(program: TracedProgram, index: int, leaves: Sequence[int]) -> bool:
    item = program.inputs[index]
    return item.leaf is not None and item.number is None and item.leaf in leaves


def _is_constant(program: TracedProgram, index: int, value: Any, leaves: Sequence[int]) -> bool:
    return not _is_input(program, index, leaves) and not isinstance(value, RemoteArray)


def _check_constants(program: TracedProgram, constants: Sequence[int], limit_bytes: int) -> None:
    """Refuses more constants than the server takes, before they are copied into a message."""
    nbytes = sum(program.inputs[i].array_type.nbytes for i in constants)
    if nbytes > limit_bytes:
        raise ResourceExhaustedError(
            f"the constants of {program.name} have {exact(nbytes)}, and those of a model at most {exact(limit_bytes)}; "
            "give large arrays a name on the mesh, client.put(x, name=…), and have the function refer to these",
            reason="CALL_TOO_LARGE",
            field="function",
            metadata={"bytes": str(nbytes), "limit": str(limit_bytes)},
        )


def _operand(
    program: TracedProgram, index: int, value: Any, objects: Sequence[Any], leaves: Sequence[int]
) -> model_service_pb2.ModelOperand:
    item, base = program.inputs[index], program.bases[index]
    if item.leaf is not None and _is_input(program, index, leaves):
        return model_service_pb2.ModelOperand(input=leaves.index(item.leaf))
    if not isinstance(value, RemoteArray):
        constant = model_service_pb2.ModelConstant(
            type=arrays.to_proto(item.array_type), data=arrays.as_bytes_view(arrays.row_major(value)).tobytes()
        )
        return model_service_pb2.ModelOperand(constant=constant)
    store = base() if base is not None else None
    if store is None and item.leaf is not None and (array := find_remote_array(objects[item.leaf])) is not None:
        store = array._store if item.is_base or not array._steps else None
    if store is None or not store.name:
        raise InvalidOperandError(
            f"{program.name} refers to an array on the mesh, {item.array_type}, that has no name; give it one, "
            "client.name(h, …), by which requests look it up, or get() its values, which become a part of the model",
            field="function",
        )
    return model_service_pb2.ModelOperand(array_name=store.name)
