"""Agent of a host: joins a server's mesh, and joins again when the connection is lost."""

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

from shardcall.v1 import server_info_service_pb2
from shardcall_core.access.addresses import Address
from shardcall_core.access.channel import open_channel
from shardcall_core.access.handshake import explain
from shardcall_core.access.option_names import as_options
from shardcall_core.access.tls import Tls
from shardcall_core.access.token import Token
from shardcall_core.versions import build_version
from shardcall_core.wire.chunk_codec import Chunk, decode
from shardcall_core.wire.metadata import AUTHORIZATION_KEY
from shardcall_server.agent.array_files import HostFolder
from shardcall_server.agent.host_addresses import address_towards, free_port
from shardcall_server.agent.worker_slot import WorkerSlot
from shardcall_server.frontend.hosts.pieces import MESSAGE_BYTES
from shardcall_server.frontend.workers.process import WorkerProcess
from shardcall_server.frontend.workers.workers import Workers
from shardcall_worker.v1 import host_service_pb2

_METHOD = "/shardcall_worker.v1.HostService/Join"
_RESPONSE: Any = host_service_pb2.JoinResponse
_HEARTBEAT_S = 1.0
_EXCHANGE_S = 10.0  # for a server on this host to issue a session token
_STANDBY_S = 10.0
_MAX_QUEUED = 16  # messages of at most a chunk each
_BACK_OFF_S = (0.2, 0.5, 1.0, 2.0)
_LOG_EVERY = 30  # attempts, two seconds apart
_LEAVE_S = 1.0  # for the server to receive that this host leaves
_PERMANENT = {  # the next attempt would fail in the same manner
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
}


class AgentRefusedError(Exception):
    """The server refuses this host; the message gives the reason and the remedy."""


@dataclass(frozen=True)
class AgentSettings:
    """Settings of an agent.

    Attributes:
        server: the address at which hosts join.
        tls: the encryption of the connection; None for a plain one.
        find_token: returns the token for the server; the token file may be created or changed at any time.
        name: the name of this host.
        address: the address at which the other hosts reach this one; empty for that from which it reaches the server.
        devices: number of virtual CPU devices; 0 for the platform's devices.
        program_dir: the directory of compiled programs; empty for none.
        array_dir: the folder of the server's files on this host; empty for none.
        shared_memory: whether memory may be shared with a server on this host.
        log_level: the lowest level that is logged.
    """

    server: Address
    tls: Tls | None
    find_token: Callable[[], Token]
    name: str
    address: str
    devices: int
    program_dir: str
    array_dir: str
    shared_memory: bool
    log_level: str


