"""Kernels and published programs as models of the Open Inference Protocol."""

import os
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from end_to_end.inference_requests import Stub, arrays_of, connected, infer, parameters, pb, placed, shared_file, tensor
from end_to_end.messages import EXHAUSTED, INVALID, NOT_FOUND, UNIMPLEMENTED, open_channel, token_of
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from rows import rows

import shardcall as sc
from shardcall.v1 import model_service_pb2
from shardcall.v1.model_service_pb2_grpc import ModelServiceStub
from shardcall_core.types import arrays
from shardcall_core.versions import build_version
from shardcall_core.wire import token_file

X = np.arange(64, dtype=np.float32).reshape(8, 8)
US = token_file.user_name()


@pytest.fixture(scope="module")
def stub(serving) -> Iterator[Stub]:
    with connected(serving.address) as stub:
        yield stub


@pytest.fixture(scope="module")
def client(serving) -> Iterator[sc.Client]:
    with sc.connect(serving.address) as client:
        yield client


@pytest.fixture(scope="module")
def model(client) -> str:
    """A program of two inputs, of which one is a scalar, and of two outputs."""
    weights = np.full((8, 8), 2, np.float32)

    def f(x, scale):
        return weights @ x * scale, x.sum()

    client.publish(f, "model", sc.Array((8, 8), "float32"), sc.Array((), "float32"))
    return "model"


def refusal(method, request, code, **options) -> str:
    """Returns the field that a refusal names."""
    with pytest.raises(grpc.RpcError) as caught:
        method(request, timeout=30, **options)
    assert caught.value.code() is code, caught.value.details()
    status, violations = rpc_status.from_call(caught.value), error_details_pb2.BadRequest()
    if any(detail.Unpack(violations) for detail in status.details):
        return violations.field_violations[0].field
    return ""


def test_the_server_lives_and_is_ready(stub, model):
    assert stub.ServerLive(pb.ServerLiveRequest()).live
    assert stub.ServerReady(pb.ServerReadyRequest()).ready
    assert all(stub.ModelReady(pb.ModelReadyRequest(name=name)).ready for name in ("matmul", model))
    assert not any(stub.ModelReady(pb.ModelReadyRequest(name=name)).ready for name in ("graph", "no", ""))
    metadata = stub.ServerMetadata(pb.ServerMetadataRequest())
    assert (metadata.name, metadata.version) == ("shardcall", build_version())
    assert "system_shared_memory" in metadata.extensions
    listed = {item.name: item.state for item in stub.RepositoryIndex(pb.RepositoryIndexRequest()).models}
    assert listed["matmul"] == listed[model] == "READY"
    assert "graph" not in listed


def test_a_published_program_is_described_exactly(stub, model):
    metadata = stub.ModelMetadata(pb.ModelMetadataRequest(name=model))
    described = [(t.name, t.datatype, tuple(t.shape)) for t in (*metadata.inputs, *metadata.outputs)]
    assert described == [
        ("x", "FP32", (8, 8)),
        ("scale", "FP32", (1,)),
        ("result0", "FP32", (8, 8)),
        ("result1", "FP32", (1,)),
    ]
    config = stub.ModelConfig(pb.ModelConfigRequest(name=model)).config
    assert [(t.name, pb.DataType.Name(t.data_type), tuple(t.dims)) for t in config.input] == [
        ("x", "DATA_TYPE_FP32", (8, 8)),
        ("scale", "DATA_TYPE_FP32", (1,)),
    ]
    assert config.max_batch_size == 0


def test_a_kernel_is_described_by_its_operands(stub):
    metadata = stub.ModelMetadata(pb.ModelMetadataRequest(name="matmul"))
    assert [(t.name, t.datatype, tuple(t.shape)) for t in metadata.outputs] == [("result0", "FP32", (-1,))]
    assert len(metadata.inputs) >= 2
    optional = stub.ModelConfig(pb.ModelConfigRequest(name="diff")).config.input
    assert [item.optional for item in optional][:2] == [False, True]


