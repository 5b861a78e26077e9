"""Models of the Open Inference Protocol: every element type, shared memory and limits."""

import signal
import threading

import grpc
import numpy as np
import pytest
from end_to_end import test_inference_protocol as short
from end_to_end.inference_requests import (
    DTYPES,
    arrays_of,
    connected,
    infer,
    parameters,
    pb,
    placed,
    shared_file,
    tensor,
)
from end_to_end.messages import EXHAUSTED, INVALID, NOT_FOUND
from end_to_end.processes import is_busy, wait_for
from end_to_end.test_inference_protocol import X, refusal, register
from rows import rows
from servers import running_server

import shardcall as sc

pytestmark = pytest.mark.long

client, stub = short.client, short.stub


TYPED = {
    "bool_contents": ["BOOL"],
    "int_contents": ["INT8", "INT16", "INT32"],
    "int64_contents": ["INT64"],
    "uint_contents": ["UINT8", "UINT16", "UINT32"],
    "uint64_contents": ["UINT64"],
    "fp32_contents": ["FP32"],
    "fp64_contents": ["FP64"],
}
FIELDS = {datatype: field for field, datatypes in TYPED.items() for datatype in datatypes}


@rows("datatype", sorted(DTYPES))
def test_every_element_type_is_exact_in_raw_and_in_typed_contents(stub, datatype):
    values = np.array([0, 1, 1, 0, 1], DTYPES[datatype])
    requests = [infer("roll", {"x": values}, {"shift": 1})]
    if field := FIELDS.get(datatype):
        typed = tensor("x", values, contents=pb.InferTensorContents(**{field: values.tolist()}))
        requests.append(pb.ModelInferRequest(model_name="roll", inputs=[typed], parameters=parameters({"shift": 1})))
    for request in requests:
        np.testing.assert_array_equal(arrays_of(stub.ModelInfer(request))["result0"], np.roll(values, 1), strict=True)


def test_tensors_are_in_shared_memory(stub):
    large = np.arange(1 << 20, dtype=np.float64)  # more than a message holds
    with shared_file(large.tobytes()) as source, shared_file(bytes(large.nbytes)) as target:
        register(stub, "in", f"/{source.name}", large.nbytes)
        register(stub, "out", target.name, large.nbytes)
        status = stub.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest()).regions
        assert {name: region.byte_size for name, region in status.items()} == dict.fromkeys(("in", "out"), large.nbytes)
        request = pb.ModelInferRequest(
            model_name="roll",
            inputs=[tensor("x", large, parameters=placed("in", large.nbytes))],
            outputs=[
                pb.ModelInferRequest.InferRequestedOutputTensor(name="result0", parameters=placed("out", large.nbytes))
            ],
            parameters=parameters({"shift": 1}),
        )
        response = stub.ModelInfer(request, timeout=60)
        assert list(response.raw_output_contents) == [b""]
        assert response.outputs[0].parameters["shared_memory_region"].string_param == "out"
        np.testing.assert_array_equal(np.frombuffer(target.buf, count=large.size), np.roll(large, 1))
        del response
        stub.SystemSharedMemoryUnregister(pb.SystemSharedMemoryUnregisterRequest(name="in"))
        assert refusal(stub.ModelInfer, request, INVALID) == "inputs[0]"
        stub.SystemSharedMemoryUnregister(pb.SystemSharedMemoryUnregisterRequest())
        assert not stub.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest()).regions
    assert stub.CudaSharedMemoryUnregister(pb.CudaSharedMemoryUnregisterRequest()) is not None


@rows("count", [(1 << 17) + 1, 10_000_000])
def test_constants_beyond_the_limit_are_refused_with_it(client, count):
    large = np.ones(count)
    with pytest.raises(
        sc.ResourceExhaustedError, match=r"and those of a model at most 1 MiB .*client\.put\(x, name=…\)"
    ) as caught:
        client.publish(lambda x: x + large, "large", sc.Array((), "float64"))
    assert (caught.value.reason, caught.value.field) == ("CALL_TOO_LARGE", "function")


