"""The service that publishes programs as models."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from shardcall.v1 import kernel_pb2, model_service_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.types.sizes import exact
from shardcall_server.frontend.dispatch.compiled_call import CallTemplate
from shardcall_server.frontend.dispatch.execution import Execution
from shardcall_server.frontend.dispatch.idempotency import IdempotencyTable, once
from shardcall_server.frontend.dispatch.operand_reader import check_inline
from shardcall_server.frontend.dispatch.supervisor import ReadyMesh
from shardcall_server.frontend.inference.datatypes import datatype_of
from shardcall_server.frontend.inference.model_table import (
    Model,
    ModelOperand,
    ModelTable,
    Tensor,
    check_model_name,
    operand_source,
)
from shardcall_server.frontend.memory.resident_array_table import ResidentArrayTable
from shardcall_server.frontend.rpc.coroutines import Stage
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.link.wire import check_operand_count, decode_array_type, encode_array_type
from shardcall_server.settings import Settings

_MAX_NAME = 256
_MAX_DESCRIPTION_BYTES = 16 << 10
_FRAMING_BYTES = 8  # of a description in a list


class ModelServicer:
    """`shardcall.v1.ModelService`; its methods take a `ServerCall` instead of gRPC's context.

    Args:
        models: the published programs.
        execution: compiles them.
        mesh: returns the mesh, once it answers.
    """

    def __init__(
        self,
        models: ModelTable,
        execution: Execution,
        mesh: Callable[[ServerCall], Stage[ReadyMesh]],
        array_table: ResidentArrayTable,
        idempotency: IdempotencyTable,
        settings: Settings,
    ) -> None:
        self._idempotency = idempotency
        self._models = models
        self._execution = execution
        self._mesh = mesh
        self._array_table = array_table
        self._max_constant_bytes = settings.max_inline_bytes
        self._max_list_bytes = settings.max_message_bytes // 2

    @once
    def PublishModel(  # noqa: N802  # the contract's name
        self, request: model_service_pb2.PublishModelRequest, call: ServerCall
    ) -> model_service_pb2.PublishModelResponse:
        """Publishes a program, compiled."""
        check_model_name(request.name)
        mesh = call.run(self._mesh(call))  # with which the arrays that the model refers to return after a restart
        if request.name in mesh.kernels:
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"{request.name!r} is a kernel, which every caller runs by this name; use another",
                field="name",
            )
        check_operand_count(len(request.inputs))
        inputs = _inputs(request.inputs)
        operands = self._operands(request.operands, inputs)
        # A copy, since a part of a message keeps the complete one, with the constants.
        template = CallTemplate(kernel_pb2.KernelCall.FromString(request.call.SerializeToString()))
        sources = [operand_source(self._array_table, call.principal_name, item, inputs) for item in operands]
        compiled = call.run(self._execution.prepare(call, template, sources))
        call.run(self._execution.admit(call, compiled))  # the first request waits for no known-answer tests
        outputs = [
            Tensor(f"result{i}", decode_array_type(result.type, f"result{i}"))
            for i, result in enumerate(compiled.plan.results)
        ]
        for tensor in outputs:
            datatype_of(tensor.type, tensor.name)
        model = Model(
            request.name,
            call.principal_name,
            inputs,
            outputs,
            operands,
            template,
            request.shared,
            call.owner,
            request.ByteSize(),
            hashlib.sha256(request.SerializeToString(deterministic=True)).digest(),
        )
        _check_description(_described(model, call))
        return model_service_pb2.PublishModelResponse(model=_described(self._models.put(model), call))

    @once
    def UnpublishModel(  # noqa: N802
        self, request: model_service_pb2.UnpublishModelRequest, call: ServerCall
    ) -> model_service_pb2.UnpublishModelResponse:
        """Removes a model."""
        check_model_name(request.name)
        return model_service_pb2.UnpublishModelResponse(existed=self._models.remove(request.name, call.principal_name))

    def ListModels(  # noqa: N802
        self, request: model_service_pb2.ListModelsRequest, call: ServerCall
    ) -> model_service_pb2.ListModelsResponse:
        """Lists the models of the caller, and those that others share."""
        response, nbytes = model_service_pb2.ListModelsResponse(), 0
        for model in self._models.visible(call.principal_name):
            if model.name_for(call.principal_name) <= request.after:
                continue
            description = _described(model, call)
            nbytes += description.ByteSize() + _FRAMING_BYTES
            if nbytes > self._max_list_bytes:
                response.more = True
                break
            response.models.append(description)
        return response

    def _operands(self, messages: Iterable[model_service_pb2.ModelOperand], inputs: list[Tensor]) -> list[ModelOperand]:
        operands, nbytes = [], 0
        for i, message in enumerate(messages):
            field, source = f"operands[{i}]", message.WhichOneof("source")
            if source == "input" and message.input < len(inputs):
                operands.append(ModelOperand(input_index=message.input))
            elif source == "constant":
                constant = decode_array_type(message.constant.type, field)
                check_inline(constant, message.constant.data, field)
                operands.append(ModelOperand(constant=(constant, message.constant.data)))
                nbytes += constant.nbytes
            elif source == "array_name":
                operands.append(ModelOperand(array_name=message.array_name))
            else:
                what = "has no source" if source is None else f"is input {message.input} of {len(inputs)}"
                raise CallError(
                    Reason.MALFORMED_REQUEST, f"{field} {what}; set the index of an input, or a value", field=field
                )
        check_operand_count(len(operands))
        if nbytes > self._max_constant_bytes:
            raise CallError(
                Reason.CALL_TOO_LARGE,
                f"the constants have {exact(nbytes)}, and those of a model at most {exact(self._max_constant_bytes)}; "
                "give large arrays a name on the mesh, client.put(x, name=…), and refer to these",
                field="operands",
                metadata={"bytes": str(nbytes), "limit": str(self._max_constant_bytes)},
            )
        return operands


def _inputs(messages: Iterable[model_service_pb2.ModelTensor]) -> list[Tensor]:
    inputs: dict[str, Tensor] = {}
    for i, message in enumerate(messages):
        field = f"inputs[{i}]"
        if not 0 < len(message.name) <= _MAX_NAME or message.name in inputs:
            why = "another input has it" if message.name in inputs else f"it has 1 to {_MAX_NAME} characters"
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"{field}.name is {shorten(message.name)!r}; {why}",
                field=f"{field}.name",
            )
        array: ArrayType = decode_array_type(message.type, field)
        datatype_of(array, field)
        inputs[message.name] = Tensor(message.name, array)
    return list(inputs.values())


def _check_description(description: model_service_pb2.ModelDescription) -> None:
    """Raises CallError for names and shapes that a list of models may not hold."""
    nbytes = description.ByteSize()
    if nbytes > _MAX_DESCRIPTION_BYTES:
        raise CallError(
            Reason.CALL_TOO_LARGE,
            f"the names and types of the inputs and outputs have {exact(nbytes)}, and those of a model at most "
            f"{exact(_MAX_DESCRIPTION_BYTES)}; give it fewer inputs, or arguments with shorter names",
            field="inputs",
            metadata={"bytes": str(nbytes), "limit": str(_MAX_DESCRIPTION_BYTES)},
        )


def _described(model: Model, call: ServerCall) -> model_service_pb2.ModelDescription:
    return model_service_pb2.ModelDescription(
        name=model.name_for(call.principal_name),
        version=model.version,
        inputs=[model_service_pb2.ModelTensor(name=t.name, type=encode_array_type(t.type)) for t in model.inputs],
        outputs=[model_service_pb2.ModelTensor(name=t.name, type=encode_array_type(t.type)) for t in model.outputs],
        shared=model.shared,
    )