def test_a_kernel_runs_with_its_parameters(stub):
    response = stub.ModelInfer(infer("diff", {"x": X}, {"axis": 0, "n": 2}, id="7"))
    np.testing.assert_array_equal(arrays_of(response)["result0"], np.diff(X, n=2, axis=0), strict=True)
    assert (response.id, response.model_name) == ("7", "diff")
    assert response.parameters["shardcall_seconds"].double_param > 0
    summed = stub.ModelInfer(infer("sum", {"x": X}, {"axis": "[0, 1]", "mesh": "x=4,y=2", "keepdims": True}))
    np.testing.assert_array_equal(arrays_of(summed)["result0"], X.sum((0, 1), keepdims=True), strict=True)


def test_a_kernel_of_any_number_of_inputs_gets_the_inputs_of_its_request(stub):
    for count in (3, 3, 2, 4, 3):
        inputs = {f"arrays[{i}]": X[:3] for i in range(count)}
        outputs = arrays_of(stub.ModelInfer(infer("concatenate", inputs)))
        np.testing.assert_array_equal(outputs["result0"], np.concatenate([X[:3]] * count), strict=True)


def test_hundreds_of_requests_at_once_wait_for_slots(stub, model):
    requests = [infer(model, {"scale": np.float32([i]), "x": X}, id=str(i), model_version="1") for i in range(300)]
    for i, answer in enumerate([stub.ModelInfer.future(request) for request in requests]):
        response = answer.result(120)
        assert (response.id, arrays_of(response)["result1"].tolist()) == (str(i), [X.sum()])
        np.testing.assert_allclose(arrays_of(response)["result0"], np.full((8, 8), 2, np.float32) @ X * i)


def test_a_stream_answers_in_order_and_survives_a_bad_request(stub, model):
    requests = [infer("diff", {"x": X}, id="a"), infer("no", {}, id="b"), infer("diff", {"x": X}, id="c")]
    requests[2].parameters["triton_enable_empty_final_response"].bool_param = True
    answers = list(stub.ModelStreamInfer(iter(requests), timeout=30))
    assert [answer.infer_response.id for answer in answers] == ["a", "b", "c"]
    assert [bool(answer.error_message) for answer in answers] == [False, True, False]
    assert "'no'" in answers[1].error_message
    assert answers[2].infer_response.parameters["triton_final_response"].bool_param
    np.testing.assert_array_equal(arrays_of(answers[2].infer_response)["result0"], np.diff(X))


def register(stub: Stub, name: str, key: str, nbytes: int, offset: int = 0) -> None:
    request = pb.SystemSharedMemoryRegisterRequest(name=name, key=key, offset=offset, byte_size=nbytes)
    stub.SystemSharedMemoryRegister(request, timeout=30)


def test_only_files_of_the_user_are_registered(stub, serving):
    method, request = stub.SystemSharedMemoryRegister, pb.SystemSharedMemoryRegisterRequest
    with shared_file(bytes(64)) as file, shared_file(bytes(64)) as other:
        path = f"/dev/shm/{other.name}"
        os.unlink(path)
        os.symlink(f"/dev/shm/{file.name}", path)
        try:
            assert refusal(method, request(name="r", key=other.name, byte_size=64), INVALID) == "key"
        finally:
            os.unlink(path)
            open(path, "wb").close()  # which the fixture removes
        for key in ("../etc/passwd", "", ".", "a/b", "no-such-file"):
            assert refusal(method, request(name="r", key=key, byte_size=64), INVALID) == "key", key
        os.chmod(f"/dev/shm/{file.name}", 0o644)
        assert refusal(method, request(name="r", key=file.name, byte_size=64), INVALID) == "key"
        os.chmod(f"/dev/shm/{file.name}", 0o600)
        for nbytes, offset in ((0, 0), (65, 0), (1, 64), (64, 2**63)):
            bad = request(name="r", key=file.name, byte_size=nbytes, offset=offset)
            assert refusal(method, bad, INVALID) == "byte_size"
        assert refusal(method, request(name="", key=file.name, byte_size=64), INVALID) == "name"
        register(stub, "r", file.name, 64)
        assert refusal(method, request(name="r", key=file.name, byte_size=64), INVALID) == "name"
        array = np.arange(8.0)
        outside = pb.ModelInferRequest(
            model_name="roll",
            inputs=[tensor("x", array, parameters=placed("r", 64, 8))],
            parameters=parameters({"shift": 1}),
        )
        assert refusal(stub.ModelInfer, outside, INVALID) == "inputs[0]"
        os.truncate(f"/dev/shm/{file.name}", 8)
        inside = pb.ModelInferRequest(
            model_name="roll",
            inputs=[tensor("x", array, parameters=placed("r", 64))],
            parameters=parameters({"shift": 1}),
        )
        assert refusal(stub.ModelInfer, inside, INVALID) == "inputs[0]"
        for i in range(63):
            register(stub, f"r{i}", file.name, 8)
        assert refusal(method, request(name="one more", key=file.name, byte_size=8), EXHAUSTED) == ""
        with connected(serving.address, token=token_of("guest")) as guest:
            assert not guest.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest()).regions
        stub.SystemSharedMemoryUnregister(pb.SystemSharedMemoryUnregisterRequest())


