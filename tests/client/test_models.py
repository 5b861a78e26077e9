"""The list of published models, which comes in several answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from shardcall._src.rpc.deadline import Deadline
from shardcall._src.services.models import PublishedModels
from shardcall.v1 import model_service_pb2

NAMES = [f"m{i}" for i in range(7)]


class Transport:
    """A server whose answers have two models."""

    def __init__(self) -> None:
        self.stubs = SimpleNamespace(models=SimpleNamespace(ListModels=None))
        self.count = 0

    def unary(self, method: object, request: model_service_pb2.ListModelsRequest, deadline: Deadline) -> Any:
        self.count += 1
        following = [name for name in NAMES if name > request.after]
        models = [model_service_pb2.ModelDescription(name=name) for name in following[:2]]
        return model_service_pb2.ListModelsResponse(models=models, more=len(following) > len(models))


def test_models_of_several_answers_are_one_list():
    transport: Any = Transport()
    assert [model.name for model in PublishedModels(transport).all(Deadline(60))] == NAMES
    assert transport.count == 4
