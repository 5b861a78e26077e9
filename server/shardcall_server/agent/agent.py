"""The agent of a host: joins a server's mesh, and joins again whenever the connection is lost."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import grpc
import structlog

from shardcall._src.access.addresses import Address
from shardcall._src.access.channel import open_channel
from shardcall._src.access.handshake import explain
from shardcall._src.access.option_names import as_options
from shardcall._src.access.tls import Tls
from shardcall._src.access.token import Token
from shardcall._src.wire.chunk_codec import Chunk, decode
from shardcall._src.wire.metadata import AUTHORIZATION_KEY
from shardcall.v1 import server_info_service_pb2
from shardcall_server.agent.own_address import address_towards, free_port
from shardcall_server.agent.worker_slot import WorkerSlot
from shardcall_server.frontend.hosts.pieces import MESSAGE_BYTES
from shardcall_server.frontend.workers.process import WorkerProcess
from shardcall_server.frontend.workers.workers import Workers
from shardcall_worker.v1 import host_service_pb2

_METHOD = "/shardcall_worker.v1.HostService/Join"
_RESPONSE: Any = host_service_pb2.JoinResponse
_BEAT_S = 1.0
_EXCHANGE_S = 10.0  # for a server on this host to give a session token
_STANDS_BY_S = 10.0
_MOST_WAITING = 16  # messages: a chunk each, at most
_BACK_OFF_S = (0.2, 0.5, 1.0, 2.0)
_TELL_EVERY = 30  # attempts, two seconds apart
_LEAVE_S = 1.0  # for the server to see that this host leaves
_LASTING = {  # the next attempt would end as this one did
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
}


class AgentRefusedError(Exception):
    """The server does not have this host: why, and what to do."""


@dataclass(frozen=True)
class AgentSettings:
    """What an agent is told.

    Attributes:
        server: where hosts join.
        tls: what the connection is encrypted with; None for a plain one.
        find_token: finds what is shown to the server; the token file may be made or changed at any time.
        name: of this host.
        address: at which the other hosts reach this one; empty is that from which it reaches the server at the time.
        devices: virtual CPU devices; 0 for the platform's own.
        program_dir: where compiled programs are kept; empty for nowhere.
        shared_memory: whether memory may be shared with a server on this host.
        log_level: the least level logged.
    """

    server: Address
    tls: Tls | None
    find_token: Callable[[], Token]
    name: str
    address: str
    devices: int
    program_dir: str
    shared_memory: bool
    log_level: str


class Agent:
    """Joins, starts and ends workers as the front end says, and joins again when the connection is lost.

    Args:
        settings: what it is told.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._ended = threading.Event()
        self._call: Any = None
        self._visit: Visit | None = None
        self._workers: Workers | None = None
        self._told = ""  # why the server could not be reached, the last time

    def end(self) -> None:
        """Has `run` return soon; the server is told that the host leaves. May be called by a signal's handler."""
        threading.Thread(target=self._leave, name="leave", daemon=True).start()

    def _leave(self) -> None:
        self._ended.set()  # by a thread: a handler may run while the main thread holds the event's lock
        visit, call = self._visit, self._call
        if visit is not None:
            visit.leave()
            visit.over.wait(_LEAVE_S)
        if call is not None:
            call.cancel()

    def run(self) -> None:
        """Is part of the mesh until `end` is called.

        Raises:
            AgentRefusedError: the server does not have this host.
        """
        attempts = 0
        try:
            with open_channel(self._settings.server, MESSAGE_BYTES, self._settings.tls) as channel:
                while not self._ended.is_set():
                    attempts = 0 if self._join(channel, attempts) else attempts + 1
                    self._ended.wait(_BACK_OFF_S[min(attempts, len(_BACK_OFF_S) - 1)])
        finally:
            if self._workers is not None:
                self._workers.close()

    def _join(self, channel: grpc.Channel, attempts: int) -> bool:
        """Is part of the mesh for as long as the connection lasts; returns whether it was at all.

        Args:
            channel: to the server.
            attempts: how many came to nothing before this one.
        """
        log = structlog.get_logger()
        try:  # anew each time: a network that was lost may come back with another address
            address = self._settings.address or address_towards(self._settings.server)
        except OSError as error:
            if attempts % _TELL_EVERY == 0:
                log.info("no way leads to the server at present; trying again", reason=str(error))
            return False
        if not free_port(address):
            if attempts % _TELL_EVERY == 0:
                log.warning("this host cannot listen at its address; trying again", address=address)
            return False
        visit = self._visit = Visit(self._settings, address, self._make_workers)
        join: Any = channel.stream_stream(_METHOD, None, partial(decode, _RESPONSE))
        token = self._settings.find_token()
        shown = token.show(_EXCHANGE_S)
        metadata = ((AUTHORIZATION_KEY, f"Bearer {shown}"),) if shown else ()
        self._call = join(visit.outgoing(), metadata=metadata, wait_for_ready=False)
        if not self._call.add_callback(visit.fall_silent):
            visit.fall_silent()
        if self._ended.is_set():  # just before there was a call to end
            self._call.cancel()
        try:
            for message in self._call:
                visit.take(message)
        except grpc.RpcError as error:
            if (
                error.code() is grpc.StatusCode.UNAUTHENTICATED
                and self._settings.find_token().show(_EXCHANGE_S) != shown
            ):
                return False  # the file was written while the call was on its way
            self._explain(error, attempts, token, joined=visit.welcome)
        except Exception:  # no memory, no processes: with a new worker it may go better
            log.exception("the agent failed; joining again")
            self._call.cancel()
        finally:
            visit.end()
            self._call = self._visit = None
        return visit.welcome

    def _explain(self, error: Any, attempts: int, token: Token, *, joined: bool) -> None:
        code, details = error.code(), error.details()
        if self._ended.is_set():
            return
        if code is grpc.StatusCode.UNIMPLEMENTED:
            raise AgentRefusedError(
                f"what answers at {self._settings.server.target} takes no hosts; a server started with --hosts takes "
                "them at its --hosts-port, 8471 by default, which its log tells"
            )
        if code in _LASTING:
            told = code in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
            raise AgentRefusedError(f"{details}; {token.advice}" if told else details)
        log = structlog.get_logger()
        if joined:
            log.warning("the connection to the server ended; joining again", reason=details)
            self._told = ""
            return
        at = self._settings.server.target
        why = as_options(explain(details or "", self._settings.server, self._settings.tls))
        if why and why != self._told:
            log.warning("the server cannot be joined; trying again", at=at, reason=why)
        elif not why and attempts % _TELL_EVERY == 0:
            log.info("no server takes this host at present; trying again", at=at, reason=details)
        self._told = why

    def _make_workers(self, platform: str, *, keep_spare: bool) -> Workers:
        """The worker processes of this host: their spare outlasts the connection."""
        if self._workers is None:
            wanted = platform or ("cpu" if self._settings.devices else "")
            self._workers = Workers(wanted, self._settings.log_level, keep_spare=keep_spare)
        return self._workers