def test_shared_memory_is_off_by_default(server):
    with connected(server.address) as stub:
        request = pb.SystemSharedMemoryRegisterRequest(name="r", key="r", byte_size=1)
        refusal(stub.SystemSharedMemoryRegister, request, UNIMPLEMENTED)
        assert "system_shared_memory" not in stub.ServerMetadata(pb.ServerMetadataRequest()).extensions


def bad(change) -> pb.ModelInferRequest:
    request = infer("diff", {"x": X})
    change(request)
    return request


def place(request, region):
    for name, value in placed(region, X.nbytes).items():
        request.inputs[0].parameters[name].CopyFrom(value)


def sequence(request):
    request.parameters["sequence_id"].int64_param = 5
    request.parameters["sequence_start"].bool_param = request.parameters["sequence_end"].bool_param = False


def typed(request, **contents):
    del request.raw_input_contents[:]
    request.inputs[0].contents.CopyFrom(pb.InferTensorContents(**contents))


@rows(
    ("change", "field"),
    [
        (lambda r: setattr(r, "id", "i" * 257), "id"),
        (lambda r: place(r, "r" * 257), "inputs[0].parameters[shared_memory_region]"),
        (lambda r: setattr(r.inputs[0], "datatype", "BYTES"), "inputs[0].datatype"),
        (lambda r: setattr(r.inputs[0], "datatype", "FP8"), "inputs[0].datatype"),
        (lambda r: setattr(r.inputs[0], "name", "z"), "inputs[0].name"),
        (lambda r: r.inputs[0].shape.append(-1), "inputs[0]"),
        (lambda r: r.inputs[0].shape.append(2), "inputs[0]"),
        (lambda r: r.inputs.append(r.inputs[0]), "raw_input_contents"),
        (lambda r: r.raw_input_contents.append(b""), "raw_input_contents"),
        (lambda r: r.inputs[0].contents.fp32_contents.append(1), "inputs[0].contents"),
        (lambda r: typed(r, fp32_contents=[1.0]), "inputs[0].contents.fp32_contents"),
        (lambda r: typed(r, fp64_contents=[1.0] * 64), "inputs[0].contents.fp64_contents"),
        (lambda r: r.outputs.add(name="y"), "outputs[0].name"),
        (lambda r: r.outputs.add(name="result9"), "outputs[0].name"),
        (lambda r: (r.outputs.add(name="result0"), r.outputs.add(name="result0")), "outputs[1].name"),
        (lambda r: r.parameters["priority"].__setattr__("uint64_param", 1), "parameters[priority]"),
        (lambda r: r.parameters["sequence_id"].__setattr__("int64_param", 1), "parameters[sequence_id]"),
        (sequence, "parameters[sequence_id]"),
        (lambda r: r.parameters["timeout"].__setattr__("int64_param", -1), "parameters[timeout]"),
        (lambda r: r.parameters["mesh"].__setattr__("string_param", "x"), "parameters[mesh]"),
        (lambda r: r.parameters["axis"].CopyFrom(pb.InferParameter()), "parameters[axis]"),
        (lambda r: r.parameters["colour"].__setattr__("int64_param", 1), "colour"),
        (lambda r: r.inputs[0].parameters["mode"].__setattr__("int64_param", 1), "inputs[0].parameters[mode]"),
    ],
)
def test_bad_requests_are_refused_by_field(stub, change, field):
    assert refusal(stub.ModelInfer, bad(change), INVALID) == field