class Agent:
    """Joins, starts and stops workers for the front end, and joins again when the connection is lost."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._ended = threading.Event()  # set by `stop`: the host does not join again
        self._call: Any = None
        self._join_stream: JoinStream | None = None
        self._workers: Workers | None = None
        self._last_error = ""  # of the last attempt to reach the server

    def stop(self) -> None:
        """Makes `run` return soon, after the server is informed that the host leaves. Signal handlers may call it."""
        threading.Thread(target=self._leave, name="leave", daemon=True).start()

    def _leave(self) -> None:
        self._ended.set()  # on a thread: a signal handler may run while the main thread holds the event's lock
        join_stream, call = self._join_stream, self._call
        if join_stream is not None:
            join_stream.leave()
            join_stream.closed.wait(_LEAVE_S)
        if call is not None:
            call.cancel()

    def run(self) -> None:
        """Takes part in the mesh until `stop` is called.

        Raises:
            AgentRefusedError: the server refuses this host.
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
        """Takes part in the mesh as long as the connection lasts; returns whether the host joined.

        Args:
            attempts: number of failed attempts before this one.
        """
        log = structlog.get_logger()
        try:  # each time: after a loss of the network the address may change
            address = self._settings.address or address_towards(self._settings.server)
        except OSError as error:
            if attempts % _LOG_EVERY == 0:
                log.info("the server is unreachable at present; trying again", reason=str(error))
            return False
        if not free_port(address):
            if attempts % _LOG_EVERY == 0:
                log.warning("this host cannot listen at its address; trying again", address=address)
            return False
        join_stream = self._join_stream = JoinStream(self._settings, address, self._make_workers)
        join: Any = channel.stream_stream(_METHOD, None, partial(decode, _RESPONSE))
        token = self._settings.find_token()
        shown = token.show(_EXCHANGE_S)
        metadata = ((AUTHORIZATION_KEY, f"Bearer {shown}"),) if shown else ()
        self._call = join(join_stream.outgoing(), metadata=metadata, wait_for_ready=False)
        if not self._call.add_callback(join_stream.stop_sending):
            join_stream.stop_sending()
        if self._ended.is_set():  # set before there was a call to cancel
            self._call.cancel()
        try:
            for message in self._call:
                join_stream.handle(message)
        except grpc.RpcError as error:
            if (
                error.code() is grpc.StatusCode.UNAUTHENTICATED
                and self._settings.find_token().show(_EXCHANGE_S) != shown
            ):
                return False  # the file was written while the call was in progress
            self._explain(error, attempts, token, joined=join_stream.welcome)
        except Exception:  # such as a lack of memory or processes; a new worker may succeed
            log.exception("the agent failed; joining again")
            self._call.cancel()
        finally:
            join_stream.close()
            self._call = self._join_stream = None
        return join_stream.welcome

    def _explain(self, error: Any, attempts: int, token: Token, *, joined: bool) -> None:
        code, details = error.code(), error.details()
        if self._ended.is_set():
            return
        if code is grpc.StatusCode.UNIMPLEMENTED:
            raise AgentRefusedError(
                f"the server at {self._settings.server.target} accepts no hosts; a server started with --hosts accepts "
                "them at its --hosts-port, 8471 by default, which it logs"
            )
        if code in _PERMANENT:
            is_unauthorized = code in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
            raise AgentRefusedError(f"{details}; {token.advice}" if is_unauthorized else details)
        log = structlog.get_logger()
        if joined:
            log.warning("the connection to the server ended; joining again", reason=details)
            self._last_error = ""
            return
        at = self._settings.server.target
        why = as_options(explain(details or "", self._settings.server, self._settings.tls))
        if why and why != self._last_error:
            log.warning("the server cannot be joined; trying again", at=at, reason=why)
        elif not why and attempts % _LOG_EVERY == 0:
            log.info("no server accepts this host at present; trying again", at=at, reason=details)
        self._last_error = why

    def _make_workers(self, platform: str, *, keep_spare: bool) -> Workers:
        """Returns the workers of this host, whose spare outlives the connection."""
        if self._workers is None:
            device_platform = platform or ("cpu" if self._settings.devices else "")
            self._workers = Workers(device_platform, self._settings.log_level, keep_spare=keep_spare)
        return self._workers


