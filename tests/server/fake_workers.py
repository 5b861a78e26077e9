"""Workers that are threads of the test and use the link's protocol on real sockets."""

import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from shardcall.v1 import server_info_service_pb2
from shardcall_server.frontend.workers.exit_reason import StopRequest
from shardcall_server.frontend.workers.quarantine import Quarantine
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_server.link.framing import Link, LinkClosedError
from shardcall_worker.v1 import link_pb2

PATIENCE_S = 60.0
Answers = list[dict[str, Any]]
READY = link_pb2.Ready(platform="cpu", devices=[server_info_service_pb2.Device(id=i, process_index=i) for i in (0, 1)])


class FakeWorker:
    """A worker whose process is a thread of the test's.

    Args:
        host: its host's name.
        answer: its messages in reply to a command; the usual ones by default.
    """

    def __init__(self, host: str, answer: Callable[[link_pb2.FrontEndMessage], Answers] | None = None) -> None:
        ours, theirs = socket.socketpair()
        self.host = host
        self.link: Any = Link(ours)
        self.data_link: Any = None
        self.lost: StopRequest | None = None
        self.pid = 1
        self.last_output = ""
        self.out_of_memory = False
        self.cpu_ticks = 0
        self.status = 0
        self.got: list[link_pb2.FrontEndMessage] = []
        self.answer = answer or usual
        self.other_end = Link(theirs)
        self._gone = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        for body, _ in self.other_end.frames():
            message = link_pb2.FrontEndMessage.FromString(body)
            self.got.append(message)
            if message.HasField("shutdown"):
                break
            try:
                for answer in self.answer(message):
                    self.say(message.call_id, **answer)
            except LinkClosedError:
                break
        self.die(self.status)

    def say(self, call_id: int, **answer: Any) -> None:
        self.other_end.send(link_pb2.WorkerMessage(call_id=call_id, **answer).SerializeToString())

    def die(self, status: int) -> None:
        if not self._gone.is_set():
            self.status = status
            self._gone.set()
            self.other_end.close()

    @property
    def ended(self) -> bool:
        return self._gone.is_set()

    def wait(self, timeout_s: float) -> bool:
        return self._gone.wait(timeout_s)

    def terminate(self) -> int:
        self.link.close()
        if not self.wait(0.2):
            self.kill()
        return self.status

    def kill(self) -> None:
        self.die(-signal.SIGKILL)
        self.link.close()

    @property
    def commands(self) -> list[tuple[str | None, int, int]]:
        return [(message.WhichOneof("command"), message.call_id, message.sequence) for message in self.got]


def usual(message: link_pb2.FrontEndMessage) -> Answers:
    match message.WhichOneof("command"):
        case "start":
            return [{"ready": READY}]
        case "execute":
            return [{"executed": link_pb2.Executed()}]
        case "prepare":
            return [{"prepared": link_pb2.Prepared(fingerprint=b"1")}]
        case "put_array":
            return [{"array_put": link_pb2.ArrayPut()}]
    return []


def but(command: str, *answers: dict[str, Any]) -> Callable[[link_pb2.FrontEndMessage], Answers]:
    """Replaces the usual answers to one command."""
    return lambda message: list(answers) if message.WhichOneof("command") == command else usual(message)


FAILED = {"failure": link_pb2.Failure(reason="INTERNAL", message="no")}


class RunningMesh:
    """A session with its workers, which runs on a thread until the test ends."""

    def __init__(self, *workers: FakeWorker) -> None:
        self.workers = workers
        self.session = MeshSession(workers, [link_pb2.Start() for _ in workers], Quarantine())
        self._pool = ThreadPoolExecutor(1)
        self.exit_reason = self._pool.submit(self.session.run)

    def execute(self, key: str = "k", **options: Any) -> Future[link_pb2.WorkerMessage]:
        return self.session.command(execution(key), **options)

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.exit_reason.exception(PATIENCE_S)
        self._pool.shutdown()


def execution(key: str = "k") -> link_pb2.FrontEndMessage:
    return link_pb2.FrontEndMessage(execute=link_pb2.Execute(key_digest=key))
