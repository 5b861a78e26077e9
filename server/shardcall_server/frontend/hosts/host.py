"""One host that has joined: the messages of its agent, and the commands to it."""

from __future__ import annotations

import itertools
import queue
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import structlog

from shardcall_core.wire.chunk_codec import Chunk
from shardcall_server.frontend.hosts.hosted_worker import HostedWorker
from shardcall_server.frontend.hosts.link_listener import LinkListener
from shardcall_server.frontend.hosts.relay import Outgoing, RelayedLink
from shardcall_worker.v1 import host_service_pb2

_LEFT = "its agent was stopped"
_start_ids = itertools.count(1)


class HostGoneError(Exception):
    """The host left before it started the worker."""


class Host:
    """One host that has joined.

    Args:
        hello: the agent's description of the host.
        shares_memory: whether a worker on the front end's own host may share memory.
    """

    def __init__(self, hello: host_service_pb2.Hello, *, shares_memory: bool) -> None:
        self.hello = hello
        self.name = hello.name
        self.activity = 0
        self.spare_ready = False
        self.disconnect_reason = ""
        """The reason why the host left; empty while it is connected."""
        self.is_refused = False
        """True if its agent should not join again."""
        self._shares_memory = shares_memory
        self._outbox: queue.SimpleQueue[Outgoing | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards the next two and `disconnect_reason`
        self._worker: HostedWorker | None = None
        self._starting: tuple[int, int, LinkListener | None, Future[HostedWorker]] | None = None
        self._results_of = 0

    @property
    def worker(self) -> HostedWorker | None:
        """The current worker of the host."""
        return self._worker

    def outgoing(self) -> Iterator[bytes]:
        """Yields the messages for the agent until the host leaves."""
        while (messages := self._outbox.get()) is not None:
            yield from messages

    def _send(self, message: host_service_pb2.JoinResponse) -> None:
        self._outbox.put(iter([message.SerializeToString()]))

    def welcome(self, platform: str, *, keep_spare: bool) -> None:
        """Confirms to the agent that the host has joined."""
        welcome = host_service_pb2.Welcome(platform=platform, keep_spare=keep_spare)
        self._send(host_service_pb2.JoinResponse(welcome=welcome))

    def start_worker(self, index: int) -> Future[HostedWorker]:
        """Asks the agent to start a worker.

        Args:
            index: the index of its process in the mesh.

        Returns:
            A future of the worker or of a `HostGoneError`.
        """
        started: Future[HostedWorker] = Future()
        start_id, link_listener = next(_start_ids), self._make_link_listener()
        message = host_service_pb2.StartWorker(start_id=start_id)
        if link_listener is not None:
            message.socket_path, message.ticket = link_listener.path, link_listener.ticket
        with self._lock:
            if self.disconnect_reason:
                if link_listener is not None:
                    link_listener.close()
                started.set_exception(HostGoneError(self.disconnect_reason))
                return started
            self._starting = start_id, index, link_listener, started
        self._send(host_service_pb2.JoinResponse(start_worker=message))
        return started

    def _make_link_listener(self) -> LinkListener | None:
        if not self._shares_memory:
            return None
        try:
            return LinkListener()
        except OSError:
            return None

    def handle(self, message: host_service_pb2.JoinRequest | Chunk) -> None:
        """Handles a message of the agent."""
        self.activity += 1
        worker = self._worker
        if isinstance(message, Chunk):
            if worker is not None:
                worker.relayed.take_chunk(self._results_of, message.data)
            return
        match message.WhichOneof("message"):
            case "heartbeat":
                self.spare_ready = message.heartbeat.spare_ready
                if worker is not None:
                    worker.cpu_ticks = message.heartbeat.worker_cpu_ticks
                    worker.relayed.set_arrived(message.heartbeat.arriving_call_id, message.heartbeat.arrived_bytes)
            case "worker_started":
                self._started(message.worker_started)
            case "worker_ended":
                if worker is not None and worker.started.start_id == message.worker_ended.start_id:
                    worker.set_exited(message.worker_ended)
            case "leaving":
                self.disconnect(_LEFT)
            case "results":
                self._results_of = message.results.call_id
            case "worker_message":
                if worker is not None:
                    worker.relayed.take_message(message.worker_message)
            case _:
                self.disconnect("its agent sent a message of an unknown kind")

    def _started(self, started: host_service_pb2.WorkerStarted) -> None:
        with self._lock:
            if self._starting is None or self._starting[0] != started.start_id:
                return
            (start_id, index, link_listener, future), self._starting = self._starting, None
        link = _link(link_listener, started)
        if started.is_linked and link is None:  # the worker has handed its link on to a socket that is not here
            self._shares_memory = False
            structlog.get_logger().warning("a host shares no memory: its worker did not connect", host=self.name)
            self._give_up(start_id, future)
            return
        relayed = RelayedLink(start_id, index, self._outbox.put)
        try:
            worker = HostedWorker(self.hello, started, relayed, link, lambda: self._stop_worker(start_id))
        except OSError:  # it has exited already
            self._give_up(start_id, future)
            return
        with self._lock:
            self._worker = worker
            reason = self.disconnect_reason
        if reason:
            worker.set_lost(f"host {self.name} is gone: {reason}")
        future.set_result(worker)

    def _give_up(self, start_id: int, future: Future[HostedWorker]) -> None:
        self._stop_worker(start_id)
        future.set_exception(HostGoneError("its worker exited at its start"))

    def _stop_worker(self, start_id: int) -> None:
        stop = host_service_pb2.StopWorker(start_id=start_id)
        self._send(host_service_pb2.JoinResponse(stop_worker=stop))

    def disconnect(self, reason: str) -> None:
        """Ends the agent's call, and with it its worker; only the first reason is kept."""
        with self._lock:
            if self.disconnect_reason:
                return
            self.disconnect_reason = reason
            starting, self._starting = self._starting, None
            worker = self._worker
        if starting is not None:
            if starting[2] is not None:
                starting[2].close()
            starting[3].set_exception(HostGoneError(reason))
        if worker is not None:
            worker.set_lost(f"host {self.name} is gone: {reason}")
        self._outbox.put(None)


def _link(link_listener: LinkListener | None, started: host_service_pb2.WorkerStarted) -> socket.socket | None:
    if link_listener is None:
        return None
    try:
        return link_listener.open(started.pid) if started.is_linked else None
    except OSError:
        return None
    finally:
        link_listener.close()
