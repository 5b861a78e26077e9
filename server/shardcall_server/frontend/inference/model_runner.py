"""Runs models: requests become calls of kernels, and their results the outputs of responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardcall.v1 import kernel_pb2, kernel_service_pb2
from shardcall_core.call_error import CallError, Reason, did_you_mean, shorten
from shardcall_core.types.sizes import exact
from shardcall_inference.v1 import inference_service_pb2
from shardcall_server.frontend.dispatch.compiled_call import CallTemplate
from shardcall_server.frontend.dispatch.kernel_runner import KernelRequest, KernelRunner
from shardcall_server.frontend.dispatch.operand_reader import check_inline
from shardcall_server.frontend.dispatch.supervisor import MeshSupervisor
from shardcall_server.frontend.inference.datatypes import DATATYPES, datatype_of, shape_of
from shardcall_server.frontend.inference.kernel_models import PROGRAMS, KernelTemplates, operands_of
from shardcall_server.frontend.inference.model_table import Model, ModelTable, operand_source
from shardcall_server.frontend.inference.shared_memory_regions import SharedMemoryRegions
from shardcall_server.frontend.inference.tensors import (
    InputTensor,
    Parameters,
    RegisteredPart,
    integer,
    malformed,
    read_inputs,
    region_part,
)
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.memory.call_buffers import OperandSource, count_bytes
from shardcall_server.frontend.memory.resident_array_table import ResidentArrayTable
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.link.wire import decode_array_type
from shardcall_server.settings import Settings

Kernel = kernel_pb2.KernelDescription

_RESERVE_BYTES = 64 << 10  # of a response, for all but its outputs
_OUTPUT_BYTES = 512  # of an output, for its name, its type and where it is, without the name of its region
_MAX_OUTPUTS = 1024
_MAX_ID = 256
_LISTING = "client.models(), with client.kernels(),"
_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")  # of which a client with an id sends all
_IGNORED = frozenset({"headers", "binary_data_output"})


class _BoundCall(NamedTuple):
    """A request as a call of a kernel.

    Attributes:
        template: the kernel and its arguments.
        operands: the sources of its operands.
        inline: the bytes of its operands that are in the request or in the model.
    """

    template: CallTemplate
    operands: Sequence[OperandSource]
    inline: Sequence[bytes | None]


@dataclass(frozen=True)
class _Output:
    """An output that the caller wants.

    Attributes:
        index: the index of the result.
        field: its field in the request.
        part: the part of a region that receives it; None for the response.
    """

    index: int
    field: str
    part: RegisteredPart | None


class ModelRunner:
    """Finds and runs models.

    Args:
        supervisor: knows the mesh and its kernels.
        runner: runs kernels.
        array_table: the arrays on the mesh that models refer to.
        budget: the memory that copies of regions take.
        models: the published programs.
        regions: the registered shared memory.

    Attributes:
        models: as the argument.
    """

    def __init__(
        self,
        supervisor: MeshSupervisor,
        runner: KernelRunner,
        array_table: ResidentArrayTable,
        budget: MemoryBudget,
        models: ModelTable,
        regions: SharedMemoryRegions,
        settings: Settings,
    ) -> None:
        self._supervisor = supervisor
        self._runner = runner
        self._array_table = array_table
        self._budget = budget
        self.models = models
        self._regions = regions
        self._templates = KernelTemplates()
        self._max_call_bytes = settings.max_call_bytes
        self._max_response_bytes = settings.max_message_bytes - _RESERVE_BYTES

    @property
    def is_ready(self) -> bool:
        """True if the mesh serves calls."""
        return self._supervisor.state().ready

    def kernels(self, call: ServerCall) -> Mapping[str, Kernel]:
        """Returns the kernels that are models: all but the one that runs programs."""
        return {name: kernel for name, kernel in self._supervisor.last_mesh(call).kernels.items() if name != PROGRAMS}

    def find(self, name: str, version: str, call: ServerCall) -> Model | Kernel:
        """Returns the model of a name.

        Raises:
            CallError: KERNEL_NOT_FOUND.
        """
        model: Model | Kernel | None = self.models.find(name, call.principal_name)
        if model is None and name != PROGRAMS:
            model = self._supervisor.last_mesh(call).kernels.get(name)
        if model is None:
            raise self._no_model(name, call)
        if version and version != version_of(model):
            raise CallError(
                Reason.KERNEL_NOT_FOUND,
                f"model {shorten(name)!r} has version {version_of(model)}, and {shorten(version)!r} was requested; "
                "send that, or none",
                field="model_version",
            )
        return model

    def _no_model(self, name: str, call: ServerCall) -> CallError:
        published = [model.name_for(call.principal_name) for model in self.models.visible(call.principal_name)]
        hint = did_you_mean(name, [*self.kernels(call), *published], _LISTING)
        return CallError(Reason.KERNEL_NOT_FOUND, f"there is no model {shorten(name)!r}; {hint}", field="model_name")

    async def infer(
        self, request: inference_service_pb2.ModelInferRequest, call: ServerCall
    ) -> inference_service_pb2.ModelInferResponse:
        """Runs a model.

        Raises:
            CallError: names the field of a bad request, or is that of the call.
        """
        _check_id(request.id)
        parameters = _kernel_parameters(request.parameters, call) if request.parameters else {}
        model = self.find(request.model_name, request.model_version, call)
        outputs = _outputs(request) if request.outputs else None
        copies = _RegionCopies(self._regions, self._budget, call)
        try:
            copies.check(outputs or ())
            inputs = read_inputs(request)
            self._check_inputs(inputs)
            await self._supervisor.mesh(call)  # with which the arrays that models refer to return after a restart
            bound = self._bound(model, parameters, inputs, copies)

            async def reserve(nbytes: int) -> None:
                if outputs is None:
                    self._check_response(nbytes)
                else:  # of which the caller may want some, or have them in regions
                    copies.reserve(nbytes)

            nbytes = count_bytes(bound.operands).operands
            kernel_request = KernelRequest(bound.template, bound.operands, nbytes)
            answer, _ = await self._runner.run(
                call, kernel_request, bound.inline, reserve=reserve, limit_bytes=self._max_call_bytes
            )
            response = inference_service_pb2.ModelInferResponse(
                model_name=request.model_name, model_version=version_of(model), id=request.id
            )
            self._add_outputs(response, answer.results, outputs, copies)
        finally:
            copies.release()
        response.parameters["shardcall_seconds"].double_param = call.finish().total_seconds
        return response

    def _bound(
        self, model: Model | Kernel, parameters: Parameters, inputs: list[InputTensor], copies: _RegionCopies
    ) -> _BoundCall:
        """Returns the call of a request.

        Raises:
            CallError: the model has no such parameter or input, or an input does not fit it.
        """
        if isinstance(model, Kernel):
            tensors = operands_of(model, inputs)
            template = self._templates.of_request(model.name, parameters)
            operands = [OperandSource(None if tensor is None else tensor.type) for tensor in tensors]
            return _BoundCall(
                template, operands, [None if tensor is None else copies.data(tensor) for tensor in tensors]
            )
        for name in parameters:
            raise CallError(
                Reason.UNKNOWN_PARAMETER,
                f"model {model.name!r} is a published program and has no parameter {shorten(name)!r}; omit it",
                field=f"parameters[{shorten(name)}]",
            )
        data = [copies.data(tensor) for tensor in _inputs_of(model, inputs)]
        sources = [operand_source(self._array_table, model.owner, item, model.inputs) for item in model.operands]
        inline = [
            data[item.input_index] if item.input_index is not None else item.constant and item.constant[1]
            for item in model.operands
        ]
        return _BoundCall(model.template, sources, inline)

    def _check_inputs(self, inputs: Sequence[InputTensor]) -> None:
        """Raises CallError for more bytes than a call may have, before they are read from regions."""
        nbytes = sum(tensor.type.nbytes for tensor in inputs)
        if nbytes > self._max_call_bytes:
            raise CallError(
                Reason.CALL_TOO_LARGE,
                f"the inputs have {exact(nbytes)}, and those of a call at most {exact(self._max_call_bytes)}; "
                "send less at a time, or start the server with a larger --max-call-bytes",
                field="inputs",
                metadata={"bytes": str(nbytes), "limit": str(self._max_call_bytes)},
            )

    def _check_response(self, nbytes: int) -> None:
        """Raises CallError for outputs that do not fit a response."""
        if nbytes > self._max_response_bytes:
            raise CallError(
                Reason.CALL_TOO_LARGE,
                f"the outputs have {exact(nbytes)}, and those of a response at most {exact(self._max_response_bytes)}; "
                "receive them in shared memory, or start the server with a larger --max-message-bytes",
                field="outputs",
                metadata={"bytes": str(nbytes), "limit": str(self._max_response_bytes)},
            )

    def _add_outputs(
        self,
        response: inference_service_pb2.ModelInferResponse,
        results: Sequence[kernel_service_pb2.Result],
        outputs: Sequence[_Output] | None,
        copies: _RegionCopies,
    ) -> None:
        """Adds results to a response, and copies them to the regions that the caller wants them in.

        Raises:
            CallError: there is no such result, the protocol has no such element type, or a region is too small.
        """
        if outputs is None:
            outputs = [_Output(i, "", None) for i in range(len(results))]
        data = self._data_of(outputs, results)
        for output in outputs:
            result = results[output.index]
            code = result.type.element_type
            if code not in DATATYPES:
                datatype_of(decode_array_type(result.type, "it"), f"result{output.index}")  # which refuses it
            shape = result.type.shape or (1,)
            tensor = response.outputs.add(name=f"result{output.index}", datatype=DATATYPES[code], shape=shape)
            if output.part is None:
                response.raw_output_contents.append(data[output.index])
                continue
            copies.write(output.part, data[output.index], output.field)
            response.raw_output_contents.append(b"")
            tensor.parameters["shared_memory_region"].string_param = output.part.name
            tensor.parameters["shared_memory_byte_size"].int64_param = len(data[output.index])
            tensor.parameters["shared_memory_offset"].int64_param = output.part.offset

    def _data_of(self, outputs: Sequence[_Output], results: Sequence[kernel_service_pb2.Result]) -> Mapping[int, bytes]:
        """Returns the bytes of outputs by their indices: a message copies them each time that they are read.

        Raises:
            CallError: there is no such result, or its part of a region or the response is too small.
        """
        data: dict[int, bytes] = {}
        for output in outputs:
            if output.index >= len(results):
                names = [f"result{i}" for i in range(len(results))]
                raise CallError(
                    Reason.INVALID_PARAMETER,
                    f"{output.field}.name is result{output.index}; {did_you_mean('', names)}",
                    field=f"{output.field}.name",
                )
            data[output.index] = results[output.index].inline.data
            nbytes = len(data[output.index])
            if output.part is not None and nbytes > output.part.nbytes:
                raise CallError(
                    Reason.SIZE_MISMATCH,
                    f"{output.field} has {nbytes} bytes, and its part of the region {output.part.name!r} has "
                    f"{output.part.nbytes}; give it more",
                    field=f"{output.field}.parameters[shared_memory_byte_size]",
                    metadata={"expected": str(nbytes), "given": str(output.part.nbytes)},
                )
        self._check_response(sum(_sent_bytes(item, data[item.index]) for item in outputs))
        return data


class _RegionCopies:
    """The copies of parts of regions during one call, which count against its owner's memory."""

    def __init__(self, regions: SharedMemoryRegions, budget: MemoryBudget, call: ServerCall) -> None:
        self._regions = regions
        self._budget = budget
        self._call = call
        self._reserved = 0

    def reserve(self, nbytes: int) -> None:
        """Reserves memory until the end of the call."""
        self._budget.reserve(self._call.owner, nbytes)
        self._reserved += nbytes

    def release(self) -> None:
        """Releases all memory."""
        if self._reserved:
            self._budget.release(self._call.owner, self._reserved)

    def check(self, tensors: Iterable[InputTensor | _Output]) -> None:
        """Raises CallError unless all tensors are in their regions."""
        for tensor in tensors:
            if (part := tensor.part) is not None:
                self._regions.check(self._call.principal_name, part.name, part.offset, part.nbytes, tensor.field)

    def data(self, tensor: InputTensor) -> bytes:
        """Returns the bytes of an input, read from its region if it is there."""
        part = tensor.part
        if part is None:
            return tensor.data
        self.check([tensor])
        self.reserve(part.nbytes)
        data = self._regions.read(self._call.principal_name, part.name, part.offset, part.nbytes, tensor.field)
        check_inline(tensor.type, data, tensor.field)
        return data

    def write(self, part: RegisteredPart, data: bytes, field: str) -> None:
        """Writes the bytes of an output to its region."""
        self._regions.write(self._call.principal_name, part.name, part.offset, data, field)