class Visit:
    """One call of `Join`, from its first message to its end.

    Args:
        settings: the agent's.
        address: at which the other hosts reach this one.
        make_workers: gives the worker processes, as the server wants them.

    Attributes:
        over: set when it has ended.
    """

    def __init__(self, settings: AgentSettings, address: str, make_workers: Any) -> None:
        self._settings = settings
        self._address = address
        self._make_workers = make_workers
        self._outbox: queue.Queue[bytes | None] = queue.Queue(_MOST_WAITING)
        self._speaking = threading.Lock()
        self._slot: WorkerSlot | None = None
        self._workers: Workers | None = None
        self.over = threading.Event()
        self.welcome = False
        """Whether the server has counted this host."""
        threading.Thread(target=self._beat, name="beat", daemon=True).start()

    def outgoing(self) -> Iterator[bytes]:
        """Yields the messages for the server."""
        hello = host_service_pb2.Hello(
            name=self._settings.name,
            address=self._address,
            devices=self._settings.devices,
            versions=server_info_service_pb2.Versions(
                shardcall=version("shardcall"), jax=version("jax"), jaxlib=version("jaxlib")
            ),
        )
        yield host_service_pb2.JoinRequest(hello=hello).SerializeToString()
        while (message := self._outbox.get()) is not None:
            yield message

    def take(self, message: host_service_pb2.JoinResponse | Chunk) -> None:
        """Does what the server says."""
        slot = self._slot
        if isinstance(message, Chunk):
            if slot is not None:
                slot.take_chunk(message.offset, message.data)
            return
        match message.WhichOneof("message"):
            case "welcome":
                self._begin(message.welcome)
            case "start_worker":
                self._start(message.start_worker)
            case "stop_worker":
                if slot is not None and slot.start_id == message.stop_worker.start_id:
                    slot.end()
            case "command":
                if slot is not None and slot.start_id == message.command.start_id:
                    slot.take_command(message.command)

    def _begin(self, welcome: host_service_pb2.Welcome) -> None:
        self.welcome = True
        structlog.get_logger().info("joined", server=self._settings.server.target, name=self._settings.name)
        self._workers = self._make_workers(welcome.platform, keep_spare=welcome.keep_spare)

    def _start(self, start: host_service_pb2.StartWorker) -> None:
        assert self._workers is not None
        if self._slot is not None:
            self._slot.close()
        if not self._settings.shared_memory:
            start.socket_path = ""
        (process,), stood_by = self._workers.acquire()
        assert isinstance(process, WorkerProcess)
        slot = WorkerSlot(process, start, self._settings.program_dir, partial(self._say_of, start.start_id))
        with self._speaking:
            self._slot = slot
        started = host_service_pb2.WorkerStarted(
            start_id=start.start_id,
            pid=slot.pid,
            is_linked=slot.is_linked,
            free_port=free_port(self._address),
            stood_by=stood_by,
        )
        self._say(host_service_pb2.JoinRequest(worker_started=started))
        slot.watch()

    def _say(self, message: host_service_pb2.JoinRequest) -> None:
        self._put(message.SerializeToString())

    def _say_of(self, start_id: int, message: bytes) -> None:
        """Sends what one worker says, or nothing of a worker before the present one."""
        with self._speaking:
            if self._slot is not None and self._slot.start_id == start_id:
                self._put(message)

    def _put(self, message: bytes) -> None:
        while not self.over.is_set():
            try:
                self._outbox.put(message, timeout=_BEAT_S)
            except queue.Full:
                continue
            return

    def _beat(self) -> None:
        log, waiting_s = structlog.get_logger(), 0.0
        while not self.over.wait(_BEAT_S):
            slot, workers = self._slot, self._workers
            waiting_s += _BEAT_S if workers is not None and slot is None else 0.0
            # The first worker has the machine to itself; where none is asked for, this host stands by.
            if workers is not None and (slot is not None or waiting_s > _STANDS_BY_S):
                try:
                    workers.start_spares()
                    if slot is not None:
                        slot.trim()
                except Exception:  # whatever it is, the host lives
                    log.exception("the agent stumbled")
            arriving = slot.arriving if slot is not None else (0, 0)
            beat = host_service_pb2.HostHeartbeat(
                worker_cpu_ticks=slot.cpu_ticks if slot is not None else 0,
                spare_ready=workers is not None and workers.spare_ready,
                arriving_call_id=arriving[0],
                arrived_bytes=arriving[1],
            )
            self._say(host_service_pb2.JoinRequest(heartbeat=beat))

    def leave(self) -> None:
        """Says, after all else, that the host leaves."""
        leaving = host_service_pb2.JoinRequest(leaving=host_service_pb2.Leaving())
        with suppress(queue.Full):
            self._outbox.put(leaving.SerializeToString(), timeout=_LEAVE_S)

    def fall_silent(self) -> None:
        """Says nothing more; nobody waits any longer for others to take what is said."""
        self.over.set()

    def end(self) -> None:
        """Ends the worker, and says nothing more."""
        self.fall_silent()
        if self._slot is not None:
            self._slot.close()
        with suppress(queue.Empty):  # whoever sends takes from it too
            while True:
                self._outbox.get_nowait()
        self._outbox.put(None)
