"""Calls of tritonclient, unchanged, in an environment of its own: python triton_calls.py ADDRESS TOKEN.

The server has the kernel ``matmul`` and the model ``model``, and registers shared memory.
"""

import queue
import sys

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException, shared_memory

X = np.arange(64, dtype=np.float32).reshape(8, 8)
WEIGHTS = np.full((8, 8), 2, np.float32)


def inputs() -> list[triton.InferInput]:
    x, scale = triton.InferInput("x", [8, 8], "FP32"), triton.InferInput("scale", [1], "FP32")
    x.set_data_from_numpy(X)
    scale.set_data_from_numpy(np.float32([3]))
    return [x, scale]


def check(result: triton.InferResult) -> None:
    np.testing.assert_allclose(result.as_numpy("result0"), WEIGHTS @ X * 3)
    np.testing.assert_array_equal(result.as_numpy("result1"), [X.sum()])


def described(client: triton.InferenceServerClient, headers: dict[str, str]) -> None:
    assert client.is_server_live(headers=headers)
    assert client.is_server_ready(headers=headers)
    assert client.is_model_ready("model", headers=headers)
    assert client.get_server_metadata(headers=headers).name == "shardcall"
    metadata = client.get_model_metadata("model", headers=headers)
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == [
        ("x", "FP32", [8, 8]),
        ("scale", "FP32", [1]),
    ]
    config = client.get_model_config("model", headers=headers, as_json=True)["config"]
    assert [t["data_type"] for t in config["output"]] == ["TYPE_FP32"] * 2
    assert "model" in [item.name for item in client.get_model_repository_index(headers=headers).models]


def inferred(client: triton.InferenceServerClient, headers: dict[str, str]) -> None:
    check(client.infer("model", inputs(), headers=headers, request_id="1"))
    answers: queue.Queue = queue.Queue()
    client.async_infer("model", inputs(), lambda result, error: answers.put((result, error)), headers=headers)
    result, error = answers.get(timeout=30)
    assert error is None
    check(result)
    client.start_stream(lambda result, error: answers.put((result, error)), headers=headers)
    for name in ("model", "no", "model"):
        client.async_stream_infer(name, inputs())
    ends = [answers.get(timeout=30) for _ in range(3)]
    client.stop_stream()
    assert [error is None for _, error in ends] == [True, False, True]
    check(ends[2][0])
    status = ""
    try:
        client.infer("model", inputs()[:1], headers=headers)
    except InferenceServerException as refusal:
        status = refusal.status()
    assert status == "StatusCode.INVALID_ARGUMENT"


def through_shared_memory(client: triton.InferenceServerClient, headers: dict[str, str]) -> None:
    source = shared_memory.create_shared_memory_region("source", "/shardcall_triton_source", X.nbytes)
    target = shared_memory.create_shared_memory_region("target", "/shardcall_triton_target", X.nbytes)
    try:
        shared_memory.set_shared_memory_region(source, [X])
        client.register_system_shared_memory("source", "/shardcall_triton_source", X.nbytes, headers=headers)
        client.register_system_shared_memory("target", "/shardcall_triton_target", X.nbytes, headers=headers)
        assert len(client.get_system_shared_memory_status(headers=headers).regions) == 2
        x, scale = inputs()
        x.set_shared_memory("source", X.nbytes)
        output = triton.InferRequestedOutput("result0")
        output.set_shared_memory("target", X.nbytes)
        client.infer("model", [x, scale], outputs=[output], headers=headers)
        there = shared_memory.get_contents_as_numpy(target, np.float32, [8, 8])
        np.testing.assert_allclose(there, WEIGHTS @ X * 3)
        del there
        client.unregister_system_shared_memory(headers=headers)
        client.unregister_cuda_shared_memory(headers=headers)
    finally:
        shared_memory.destroy_shared_memory_region(source)
        shared_memory.destroy_shared_memory_region(target)


def main() -> None:
    address, token = sys.argv[1:]
    client = triton.InferenceServerClient(address)
    for step in (described, inferred, through_shared_memory):
        step(client, {"authorization": f"Bearer {token}"})
        sys.stdout.write(f"{step.__name__}\n")


if __name__ == "__main__":
    main()