def test_integers_beyond_their_type_are_refused(stub):
    typed = tensor("x", np.zeros(1, np.int8), contents=pb.InferTensorContents(int_contents=[300]))
    request = pb.ModelInferRequest(model_name="diff", inputs=[typed])
    assert refusal(stub.ModelInfer, request, INVALID) == "inputs[0].contents.int_contents"


def test_inputs_of_a_published_program_are_checked(stub, model):
    scale = np.float32([1])
    assert refusal(stub.ModelInfer, infer(model, {"x": X}), INVALID) == "inputs"
    assert refusal(stub.ModelInfer, infer(model, {"x": X, "y": scale}), INVALID) == "inputs[1].name"
    assert refusal(stub.ModelInfer, infer(model, {"x": X.astype("f8"), "scale": scale}), INVALID) == "inputs[0]"
    assert refusal(stub.ModelInfer, infer(model, {"x": X[:4], "scale": scale}), INVALID) == "inputs[0]"
    assert refusal(stub.ModelInfer, infer(model, {"x": X, "scale": scale}, {"a": 1}), INVALID) == "parameters[a]"


def test_unknown_models_are_not_found(stub, model):
    for name, version in (("no", ""), ("graph", ""), (model, "9"), ("matmul", "0"), ("guest/model", "")):
        refusal(stub.ModelInfer, infer(name, {}, model_version=version), NOT_FOUND)
        refusal(stub.ModelMetadata, pb.ModelMetadataRequest(name=name, version=version), NOT_FOUND)
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(infer("0000", {}))
    assert "there is no model '0000'; client.models(), with client.kernels(), lists all" in caught.value.details()


def test_a_token_is_needed_and_decides_whose_models_there_are(serving, client, stub):
    with connected(serving.address, token="") as nobody:
        refusal(nobody.ServerLive, pb.ServerLiveRequest(), grpc.StatusCode.UNAUTHENTICATED)
    with connected(serving.address, token=token_of("watcher")) as watcher:
        refusal(watcher.ModelInfer, infer("diff", {"x": X}), grpc.StatusCode.PERMISSION_DENIED)
    array = sc.Array((8, 8), "float32")
    client.publish(lambda x: x + 1, "private", array)
    client.publish(lambda x: x + 2, "shared", array, shared=True)
    with connected(serving.address, token=token_of("guest")) as guest:
        refusal(guest.ModelInfer, infer("private", {"x": X}), NOT_FOUND)
        refusal(guest.ModelInfer, infer(f"{US}/private", {"x": X}), NOT_FOUND)
        np.testing.assert_array_equal(arrays_of(guest.ModelInfer(infer(f"{US}/shared", {"x": X})))["result0"], X + 2)
    with sc.connect(serving.address, token=token_of("guest")) as other:
        assert [model.name for model in other.models()] == [f"{US}/shared"]
        assert not other.unpublish("shared")
    for _ in range(2):  # the same program again is no other version
        assert client.publish(lambda x: x - 2, "shared", array).version == 2
    np.testing.assert_array_equal(arrays_of(stub.ModelInfer(infer("shared", {"x": X})))["result0"], X - 2)
    assert client.unpublish("private")
    assert client.unpublish("shared")
    refusal(stub.ModelInfer, infer("shared", {"x": X}), NOT_FOUND)


def test_loops_and_structures_are_published(client, stub):
    def f(params, steps):
        return {"y": client.xp.fori_loop(0, steps, lambda _, x: x * params["a"], params["x"])}

    model = client.publish(f, "loop", {"a": np.float32(2), "x": sc.Array((4,), "float32")}, 5)
    assert list(model.inputs) == ["params['x']"]
    outputs = arrays_of(stub.ModelInfer(infer("loop", {"params['x']": np.ones(4, np.float32)})))
    np.testing.assert_array_equal(outputs["result0"], np.full(4, 32, np.float32), strict=True)
    assert client.unpublish("loop")


