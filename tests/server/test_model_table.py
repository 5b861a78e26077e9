"""The table of models at its limits, and the lists of models."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import numpy as np
from server.conftest import refusal
from server.fake_calls import CountingBudget, FakeServerCall

from shardcall.v1 import kernel_pb2, model_service_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.frontend.dispatch.idempotency import IdempotencyTable
from shardcall_server.frontend.inference import model_table
from shardcall_server.frontend.inference.model_table import MAX_MODELS, MAX_SHARED_MODELS, Model, ModelTable, Tensor
from shardcall_server.frontend.services.inference_servicer import InferenceServicer
from shardcall_server.frontend.services.model_servicer import ModelServicer
from shardcall_server.settings import Settings

FLOATS = ArrayType((2,), np.dtype("float32"))
LIMIT_BYTES = 2 << 20  # the lowest --max-message-bytes


def make_table() -> tuple[ModelTable, CountingBudget]:
    budget = CountingBudget()
    return ModelTable(cast(Any, budget), lambda _: True), budget


def make_model(name: str, owner: str = "ada", *, shared: bool = False, inputs: int = 1, digest: bytes = b"") -> Model:
    tensors = [Tensor(f"{i:0240}", FLOATS) for i in range(inputs)]
    return Model(name, owner, tensors, tensors[:1], [], cast(Any, None), shared, owner, 7, digest)


def caller(principal: str) -> Any:
    return SimpleNamespace(principal_name=principal)


def test_the_same_program_again_is_the_same_version():
    models, budget = make_table()
    assert [models.put(make_model("m", digest=bytes([digest]))).version for digest in b"aabba"] == [1, 1, 2, 2, 3]
    # An array on the mesh of another type may be behind its name now.
    other = replace(make_model("m", digest=b"a"), outputs=[Tensor("result0", ArrayType((3,), FLOATS.dtype))])
    assert models.put(other).version == 4
    assert budget.taken == 7
    assert models.remove("m", "ada")
    assert budget.taken == 0


def test_models_of_a_principal_and_shared_models_of_all_are_limited(monkeypatch):
    monkeypatch.setattr(model_table, "MAX_SHARED_MODELS", MAX_MODELS + 2)
    models, budget = make_table()
    for i in range(MAX_MODELS):
        models.put(make_model(f"m{i}", shared=True))
    assert "64 models of this principal" in refusal(models.put, make_model("more")).message
    assert models.put(make_model("m0", shared=True, digest=b"other")).version == 2
    for i in range(2):
        models.put(make_model(f"m{i}", "bob", shared=True))
    models.put(make_model("private", "bob"))
    for name in ("more", "private"):
        assert "66 shared models" in refusal(models.put, make_model(name, "bob", shared=True, digest=b"shared")).message
    assert budget.taken == 7 * (MAX_MODELS + 3)


def test_a_list_of_models_fits_its_messages_and_is_complete():
    models, _ = make_table()
    owners = ["bob", *(f"p{i}" for i in range(7))]
    for owner in owners:
        for i in range(MAX_MODELS):
            models.put(make_model(f"m{i}", owner, shared=True, inputs=63))
    settings: Any = SimpleNamespace(max_inline_bytes=1, max_message_bytes=LIMIT_BYTES)
    unused: Any = None
    servicer = ModelServicer(models, unused, unused, unused, unused, settings)
    request, names, sizes = model_service_pb2.ListModelsRequest(), [], []
    while True:
        answer = servicer.ListModels(request, caller("bob"))
        sizes.append(answer.ByteSize())
        names += [model.name for model in answer.models]
        if not answer.more:
            break
        request.after = names[-1]
    assert len(sizes) > 4
    assert max(sizes) < LIMIT_BYTES
    assert names == [model.name_for("bob") for model in models.visible("bob")]
    assert len(names) == len(owners) * MAX_MODELS


def test_an_index_of_as_many_shared_models_as_there_may_be_fits_a_message():
    models, _ = make_table()
    for i in range(MAX_SHARED_MODELS):
        owner, name = f"{i // MAX_MODELS:064}", f"{i:064}"
        models.put(make_model(name, owner, shared=True))
    unused: Any = None
    runner: Any = SimpleNamespace(kernels=lambda _: {}, models=models)
    index = InferenceServicer(runner, unused, unused, unused).RepositoryIndex(unused, caller("bob"))
    assert len(index.models) == MAX_SHARED_MODELS
    assert index.ByteSize() < LIMIT_BYTES // 2


def test_a_model_is_published_after_the_known_answer_tests_of_its_kernels():
    models, _ = make_table()
    compiled = SimpleNamespace(plan=kernel_pb2.Plan())
    refused_by = CallError(Reason.KERNEL_FAILED_KNOWN_ANSWERS, "it returns wrong numbers")
    execution = SimpleNamespace(prepare=AsyncMock(return_value=compiled), admit=AsyncMock(side_effect=refused_by))
    settings = Settings(strategy="fixed")
    mesh, table = AsyncMock(return_value=SimpleNamespace(kernels={})), Mock()
    table.open.side_effect = lambda *_: mesh.assert_awaited() or SimpleNamespace(type=None)
    servicer = ModelServicer(models, cast(Any, execution), mesh, table, IdempotencyTable(), settings)
    operands = [model_service_pb2.ModelOperand(array_name="n")]  # which a mesh that restarts has later
    request, call = model_service_pb2.PublishModelRequest(name="m", operands=operands), cast(Any, FakeServerCall())
    assert refusal(servicer.PublishModel, request, call) is refused_by
    assert models.visible("a") == []
    execution.admit.side_effect = None
    assert servicer.PublishModel(request, call).model.name == "m"
    execution.admit.assert_awaited_with(call, compiled)
