"""Programs that are published as models of the Open Inference Protocol."""

from __future__ import annotations

from dataclasses import dataclass

from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.transport import Transport
from shardcall.v1 import model_service_pb2
from shardcall_core.markup import page
from shardcall_core.markup.columns import aligned
from shardcall_core.types import arrays
from shardcall_core.types.arrays import Array

_COLUMNS = ("name", "version", "inputs", "outputs", "shared")


@dataclass(frozen=True)
class PublishedModel:
    """A published program.

    Attributes:
        name: its name; of another principal's ``principal/name``.
        version: its version, which counts up when it is replaced.
        inputs: the types of its inputs by name.
        outputs: the types of its outputs by name.
        shared: whether other principals may run it.
    """

    name: str
    version: int
    inputs: dict[str, Array]
    outputs: dict[str, Array]
    shared: bool

    @property
    def texts(self) -> tuple[str, ...]:
        """The cells of its row."""
        inputs, outputs = (
            ", ".join(f"{name}: {array}" for name, array in tensors.items()) for tensors in (self.inputs, self.outputs)
        )
        return self.name, str(self.version), inputs, outputs, "yes" if self.shared else "no"


class PublishedModelTable(list[PublishedModel]):
    """Published programs, by name; ``print`` shows them."""

    def __str__(self) -> str:
        return aligned(_COLUMNS, (model.texts for model in self)) if self else "no models"

    def _repr_html_(self) -> str:
        """Returns the table for a notebook."""
        table = page.listing(_COLUMNS, (model.texts for model in self))
        return page.page(f"{len(self)} models", page.scrolled(table))


class PublishedModels:
    """Publishes, lists and removes the models of the principal."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def publish(self, request: model_service_pb2.PublishModelRequest, deadline: Deadline) -> PublishedModel:
        """Publishes a program."""
        answer = self._transport.unary(self._transport.stubs.models.PublishModel, request, deadline, kernel="graph")
        return _model(answer.model)

    def unpublish(self, name: str, deadline: Deadline) -> bool:
        """Removes a model; returns whether there was one."""
        request = model_service_pb2.UnpublishModelRequest(name=name)
        return self._transport.unary(self._transport.stubs.models.UnpublishModel, request, deadline).existed

    def all(self, deadline: Deadline) -> PublishedModelTable:
        """Returns the models that this principal may run."""
        models, request = PublishedModelTable(), model_service_pb2.ListModelsRequest()
        while True:
            answer = self._transport.unary(self._transport.stubs.models.ListModels, request, deadline)
            models += map(_model, answer.models)
            if not (answer.more and answer.models):
                return models
            request.after = answer.models[-1].name


def _model(message: model_service_pb2.ModelDescription) -> PublishedModel:
    inputs, outputs = (
        {tensor.name: array for tensor in items if (array := arrays.from_proto(tensor.type)) is not None}
        for items in (message.inputs, message.outputs)
    )
    return PublishedModel(message.name, message.version, inputs, outputs, message.shared)
