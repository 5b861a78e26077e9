"""Commands take effect in the order in which they were sent, however late their answers are."""

from __future__ import annotations

import threading
from itertools import count
from queue import Queue

import numpy as np

from shardcall_server.compilation.keys import Platform
from shardcall_server.kernels.layout import ArrayType, MeshAxes
from shardcall_server.link.wire import encode_array_type, encode_mesh
from shardcall_server.mesh.commands import Commands
from shardcall_worker.v1 import link_pb2

WAIT_S = 60.0
VALUES = np.arange(8.0)
THREADS = 64  # more than wait for answers at once


class HeldLink:
    """Receives answers, and blocks their senders until it is released."""

    def __init__(self) -> None:
        self.answers: Queue[link_pb2.WorkerMessage] = Queue()
        self.goes_on = threading.Event()

    def send(self, body: bytes, *, more: bool = False) -> None:
        self.answers.put(link_pb2.WorkerMessage.FromString(body))
        assert self.goes_on.wait(WAIT_S)

    def flush(self) -> None:
        pass


def test_an_array_is_copied_though_it_is_deleted_before_the_copy_begins():
    link, ids = HeldLink(), count(1)
    commands = Commands(link, {}, Platform("cpu", "0", ""))  # type: ignore[arg-type]

    def send(**command: object) -> None:
        assert commands.handle(link_pb2.FrontEndMessage(call_id=next(ids), **command), None)  # type: ignore[arg-type]

    axes = MeshAxes((("x", 8),))
    link.goes_on.set()
    send(
        put_array=link_pb2.PutArray(
            array_id=7,
            type=encode_array_type(ArrayType(VALUES.shape, VALUES.dtype)),
            mesh=encode_mesh(axes, tuple(range(8))),
            data=link_pb2.TensorData(inline=VALUES.tobytes()),
        )
    )
    assert link.answers.get(timeout=WAIT_S).HasField("array_put")
    link.goes_on.clear()
    for _ in range(THREADS):
        send(get_array=link_pb2.GetArray(array_id=7))
    send(delete_arrays=link_pb2.DeleteArrays(array_ids=[7]))
    link.goes_on.set()
    answers = [link.answers.get(timeout=WAIT_S) for _ in range(THREADS)]
    assert {answer.WhichOneof("answer") for answer in answers} == {"executed"}
    assert {answer.executed.inline_results[0] for answer in answers} == {VALUES.tobytes()}
    send(get_array=link_pb2.GetArray(array_id=7))
    assert link.answers.get(timeout=WAIT_S).failure.reason == "ARRAY_LOST"
    commands.close()
