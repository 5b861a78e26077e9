"""Methods while the mesh restarts, as the option `availability` of the contract says; programs that are stopped."""

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from end_to_end.messages import open_channel, tensor
from end_to_end.processes import computing, wait_for
from faults.bad_input_rows import METHODS, call, send
from faults.long_programs import compile_long, convolve, the_worker
from faults.mutations import valid_requests
from google.protobuf.message import Message
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall.v1 import method_options_pb2, model_service_pb2, profile_service_pb2
from shardcall_core.wire import token_file

X = np.arange(8.0)
WAITS = method_options_pb2.AVAILABILITY_WAITS
REQUESTS: dict[str, Sequence[Message]] = {
    **{request.method: request.messages for request in reversed(valid_requests(bytes(16), b"lease of availability"))},
    "PublishModel": [
        model_service_pb2.PublishModelRequest(
            name="m",
            call=call(),
            inputs=[model_service_pb2.ModelTensor(name="x", type=tensor(8))],
            operands=[model_service_pb2.ModelOperand(input=0)],
        )
    ],
    "UnpublishModel": [model_service_pb2.UnpublishModelRequest(name="m")],
    "ListModels": [model_service_pb2.ListModelsRequest()],
    "StartProfile": [profile_service_pb2.StartProfileRequest()],
    "StopProfile": [profile_service_pb2.StopProfileRequest()],
}
"""A request of every method but CallStream, and those whose arrays are lost with the mesh that had them."""
del REQUESTS["GetArray"], REQUESTS["SaveArray"]


def code_of(channel: grpc.Channel, method: str) -> grpc.StatusCode:
    """The status of a call that the server ends after 2 s; other calls have a minute."""
    metadata = [("shardcall-timeout", "2" if rules(method).availability == WAITS else "60")]
    try:
        list(send(channel, method, REQUESTS[method], metadata, 90))
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def rules(method: str) -> method_options_pb2.MethodRules:
    return METHODS[method][1].GetOptions().Extensions[method_options_pb2.rules]


def test_every_method_of_the_contract_has_an_availability():
    assert set(REQUESTS) | {"GetArray", "SaveArray", "CallStream"} == set(METHODS)
    assert all(rules(method).availability for method in METHODS)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    (folder := tmp_path / token_file.user_name() / "a").mkdir(parents=True)
    np.save(folder / "b.npy", X)
    flags = ("--array-dir", str(tmp_path), "--max-execute-s", "4", "--max-launched-calls", "2")
    with running_server(*flags, devices=2, why="its worker is killed, and programs take too long") as running:
        yield running


def test_methods_wait_for_the_mesh_or_are_answered_as_the_contract_says(server):
    with sc.connect(server.address, shared_memory=False) as client, open_channel(server.address) as channel:
        (killed,) = server.worker_pids()
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: set(server.worker_pids()) - {killed})
        for starting in set(server.worker_pids()) - {killed}:
            os.kill(starting, signal.SIGSTOP)
        try:
            wait_for(lambda: not client.usage().mesh.ready)
            with ThreadPoolExecutor(len(REQUESTS)) as pool:
                codes = dict(zip(REQUESTS, pool.map(lambda method: code_of(channel, method), REQUESTS), strict=True))
        finally:
            for stopped in set(server.worker_pids()) - {killed}:
                os.kill(stopped, signal.SIGCONT)
        np.testing.assert_array_equal(client.diff(X).array, np.diff(X))
    waiting = {method for method, code in codes.items() if code is grpc.StatusCode.DEADLINE_EXCEEDED}
    assert waiting == {method for method in REQUESTS if rules(method).availability == WAITS}


def test_a_program_beyond_the_limit_ends_and_calls_that_wait_are_served(server):
    with (
        sc.connect(server.address) as client,
        sc.connect(server.address, retries=False) as plain,
        ThreadPoolExecutor(8) as pool,
    ):
        compile_long(client)
        client.diff(X)
        busy = computing(the_worker(server), for_s=0.1)  # on a loaded machine, 0.3 s take longer than the limit
        first = pool.submit(convolve, client)
        wait_for(busy)
        second = pool.submit(convolve, plain)
        wait_for(lambda: client.usage().calls == 2)
        small = [pool.submit(client.diff, X, timeout=300) for _ in range(4)]
        with pytest.raises(sc.DeadlineExceededError, match="longest that this server allows") as exceeded:
            first.result(300)
        assert exceeded.value.reason == "EXECUTE_LIMIT"
        with pytest.raises((sc.MeshRestartedError, sc.DeadlineExceededError)):  # the latter if it began later
            second.result(300)
        for waiting in small:
            np.testing.assert_array_equal(waiting.result(300).array, np.diff(X))
        assert client.usage().mesh.last_exit_reason == "running kernel convolve took over 4 s"
