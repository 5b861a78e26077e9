"""The worker of this host: started and ended as the front end says, with memory of its own for arrays."""

from __future__ import annotations

import contextlib
import itertools
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import structlog

from shardcall._src.wire.chunk_codec import encode_chunk
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.hosts.command_arrays import operands_of, results_of
from shardcall_server.frontend.hosts.pieces import CHUNK_BYTES
from shardcall_server.frontend.memory.arena import Arena, Region
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.workers.process import WorkerProcess
from shardcall_server.host_memory import memory_bytes
from shardcall_server.link.framing import LinkClosedError, LinkFullError
from shardcall_worker.v1 import host_service_pb2, link_pb2

_REQUEST: Any = host_service_pb2.JoinRequest
_KEPT_S = 10.0  # memory is kept warm for the next command
_CONNECT_S = 2.0


class WorkerSlot:
    """One worker from its start to its end.

    Args:
        process: the worker, which waits for `Start`.
        start: what the front end said.
        program_dir: where it is to keep compiled programs; empty for nowhere.
        say: sends a `JoinRequest`, serialized, to the front end.
    """

    def __init__(
        self,
        process: WorkerProcess,
        start: host_service_pb2.StartWorker,
        program_dir: str,
        say: Callable[[bytes], None],
    ) -> None:
        self.start_id = start.start_id
        self._process = process
        self._program_dir = program_dir
        self._say = say
        self._arena = _make_arena(self._detach)
        self._attached: set[int] = set()
        self._regions: dict[int, tuple[Region, int, int]] = {}
        self._filling: tuple[link_pb2.FrontEndMessage, Region, int] | None = None
        self._arrived_bytes = 0
        self._closed = False
        self.is_linked = bool(start.socket_path) and self._hand_on(start)

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    @property
    def cpu_ticks(self) -> int:
        """The processor time that it has used, in the system's clock ticks."""
        return self._process.cpu_ticks

    def _hand_on(self, start: host_service_pb2.StartWorker) -> bool:
        """Gives the worker the front end's own socket, if it can be reached from here."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link_listener:
            link_listener.settimeout(_CONNECT_S)
            try:
                link_listener.connect(start.socket_path)
                link_listener.sendall(start.ticket)
                link_listener.settimeout(None)
                self._process.link.send(b"", link_listener.fileno())
            except OSError:  # on another host, or in another container
                return False
        return True

    def watch(self) -> None:
        """Begins to pass on what the worker says, and to wait for its end."""
        threading.Thread(target=self._follow, name="worker-end", daemon=True).start()

    def _follow(self) -> None:
        """Tells of its end after all that it has said: an answer that it gave is an answer."""
        try:
            if not self.is_linked:
                self._pass_on()
        finally:
            self._tell_end()

    def _tell_end(self) -> None:
        status = self._process.wait_status()
        ended = host_service_pb2.WorkerEnded(start_id=self.start_id, status=status)
        self._say(host_service_pb2.JoinRequest(worker_ended=ended).SerializeToString())

    def _pass_on(self) -> None:
        for body, _ in self._process.link.frames():
            message = link_pb2.WorkerMessage.FromString(body)
            if message.WhichOneof("answer") not in {"gathered", "compiling"}:
                self._give_results(message)
            if message.WhichOneof("answer") != "gathered":  # they are not where they are to go before they have gone
                self._say(host_service_pb2.JoinRequest(worker_message=body).SerializeToString())

    def _give_results(self, message: link_pb2.WorkerMessage) -> None:
        """Sends the results that belong to an answer, before it, and lets go of the command's memory."""
        kept = self._regions.pop(message.call_id, None) if message.call_id else None
        if kept is None:
            return
        region, begin, nbytes = kept
        if nbytes and not message.HasField("failure"):
            results = host_service_pb2.Results(call_id=message.call_id)
            self._say(host_service_pb2.JoinRequest(results=results).SerializeToString())
            for offset in range(0, nbytes, CHUNK_BYTES):
                size = min(CHUNK_BYTES, nbytes - offset)
                self._say(encode_chunk(_REQUEST, 0, offset, region.view(begin + offset, size)))
        region.release()
        if self._closed:
            self._arena.drop_unused_since(math.inf)

    def take_command(self, command: host_service_pb2.HostCommand) -> None:
        """Passes a command on, as soon as its operands are there."""
        message = link_pb2.FrontEndMessage.FromString(command.front_end_message)
        if message.HasField("start"):
            message.start.program_dir = self._program_dir
        nbytes = max(command.operand_bytes, command.result_begin + command.result_bytes)
        if not nbytes:
            self._send(message)
            return
        region = self._make_room(nbytes)
        if region is None:
            return
        self._regions[message.call_id] = region, command.result_begin, command.result_bytes
        for span in _spans(message):
            span.memory_id = region.memory_id
        if region.memory_id not in self._attached:
            attach = link_pb2.AttachMemory(memory_id=region.memory_id, size_bytes=region.nbytes)
            self._send(link_pb2.FrontEndMessage(attach_memory=attach), region.fd)
            self._attached.add(region.memory_id)
        if command.operand_bytes:
            self._filling, self._arrived_bytes = (message, region, command.operand_bytes), 0
        else:
            self._send(message)

    def _make_room(self, nbytes: int) -> Region | None:
        """Memory for a command; where there is none, the mesh cannot go on, for others may have begun with it."""
        region = None
        try:
            region = self._arena.acquire("", nbytes)
            region.reserve(nbytes, lambda: None)
        except CallError as error:
            if region is not None:
                region.release()
            failure = link_pb2.Failure(reason=Reason.INTERNAL.value, message=error.message)
            answer = link_pb2.WorkerMessage(failure=failure).SerializeToString()
            self._say(host_service_pb2.JoinRequest(worker_message=answer).SerializeToString())
            return None
        return region

    @property
    def arriving(self) -> tuple[int, int]:
        """The command whose operands are arriving, and how many bytes of them have; zeros for none."""
        filling = self._filling
        return (filling[0].call_id, self._arrived_bytes) if filling is not None else (0, 0)

    def take_chunk(self, offset: int, data: np.ndarray) -> None:
        """Takes a part of the operands of the command before it."""
        if self._filling is None:
            return
        message, region, end = self._filling
        np.copyto(region.view(offset, data.size), data)
        self._arrived_bytes = offset + data.size
        if offset + data.size == end:
            self._filling = None
            self._send(message)

    def _send(self, message: link_pb2.FrontEndMessage, fd: int | None = None) -> None:
        try:
            self._process.link.send(message.SerializeToString(), fd)
        except LinkClosedError:  # its end is told by whoever waits for it
            pass
        except LinkFullError:
            structlog.get_logger().error("the worker does not read its link and is ended", pid=self.pid)
            self.end()

    def _detach(self, memory_id: int) -> None:
        if memory_id in self._attached:
            self._attached.remove(memory_id)
            detach = link_pb2.DetachMemory(memory_id=memory_id)
            self._send(link_pb2.FrontEndMessage(detach_memory=detach))

    def trim(self) -> None:
        """Lets go of memory that was not used for a while."""
        self._arena.drop_unused_since(time.monotonic() - _KEPT_S)

    def end(self) -> None:
        """Ends the worker at once."""
        with contextlib.suppress(OSError):
            self._process.kill()

    def close(self) -> None:
        """Ends the worker at once, and lets go of its memory: no command or chunk comes afterwards."""
        self.end()
        self._filling = None
        self._closed = True
        while self._regions:
            with contextlib.suppress(KeyError):  # the thread that gives results had it first
                self._regions.popitem()[1][0].release()
        self._arena.drop_unused_since(math.inf)


def _make_arena(on_gone: Callable[[int], None]) -> Arena:
    limit = memory_bytes()
    return Arena(MemoryBudget(limit, limit), itertools.count(1).__next__, on_gone)


def _spans(message: link_pb2.FrontEndMessage) -> Iterator[link_pb2.MemorySpan]:
    """The places in memory that a command names."""
    places: list[link_pb2.TensorData | link_pb2.ResultDestination] = [*operands_of(message), *results_of(message)]
    return (place.blocks for place in places if place.HasField("blocks"))