def test_what_cannot_be_published_is_refused(client):
    array = sc.Array((4,), "float32")
    h = client.put(np.ones(4, np.float32))

    def writes(x):
        x[0] = 1
        return x

    for function, name, error in (
        (lambda x: x, "matmul", sc.InvalidParameterError),
        (lambda x: x, "a/b", sc.InvalidParameterError),
        (lambda x: x + h, "m", sc.InvalidOperandError),
        (writes, "m", sc.TracingError),
        (lambda x: x + 1j, "m", sc.OperandTypeError),
        (lambda x: x + np.ones((1 << 18) + 4)[: (1 << 18) + 4].reshape(-1, 4), "m", sc.ResourceExhaustedError),
    ):
        with pytest.raises(error):
            client.publish(function, name, array)


def test_deadlines_are_those_of_calls(stub):
    request = infer("matmul", {"x1": np.ones((300, 300)), "x2": np.ones((300, 300))}, {"timeout": 1})
    names = [t.name for t in stub.ModelMetadata(pb.ModelMetadataRequest(name="matmul")).inputs]
    for item, name in zip(request.inputs, names, strict=False):
        item.name = name
    refusal(stub.ModelInfer, request, grpc.StatusCode.DEADLINE_EXCEEDED)


def test_an_output_that_the_caller_names_is_small_beside_others(client, stub):
    client.publish(lambda x: (x, np.broadcast_to(x, (1200, 1200))), "small", sc.Array((1, 1), "float32"))
    request = infer("small", {"x": X[:1, :1] + 3}, {})
    refusal(stub.ModelInfer, request, EXHAUSTED)
    request.outputs.add(name="result0")
    assert arrays_of(stub.ModelInfer(request))["result0"] == 3
    client.unpublish("small")


def test_regions_are_checked_before_the_call_runs(stub):
    request = infer("sum", {"x": X}, {})
    request.outputs.add(name="result0").parameters["shared_memory_region"].string_param = "no"
    assert refusal(stub.ModelInfer, request, INVALID) == "outputs[0]"
    request = infer("sum", {}, {})
    x = request.inputs.add(name="x", datatype="FP32", shape=[1 << 20])
    x.parameters["shared_memory_region"].string_param = "no"
    x.parameters["shared_memory_byte_size"].int64_param = 4 << 20
    assert refusal(stub.ModelInfer, request, INVALID) == "inputs[0]"
    x.shape[0], x.parameters["shared_memory_byte_size"].int64_param = 1 << 40, 4 << 40
    refusal(stub.ModelInfer, request, EXHAUSTED)


def test_descriptions_of_models_are_small(serving):
    with open_channel(serving.address) as channel:
        models = ModelServiceStub(channel)
        array = arrays.to_proto(sc.Array((4,), "float32"))
        request = model_service_pb2.PublishModelRequest(name="wide")
        request.call.kernel = "negative"
        request.operands.add(input=0)
        for i in range(100):
            request.inputs.add(name=f"{i:0256}", type=array)
        refusal(models.PublishModel, request, EXHAUSTED)
        for i in range(2000):
            request.inputs.add(name=str(i), type=array)
        assert refusal(models.PublishModel, request, INVALID) == "operands"
        request.name = "graph"
        assert refusal(models.PublishModel, request, INVALID) == "name"


def test_the_longest_id_is_repeated_and_a_longer_one_in_no_response(stub):
    longest, longer = "\U0001f600" * 256, "i" * (1 << 20)
    assert stub.ModelInfer(infer("sum", {"x": X}, id=longest)).id == longest
    requests = [infer("sum", {"x": X}, id=longer), infer(longer, {"x": X}, id="a"), infer("sum", {"x": X}, id="b")]
    answers = list(stub.ModelStreamInfer(iter(requests), timeout=60))
    assert ["id has 1048576 characters, and at most 256" in answer.error_message for answer in answers] == [
        True,
        False,
        False,
    ]
    assert [answer.infer_response.id for answer in answers] == ["", "a", "b"]
    assert [answer.infer_response.model_name for answer in answers] == ["sum", "", "sum"]
