"""Commands take effect in the order in which they were sent, however late their answers are."""

from __future__ import annotations

import socket
import threading
from itertools import count
from queue import Queue

import numpy as np
import pytest

from shardcall.v1 import kernel_pb2
from shardcall_core.layouts.layout import ArrayType, MeshAxes
from shardcall_server.compilation.keys import Platform
from shardcall_server.link.framing import Link
from shardcall_server.link.wire import encode_array_type, encode_mesh
from shardcall_server.mesh import compilers, executor
from shardcall_server.mesh.commands import Commands
from shardcall_server.mesh.compilers import LocalCompiler
from shardcall_server.mesh.worker import load_kernels
from shardcall_worker.v1 import link_pb2

WAIT_S = 60.0
VALUES = np.arange(8.0)
COPIES = 64


class FakeLink:
    """Receives answers."""

    def __init__(self) -> None:
        self.answers: Queue[link_pb2.WorkerMessage] = Queue()

    def send(self, body: bytes, *, more: bool = False) -> None:
        self.answers.put(link_pb2.WorkerMessage.FromString(body))

    def flush(self) -> None:
        pass


def test_an_array_is_copied_though_it_is_deleted_before_the_copy_begins():
    link, ids = FakeLink(), count(1)
    commands = Commands(link, {}, Platform("cpu", "0", ""), LocalCompiler(None, ""))  # type: ignore[arg-type]

    def send(**command: object) -> None:
        assert commands.handle(link_pb2.FrontEndMessage(call_id=next(ids), **command), None)  # type: ignore[arg-type]

    axes = MeshAxes((("x", 8),))
    send(
        put_array=link_pb2.PutArray(
            array_id=7,
            type=encode_array_type(ArrayType(VALUES.shape, VALUES.dtype)),
            mesh=encode_mesh(axes, tuple(range(8))),
            data=link_pb2.TensorData(inline=VALUES.tobytes()),
        )
    )
    assert link.answers.get(timeout=WAIT_S).HasField("array_put")
    for _ in range(COPIES):
        send(get_array=link_pb2.GetArray(array_id=7))
    send(delete_arrays=link_pb2.DeleteArrays(array_ids=[7]))
    commands.handle_batch(())
    answers = [link.answers.get(timeout=WAIT_S) for _ in range(COPIES)]
    assert {answer.WhichOneof("answer") for answer in answers} == {"executed"}
    assert {answer.executed.inline_results[0] for answer in answers} == {VALUES.tobytes()}
    send(get_array=link_pb2.GetArray(array_id=7))
    assert link.answers.get(timeout=WAIT_S).failure.reason == "ARRAY_LOST"
    commands.close()


@pytest.mark.parametrize("side", [8, 64, 512])
def test_a_batch_runs_a_chain_of_resident_arrays(side: int):
    ours, theirs = socket.socketpair()
    ours.settimeout(WAIT_S)
    links = Link(ours), Link(theirs)
    received = links[0].frames()
    commands = Commands(links[1], load_kernels(), Platform("cpu", "0", ""), LocalCompiler(None, ""))
    ids = count(1)

    def handle(*batch: dict[str, object]) -> None:
        messages = [link_pb2.FrontEndMessage(call_id=next(ids), **command) for command in batch]  # type: ignore[arg-type]
        assert commands.handle_batch([(message.SerializeToString(), None) for message in messages])

    def answer() -> link_pb2.WorkerMessage:
        return link_pb2.WorkerMessage.FromString(next(received)[0])

    mesh, ones = encode_mesh(MeshAxes((("x", 1),))), np.ones((side, side))
    types = [encode_array_type(ArrayType(shape, ones.dtype)) for shape in (ones.shape, ())]
    call = kernel_pb2.KernelCall(kernel="add", strategy="gspmd", mesh=mesh)
    handle({"prepare": link_pb2.Prepare(call=call, operands=types, max_call_bytes=1 << 30)})
    assert answer().HasField("compiling")
    digest = answer().prepared.plan.key_digest
    data = link_pb2.TensorData(inline=ones.tobytes())
    handle({"put_array": link_pb2.PutArray(array_id=1, type=types[0], mesh=mesh, data=data)})
    assert answer().HasField("array_put")
    chain: list[dict[str, object]] = []
    for array_id in range(1, 41):
        operands = [link_pb2.TensorData(array_id=array_id), link_pb2.TensorData(inline=ones[0, 0].tobytes())]
        results = [link_pb2.ResultDestination(array_id=array_id + 1)]
        chain += (
            {"execute": link_pb2.Execute(key_digest=digest, operands=operands, results=results)},
            {"delete_arrays": link_pb2.DeleteArrays(array_ids=[array_id])},
        )
    handle(*chain, {"get_array": link_pb2.GetArray(array_id=41)}, {"get_array": link_pb2.GetArray(array_id=40)})
    answers = {message.call_id: message for message in (answer() for _ in range(42))}
    last, deleted = (answers.pop(call_id) for call_id in sorted(answers)[-2:])
    assert last.executed.inline_results[0] == (41 * ones).tobytes()
    assert deleted.failure.reason == "ARRAY_LOST"
    assert {message.WhichOneof("answer") for message in answers.values()} == {"executed"}
    assert not any(message.executed.inline_results for message in answers.values())
    commands.close()
    for link in links:
        link.close()


