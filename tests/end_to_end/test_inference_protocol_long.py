"""The Open Inference Protocol: every element type, and the limits of models, streams and responses."""

from __future__ import annotations

import threading

import grpc
import numpy as np
import pytest
from end_to_end.inference_requests import (
    DTYPES,
    arrays_of,
    connected,
    infer,
    pb,
    placed,
    shared_file,
)
from end_to_end.messages import token_of
from end_to_end.test_inference_protocol import X, client, register, stub
from rows import rows
from servers import running_server

import shardcall as sc

pytestmark = pytest.mark.long
__all__ = ["client", "stub"]


@rows("datatype", sorted(DTYPES))
def test_every_element_type_is_exact(stub, datatype):
    values = np.array([0, 1, 1, 0, 1], DTYPES[datatype])
    outputs = arrays_of(stub.ModelInfer(infer("roll", {"x": values}, {"shift": 1})))
    np.testing.assert_array_equal(outputs["result0"], np.roll(values, 1), strict=True)


def test_a_principal_has_64_models(limited_server):
    with sc.connect(limited_server.address, token=token_of("runner")) as client:
        for i in range(64):
            client.publish(lambda x: x + 1, f"m{i}", sc.Array((4,), "float32"))
        with pytest.raises(sc.ResourceExhaustedError):
            client.publish(lambda x: x + 1, "one-more", sc.Array((4,), "float32"))
        assert len(client.models()) == 64
        assert all(client.unpublish(f"m{i}") for i in range(64))


def test_an_idle_stream_holds_a_call_slot_and_no_upload_slot():
    why = "one call of a client runs"
    with running_server("--max-concurrent-calls", "2", why=why) as running, connected(running.address) as stub:
        ending = threading.Event()

        def requests():
            yield infer("sum", {"x": X}, {})
            ending.wait(60)

        stream = stub.ModelStreamInfer(requests(), timeout=60)
        try:
            assert not next(stream).error_message
            with pytest.raises(grpc.RpcError) as waited:
                stub.ModelInfer(infer("sum", {"x": X}, {}), timeout=2)
            assert waited.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        finally:
            ending.set()
        assert list(stream) == []
        assert arrays_of(stub.ModelInfer(infer("sum", {"x": X}, {})))["result0"] == X.sum()


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