def echoed(text: str) -> str:
    """Returns the id or the model of a request for a response; empty if it is longer than one may be."""
    return text if len(text) <= _MAX_ID else ""


def _check_id(request_id: str) -> None:
    if len(request_id) > _MAX_ID:
        raise malformed(
            "id", f"id has {len(request_id)} characters, and at most {_MAX_ID} are allowed; send a shorter one, or none"
        )


def _sent_bytes(output: _Output, data: bytes) -> int:
    """Returns the bytes of an output in a response, at most."""
    return _OUTPUT_BYTES + (len(data) if output.part is None else len(output.part.name.encode()))


def version_of(model: Model | Kernel) -> str:
    """Returns the version of a model."""
    return str(model.version)


def _kernel_parameters(parameters: Parameters, call: ServerCall) -> Parameters:
    """Returns the parameters of a request without those of the protocol, which are obeyed or refused.

    Raises:
        CallError: the server does not have what a parameter asks for.
    """
    kept = {}
    for name in _SEQUENCE:
        if name in parameters:
            raise _refused(name, "models have no state that requests of a sequence could share; omit it")
    for name, value in parameters.items():
        if name == "timeout":
            if timeout_us := integer(parameters, name, ""):
                call.limit(timeout_us / 1e6)
        elif name == "priority":
            if integer(parameters, name, ""):
                raise _refused(name, "requests of a principal have one priority; send 0, or none")
        elif name not in _IGNORED and not name.startswith("triton_"):
            kept[name] = value
    return kept