def test_a_published_program_refers_to_named_arrays(client, stub):
    weights = client.put(np.full((8, 8), 3, np.float32), name="weights", replace=True)
    client.publish(lambda x, w: w @ x, "layer", sc.Array((8, 8), "float32"), weights)
    client.publish(lambda x: weights + x, "shifted", sc.Array((8, 8), "float32"))
    for name, expected in (("layer", np.full((8, 8), 3, np.float32) @ X), ("shifted", X + 3)):
        np.testing.assert_allclose(arrays_of(stub.ModelInfer(infer(name, {"x": X})))["result0"], expected)
    weights[...] = 1
    np.testing.assert_array_equal(arrays_of(stub.ModelInfer(infer("shifted", {"x": X})))["result0"], X + 1)
    client.delete(weights)
    refusal(stub.ModelInfer, infer("shifted", {"x": X}), NOT_FOUND)
    for name in ("layer", "shifted"):
        assert client.unpublish(name)


def test_a_request_has_the_limits_of_messages(stub):
    x = np.zeros((1 << 18) + 1)
    outputs = arrays_of(stub.ModelInfer(infer("roll", {"x": x}, {"shift": 1}), timeout=30))
    assert outputs["result0"].shape == x.shape  # more than a unary call of the contract has
    refusal(stub.ModelInfer, infer("tile", {"x": np.zeros((1, 1 << 10))}, {"reps": "[1024, 1]"}), EXHAUSTED)


def test_an_idle_stream_holds_a_call_slot_and_no_upload_slot():
    with (
        running_server("--max-concurrent-calls", "2", why="its calls are few") as running,
        connected(running.address) as stub,
        sc.connect(running.address) as observer,
    ):  # 1 of a client
        ending = threading.Event()

        def requests():
            yield infer("sum", {"x": X}, {})
            ending.wait(60)

        stream = stub.ModelStreamInfer(requests(), timeout=60)
        try:
            assert not next(stream).error_message
            waiting = stub.ModelInfer.future(infer("sum", {"x": X}, {}), timeout=60)
            wait_for(lambda: waiting.done() or is_busy(observer, 2))  # it has the upload slot
            assert not waiting.done()
        finally:
            ending.set()
        assert list(stream) == []
        assert arrays_of(waiting.result())["result0"] == X.sum()


def test_requests_that_wait_when_the_server_drains_are_answered():
    with running_server(why="it drains") as running, connected(running.address) as stub:
        requests = [stub.ModelInfer.future(infer("sum", {"x": X}, {}), timeout=60) for _ in range(300)]
        stub.ServerLive(pb.ServerLiveRequest(), timeout=60)  # which has come after them
        running.process.send_signal(signal.SIGTERM)
        assert {arrays_of(request.result())["result0"].item() for request in requests} == {X.sum()}
        with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
            stub.ModelInfer(infer("sum", {"x": X}, {}), timeout=60)


def test_a_response_of_many_outputs_with_long_names_of_regions_fits(client, stub):
    client.publish(lambda x: tuple(x + i for i in range(200)), "many", sc.Array((1,), "float32"))
    name = "\U0001f600" * 256
    with shared_file(bytes(4)) as file:
        register(stub, name, file.name, 4)
        request = infer("many", {"x": X[0, :1]}, id=name)
        for i in range(200):
            request.outputs.add(name=f"result{i}", parameters=placed(name, 4))
        response = stub.ModelInfer(request, timeout=120)
        assert len(response.outputs) == 200
        assert response.ByteSize() < (64 << 10) + 200 * (512 + len(name.encode()))
        stub.SystemSharedMemoryUnregister(pb.SystemSharedMemoryUnregisterRequest())
    client.unpublish("many")
