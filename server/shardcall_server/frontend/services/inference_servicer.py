"""The service of the Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import grpc
from google.protobuf import message_factory

from shardcall.v1 import kernel_pb2
from shardcall_core.call_error import CallError
from shardcall_core.versions import build_version
from shardcall_inference.v1 import inference_service_pb2
from shardcall_server.frontend.access.policy import INFERENCE_SERVICE
from shardcall_server.frontend.inference.datatypes import datatype_of, shape_of
from shardcall_server.frontend.inference.model_runner import ModelRunner, echoed, version_of
from shardcall_server.frontend.inference.model_table import Model, Tensor
from shardcall_server.frontend.inference.shared_memory_regions import RegisteredRegion, SharedMemoryRegions
from shardcall_server.frontend.observability.call_recorder import CallRecorder
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.services.call_outcomes import failed_call
from shardcall_server.frontend.services.request_streams import RequestStreams

_DESCRIPTOR = inference_service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
_KERNEL, _PROGRAM = "shardcall_kernel", "shardcall_program"
_ANY = "FP32", (-1,)  # as a kernel's tensors are described, for which the protocol has no word
_FINAL = "triton_enable_empty_final_response"


class InferenceServicer:
    """`inference.GRPCInferenceService`; its methods take a `ServerCall` instead of gRPC's context.

    Args:
        runner: runs models.
        regions: the registered shared memory.
        recorder: notified of the requests of streams.
        streams: end with their tokens.
    """

    def __init__(
        self, runner: ModelRunner, regions: SharedMemoryRegions, recorder: CallRecorder, streams: RequestStreams
    ) -> None:
        self._runner = runner
        self._regions = regions
        self._recorder = recorder
        self._streams = streams

    def ServerLive(  # noqa: N802  # the protocol's name
        self, request: inference_service_pb2.ServerLiveRequest, call: ServerCall
    ) -> inference_service_pb2.ServerLiveResponse:
        """Reports that the server runs."""
        return inference_service_pb2.ServerLiveResponse(live=True)

    def ServerReady(  # noqa: N802
        self, request: inference_service_pb2.ServerReadyRequest, call: ServerCall
    ) -> inference_service_pb2.ServerReadyResponse:
        """Reports whether the mesh serves calls."""
        return inference_service_pb2.ServerReadyResponse(ready=self._runner.is_ready)

    def ModelReady(  # noqa: N802
        self, request: inference_service_pb2.ModelReadyRequest, call: ServerCall
    ) -> inference_service_pb2.ModelReadyResponse:
        """Reports whether a model can run."""
        if not self._runner.is_ready:
            return inference_service_pb2.ModelReadyResponse(ready=False)
        try:
            self._runner.find(request.name, request.version, call)
        except CallError:
            return inference_service_pb2.ModelReadyResponse(ready=False)
        return inference_service_pb2.ModelReadyResponse(ready=True)

    def ServerMetadata(  # noqa: N802
        self, request: inference_service_pb2.ServerMetadataRequest, call: ServerCall
    ) -> inference_service_pb2.ServerMetadataResponse:
        """Describes the server."""
        extensions = ["model_configuration", "model_repository"]
        extensions += ["system_shared_memory"] if self._regions.enabled else []
        return inference_service_pb2.ServerMetadataResponse(
            name="shardcall", version=build_version(), extensions=extensions
        )

    def ModelMetadata(  # noqa: N802
        self, request: inference_service_pb2.ModelMetadataRequest, call: ServerCall
    ) -> inference_service_pb2.ModelMetadataResponse:
        """Describes the inputs and outputs of a model."""
        model = self._runner.find(request.name, request.version, call)
        metadata = inference_service_pb2.ModelMetadataResponse.TensorMetadata
        inputs, outputs = _tensors(model)
        return inference_service_pb2.ModelMetadataResponse(
            name=request.name,
            versions=[version_of(model)],
            platform=_PROGRAM if isinstance(model, Model) else _KERNEL,
            inputs=[metadata(name=t.name, datatype=t.datatype, shape=t.shape) for t in inputs],
            outputs=[metadata(name=t.name, datatype=t.datatype, shape=t.shape) for t in outputs],
        )

    def ModelConfig(  # noqa: N802
        self, request: inference_service_pb2.ModelConfigRequest, call: ServerCall
    ) -> inference_service_pb2.ModelConfigResponse:
        """Describes a model as a configuration."""
        model = self._runner.find(request.name, request.version, call)
        inputs, outputs = _tensors(model)
        config = inference_service_pb2.ModelConfig(
            name=request.name,
            platform=_PROGRAM if isinstance(model, Model) else _KERNEL,
            backend="shardcall",
            input=[
                inference_service_pb2.ModelInput(name=t.name, data_type=t.data_type, dims=t.shape, optional=t.optional)
                for t in inputs
            ],
            output=[
                inference_service_pb2.ModelOutput(name=t.name, data_type=t.data_type, dims=t.shape) for t in outputs
            ],
        )
        return inference_service_pb2.ModelConfigResponse(config=config)

    def RepositoryIndex(  # noqa: N802
        self, request: inference_service_pb2.RepositoryIndexRequest, call: ServerCall
    ) -> inference_service_pb2.RepositoryIndexResponse:
        """Lists the models that the caller may run."""
        index = inference_service_pb2.RepositoryIndexResponse.ModelIndex
        kernels = self._runner.kernels(call)
        models = [index(name=name, version=str(kernels[name].version), state="READY") for name in sorted(kernels)]
        models += [
            index(name=model.name_for(call.principal_name), version=str(model.version), state="READY")
            for model in self._runner.models.visible(call.principal_name)
        ]
        return inference_service_pb2.RepositoryIndexResponse(models=models)

    def ModelInfer(  # noqa: N802
        self, request: inference_service_pb2.ModelInferRequest, call: ServerCall
    ) -> inference_service_pb2.ModelInferResponse:
        """Runs a model."""
        return call.run(self._runner.infer(request, call))

    def ModelStreamInfer(  # noqa: N802
        self, requests: Iterator[inference_service_pb2.ModelInferRequest], call: ServerCall
    ) -> Iterator[inference_service_pb2.ModelStreamInferResponse]:
        """Runs models, one after the other."""
        for request in self._streams.admitted(requests, call):
            yield self._answer(request, call)

    def _answer(
        self, request: inference_service_pb2.ModelInferRequest, stream: ServerCall
    ) -> inference_service_pb2.ModelStreamInferResponse:
        """Runs one request of a stream; an error is a part of the response, unless the stream has ended."""
        call = stream.of_request()
        self._recorder.begin(call)
        try:
            response = call.run(self._runner.infer(request, call))
        except Exception as error:  # noqa: BLE001  # of a request, which ends no others
            status = failed_call(self._recorder, "ModelInfer", error, call)
            stream.check("answering a request of a stream")
            failed = inference_service_pb2.ModelInferResponse(
                model_name=echoed(request.model_name), id=echoed(request.id)
            )
            return inference_service_pb2.ModelStreamInferResponse(error_message=status.details, infer_response=failed)
        self._recorder.finish("ModelInfer", call)
        if _FINAL in request.parameters:
            response.parameters["triton_final_response"].bool_param = True
        return inference_service_pb2.ModelStreamInferResponse(infer_response=response)

    def SystemSharedMemoryStatus(  # noqa: N802
        self, request: inference_service_pb2.SystemSharedMemoryStatusRequest, call: ServerCall
    ) -> inference_service_pb2.SystemSharedMemoryStatusResponse:
        """Lists the regions of the caller."""
        status = inference_service_pb2.SystemSharedMemoryStatusResponse.RegionStatus
        regions = self._regions.of_owner(call.principal_name, request.name)
        return inference_service_pb2.SystemSharedMemoryStatusResponse(
            regions={
                item.name: status(name=item.name, key=item.key, offset=item.offset, byte_size=item.nbytes)
                for item in regions
            }
        )

    def SystemSharedMemoryRegister(  # noqa: N802
        self, request: inference_service_pb2.SystemSharedMemoryRegisterRequest, call: ServerCall
    ) -> inference_service_pb2.SystemSharedMemoryRegisterResponse:
        """Registers a region."""
        region = RegisteredRegion(request.name, request.key, request.offset, request.byte_size, -1)
        self._regions.register(call.principal_name, call.connection, region)
        return inference_service_pb2.SystemSharedMemoryRegisterResponse()

    def SystemSharedMemoryUnregister(  # noqa: N802
        self, request: inference_service_pb2.SystemSharedMemoryUnregisterRequest, call: ServerCall
    ) -> inference_service_pb2.SystemSharedMemoryUnregisterResponse:
        """Forgets regions."""
        self._regions.unregister(call.principal_name, request.name)
        return inference_service_pb2.SystemSharedMemoryUnregisterResponse()

    def CudaSharedMemoryUnregister(  # noqa: N802
        self, request: inference_service_pb2.CudaSharedMemoryUnregisterRequest, call: ServerCall
    ) -> inference_service_pb2.CudaSharedMemoryUnregisterResponse:
        """Does nothing."""
        return inference_service_pb2.CudaSharedMemoryUnregisterResponse()


class _Tensor(NamedTuple):
    """A tensor as descriptions have it.

    Attributes:
        name: its name.
        datatype: its element type.
        shape: its shape; -1 for any number.
        optional: whether it may be omitted.
    """

    name: str
    datatype: str
    shape: Sequence[int]
    optional: bool = False

    @property
    def data_type(self) -> inference_service_pb2.DataType.ValueType:
        """Its element type in a configuration."""
        return inference_service_pb2.DataType.Value(f"DATA_TYPE_{self.datatype}")


def _tensors(model: Model | kernel_pb2.KernelDescription) -> tuple[list[_Tensor], list[_Tensor]]:
    """Returns the inputs and the outputs of a model; a kernel takes other types and shapes as well."""
    if isinstance(model, Model):
        inputs, outputs = ([_typed(t) for t in tensors] for tensors in (model.inputs, model.outputs))
        return inputs, outputs
    names = [(f"{item.name}[0]" if item.repeated else item.name, item.optional) for item in model.operands]
    return [_Tensor(name, *_ANY, optional) for name, optional in names], [_Tensor("result0", *_ANY)]


def _typed(tensor: Tensor) -> _Tensor:
    return _Tensor(tensor.name, datatype_of(tensor.type, tensor.name), shape_of(tensor.type.shape))


def add_inference_servicer(servicer: InferenceServicer, server: grpc.Server) -> None:
    """Registers the service under the name of the protocol, which is not that of its descriptor."""
    handlers = {}
    for method in _DESCRIPTOR.methods:
        make = grpc.stream_stream_rpc_method_handler if method.client_streaming else grpc.unary_unary_rpc_method_handler
        request, response = (message_factory.GetMessageClass(t) for t in (method.input_type, method.output_type))
        behaviour: Any = getattr(servicer, method.name)
        handlers[method.name] = make(behaviour, request.FromString, response.SerializeToString)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(INFERENCE_SERVICE, handlers),))