def test_two_programs_are_compiled_at_a_time(monkeypatch):
    both, compile_parts = threading.Barrier(2), compilers.compile_parts

    def compile_together(resolved, **how):
        both.wait(WAIT_S)
        return compile_parts(resolved, **how)

    monkeypatch.setattr(compilers, "compile_parts", compile_together)
    link = FakeLink()
    of_worker = Commands(link, load_kernels(), Platform("cpu", "0", ""), LocalCompiler(None, ""))  # type: ignore[arg-type]
    mesh = encode_mesh(MeshAxes((("x", 1),)))
    call = kernel_pb2.KernelCall(kernel="negative", strategy="gspmd", mesh=mesh)
    for size in (3, 4):
        operands = [encode_array_type(ArrayType((size,), VALUES.dtype))]
        prepare = link_pb2.Prepare(call=call, operands=operands, max_call_bytes=1 << 30)
        assert of_worker.handle(link_pb2.FrontEndMessage(call_id=size, prepare=prepare), None)
    answers = [link.answers.get(timeout=WAIT_S).WhichOneof("answer") for _ in range(4)]
    assert sorted(answers) == ["compiling", "compiling", "prepared", "prepared"]
    of_worker.close()


def test_every_command_of_a_batch_is_answered_with_its_results(monkeypatch):
    ours, theirs = socket.socketpair()
    ours.settimeout(WAIT_S)
    links = Link(ours), Link(theirs)
    received = links[0].frames()
    commands = Commands(links[1], load_kernels(), Platform("cpu", "0", ""), LocalCompiler(None, ""))
    array_type, ids = encode_array_type(ArrayType(VALUES.shape, VALUES.dtype)), count(1)

    def handle(*batch: dict[str, object]) -> None:
        messages = [link_pb2.FrontEndMessage(call_id=next(ids), **command) for command in batch]  # type: ignore[arg-type]
        assert commands.handle_batch([(message.SerializeToString(), None) for message in messages])

    def answer() -> link_pb2.WorkerMessage:
        return link_pb2.WorkerMessage.FromString(next(received)[0])

    def execution(values: np.ndarray) -> dict[str, object]:
        operands, results = [link_pb2.TensorData(inline=values.tobytes())], [link_pb2.ResultDestination()]
        return {"execute": link_pb2.Execute(key_digest=digest, operands=operands, results=results)}

    call = kernel_pb2.KernelCall(kernel="diff", strategy="gspmd", mesh=encode_mesh(MeshAxes((("x", 1),))))
    handle({"prepare": link_pb2.Prepare(call=call, operands=[array_type], max_call_bytes=1 << 20)})
    assert answer().HasField("compiling")
    digest = answer().prepared.plan.key_digest
    operands = {call_id: VALUES**2 * call_id for call_id in range(2, 42)}
    handle(*map(execution, operands.values()))
    answers = {message.call_id: message for message in (answer() for _ in operands)}
    for call_id, values in operands.items():
        assert answers[call_id].executed.inline_results[0] == np.diff(values).tobytes()
    put = link_pb2.PutArray(
        array_id=7, type=array_type, mesh=call.mesh, data=link_pb2.TensorData(inline=VALUES.tobytes())
    )
    get = link_pb2.GetArray(array_id=7)
    handle({"put_array": put})
    assert answer().HasField("array_put")
    handle(
        execution(VALUES),
        {"get_array": get},
        {"delete_arrays": link_pb2.DeleteArrays(array_ids=[7])},
        {"get_array": get},
    )
    last = {message.call_id: message for message in (answer() for _ in range(3))}
    assert [last[call_id].WhichOneof("answer") for call_id in (43, 44, 46)] == ["executed", "executed", "failure"]
    assert last[44].executed.inline_results[0] == VALUES.tobytes()
    shutdown = link_pb2.FrontEndMessage(shutdown=link_pb2.Shutdown()).SerializeToString()
    assert not commands.handle_batch([(shutdown, None)])

    def fails(array: object) -> bool:
        raise RuntimeError("nobody knows")

    with monkeypatch.context() as patch:
        patch.setattr(executor, "_is_ready", fails)
        handle(execution(VALUES), execution(2 * VALUES))
        for values in (VALUES, 2 * VALUES):
            assert answer().executed.inline_results[0] == np.diff(values).tobytes()
    commands.close()
    for link in links:
        link.close()