def _refused(name: str, why: str) -> CallError:
    field = f"parameters[{name}]"
    return CallError(Reason.INVALID_PARAMETER, f"{field}: {why}", field=field)


def _inputs_of(model: Model, inputs: Sequence[InputTensor]) -> list[InputTensor]:
    """Returns the inputs of a request in the order of the model's.

    Raises:
        CallError: one is missing, unknown or of another type.
    """
    by_name = {tensor.name: tensor for tensor in inputs}
    expected = {tensor.name: tensor.type for tensor in model.inputs}
    for tensor in inputs:
        array = expected.get(tensor.name)
        if array is None:
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"model {model.name!r} has no input {shorten(tensor.name)!r}; {did_you_mean(tensor.name, expected)}",
                field=f"{tensor.field}.name",
            )
        if tensor.type.dtype != array.dtype or tensor.type.shape not in (array.shape, shape_of(array.shape)):
            raise CallError(
                Reason.INVALID_OPERAND,
                f"input {tensor.name!r} is {shorten(str(tensor.type))}, and model {model.name!r} takes {array}; send "
                "that",
                field=tensor.field,
            )
    for name in expected:
        if name not in by_name:
            raise malformed("inputs", f"input {name!r} of model {model.name!r} is missing; send all inputs")
    return [by_name[name] for name in expected]


def _outputs(request: inference_service_pb2.ModelInferRequest) -> list[_Output]:
    """Returns the outputs that the caller wants.

    Raises:
        CallError: names the field.
    """
    if len(request.outputs) > _MAX_OUTPUTS:
        raise malformed("outputs", f"{len(request.outputs)} outputs came, and at most {_MAX_OUTPUTS} are allowed")
    outputs: dict[int, _Output] = {}
    for i, message in enumerate(request.outputs):
        field, number = f"outputs[{i}]", message.name.removeprefix("result")
        if not (message.name.startswith("result") and number.isascii() and number.isdigit() and len(number) < 5):
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"{field}.name is {shorten(message.name)!r}; outputs are result0, result1 and so on",
                field=f"{field}.name",
            )
        index = int(number)
        if index in outputs:
            raise malformed(f"{field}.name", f"output {message.name!r} came twice; send it once")
        part = region_part(message.parameters, field) if message.parameters else None
        outputs[index] = _Output(index, field, part)
    return list(outputs.values())