class JoinStream:
    """One stream of `Join`: the messages between this agent and the server.

    Args:
        address: the address at which the other hosts reach this one.
        make_workers: returns the source of worker processes.

    Attributes:
        closed: set when the stream has ended.
    """

    def __init__(self, settings: AgentSettings, address: str, make_workers: Any) -> None:
        self._settings = settings
        self._address = address
        self._make_workers = make_workers
        self._outbox: queue.Queue[bytes | None] = queue.Queue(_MAX_QUEUED)
        # Guards the current worker. Its messages are queued under it, which may wait until the server reads.
        self._slot_lock = threading.Lock()
        self._slot: WorkerSlot | None = None
        self._workers: Workers | None = None
        self.closed = threading.Event()  # set when nothing more is to be sent
        self.welcome = False
        """True once the server has accepted this host."""
        threading.Thread(target=self._send_heartbeats, name="heartbeat", daemon=True).start()

    def outgoing(self) -> Iterator[bytes]:
        """Yields the messages for the server."""
        hello = host_service_pb2.Hello(
            name=self._settings.name,
            address=self._address,
            devices=self._settings.devices,
            versions=server_info_service_pb2.Versions(
                shardcall=build_version(), jax=version("jax"), jaxlib=version("jaxlib")
            ),
        )
        yield host_service_pb2.JoinRequest(hello=hello).SerializeToString()
        while (message := self._outbox.get()) is not None:
            yield message

    def handle(self, message: host_service_pb2.JoinResponse | Chunk) -> None:
        """Handles a message of the server."""
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
                    slot.kill()
            case "open_file":
                if slot is not None and slot.start_id == message.open_file.start_id:
                    slot.open_file(message.open_file)
            case "command":
                if slot is not None and slot.start_id == message.command.start_id:
                    slot.take_command(message.command)
            case _:
                raise ValueError(f"the server sent a message that shardcall {build_version()} does not know")

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
        folder = HostFolder(self._settings.array_dir, self._settings.name)
        slot = WorkerSlot(process, start, self._settings.program_dir, folder, partial(self._send_from, start.start_id))
        with self._slot_lock:
            self._slot = slot
        started = host_service_pb2.WorkerStarted(
            start_id=start.start_id,
            pid=slot.pid,
            is_linked=slot.is_linked,
            free_port=free_port(self._address),
            stood_by=stood_by,
        )
        self._send(host_service_pb2.JoinRequest(worker_started=started))
        slot.watch()

    def _send(self, message: host_service_pb2.JoinRequest) -> None:
        self._put(message.SerializeToString())

    def _send_from(self, start_id: int, message: bytes) -> None:
        """Sends a message of the current worker; drops those of earlier ones."""
        with self._slot_lock:
            if self._slot is not None and self._slot.start_id == start_id:
                self._put(message)

    def _put(self, message: bytes) -> None:
        while not self.closed.is_set():
            try:
                self._outbox.put(message, timeout=_HEARTBEAT_S)
            except queue.Full:
                continue
            return

    def _send_heartbeats(self) -> None:
        log, waiting_s = structlog.get_logger(), 0.0
        while not self.closed.wait(_HEARTBEAT_S):
            slot, workers = self._slot, self._workers
            waiting_s += _HEARTBEAT_S if workers is not None and slot is None else 0.0
            # No spare competes with the start of the first worker; without one, this host is on standby.
            if workers is not None and (slot is not None or waiting_s > _STANDBY_S):
                try:
                    workers.start_spares()
                    if slot is not None:
                        slot.trim()
                except Exception:  # heartbeats must continue
                    log.exception("the agent's periodic work failed")
            arriving = slot.arriving if slot is not None else (0, 0)
            heartbeat = host_service_pb2.HostHeartbeat(
                worker_cpu_ticks=slot.cpu_ticks if slot is not None else 0,
                spare_ready=workers is not None and workers.spare_ready,
                arriving_call_id=arriving[0],
                arrived_bytes=arriving[1],
            )
            self._send(host_service_pb2.JoinRequest(heartbeat=heartbeat))

    def leave(self) -> None:
        """Sends the last message, that the host leaves."""
        leaving = host_service_pb2.JoinRequest(leaving=host_service_pb2.Leaving())
        with suppress(queue.Full):
            self._outbox.put(leaving.SerializeToString(), timeout=_LEAVE_S)

    def stop_sending(self) -> None:
        """Drops all further messages and wakes threads that wait to send."""
        self.closed.set()

    def close(self) -> None:
        """Kills the worker and ends the call."""
        self.stop_sending()
        if self._slot is not None:
            self._slot.close()
        with suppress(queue.Empty):  # gRPC's thread takes messages too
            while True:
                self._outbox.get_nowait()
        self._outbox.put(None)
