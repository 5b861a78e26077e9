"""The worker of this host, which the front end starts and stops, with memory for relayed arrays."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import structlog

from shardcall_core.call_error import CallError, Reason
from shardcall_core.wire.chunk_codec import encode_chunk
from shardcall_server.agent.array_files import HostFolder
from shardcall_server.frontend.hosts.command_arrays import operands_of, results_of
from shardcall_server.frontend.hosts.pieces import CHUNK_BYTES
from shardcall_server.frontend.memory.arena import Arena, Region
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.workers.process import WorkerProcess
from shardcall_server.host_memory import memory_bytes
from shardcall_server.link.failures import encode_failure
from shardcall_server.link.framing import LinkClosedError, LinkFullError
from shardcall_worker.v1 import host_service_pb2, link_pb2

_REQUEST: Any = host_service_pb2.JoinRequest
_TRIM_AFTER_S = 10.0  # memory is retained for the next command
_CONNECT_S = 2.0
_FIRST_MEMORY_ID = 1 << 63  # those below are of the front end, for files on disk


class WorkerSlot:
    """One worker from its start to its end.

    Args:
        process: the worker, which waits for `Start`.
        start: the front end's message.
        program_dir: the directory of compiled programs; empty for none.
        folder: the files of arrays.
        send: sends a serialized `JoinRequest` to the front end.
    """

    def __init__(
        self,
        process: WorkerProcess,
        start: host_service_pb2.StartWorker,
        program_dir: str,
        folder: HostFolder,
        send: Callable[[bytes], None],
    ) -> None:
        self.start_id = start.start_id
        self._process = process
        self._program_dir = program_dir
        self._folder = folder
        self._send_request = send
        self._arena = _make_arena(self._detach)
        self._attached: set[int] = set()
        self._regions: dict[int, tuple[Region, int, int]] = {}
        self._filling: tuple[link_pb2.FrontEndMessage, Region, int] | None = None
        self._arrived_bytes = 0
        self._closed = False
        self.is_linked = bool(start.socket_path) and self._pass_link(start)

    @property
    def pid(self) -> int:
        """The process id of the worker."""
        return self._process.pid

    @property
    def cpu_ticks(self) -> int:
        """The CPU time used by the worker, in clock ticks of the system."""
        return self._process.cpu_ticks

    def _pass_link(self, start: host_service_pb2.StartWorker) -> bool:
        """Passes the front end's own socket to the worker, if it can be reached from here."""
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
        """Starts to forward the worker's messages and to wait for its exit."""
        threading.Thread(target=self._follow, name="worker-exit", daemon=True).start()

    def _follow(self) -> None:
        """Reports the worker's exit after all its messages, so that no answer is lost."""
        try:
            if not self.is_linked:
                self._forward()
        finally:
            self._report_exit()

    def _report_exit(self) -> None:
        ended = host_service_pb2.WorkerEnded(
            start_id=self.start_id, status=self._process.wait_status(), out_of_memory=self._process.out_of_memory
        )
        self._send_request(host_service_pb2.JoinRequest(worker_ended=ended).SerializeToString())

    def _forward(self) -> None:
        for body, _ in itertools.chain.from_iterable(self._process.link.batches()):
            message = link_pb2.WorkerMessage.FromString(body)
            if message.WhichOneof("answer") not in {"gathered", "compiling"}:
                self._send_results(message)
            if message.WhichOneof("answer") != "gathered":  # the front end counts the chunks that it receives
                self._send_request(host_service_pb2.JoinRequest(worker_message=body).SerializeToString())

    def _send_results(self, message: link_pb2.WorkerMessage) -> None:
        """Sends the results of an answer, before it, and releases the command's memory."""
        entry = self._regions.pop(message.call_id, None) if message.call_id else None
        if entry is None:
            return
        region, begin, nbytes = entry
        if nbytes and not message.HasField("failure"):
            results = host_service_pb2.Results(call_id=message.call_id)
            self._send_request(host_service_pb2.JoinRequest(results=results).SerializeToString())
            for offset in range(0, nbytes, CHUNK_BYTES):
                size = min(CHUNK_BYTES, nbytes - offset)
                self._send_request(encode_chunk(_REQUEST, 0, offset, region.view(begin + offset, size)))
        region.release()
        if self._closed:
            self._arena.drop_unused_since(math.inf)

    def open_file(self, file: host_service_pb2.OpenFile) -> None:
        """Opens a file on disk for the worker, whose commands fail with the reason if it cannot be opened."""
        attach = link_pb2.AttachMemory(memory_id=file.memory_id)
        try:
            fd = self._folder.open(file)
        except CallError as error:
            attach.failure.CopyFrom(encode_failure(error))
            self._send(link_pb2.FrontEndMessage(attach_memory=attach))
            return
        try:
            self._send(link_pb2.FrontEndMessage(attach_memory=attach), fd)
        finally:
            os.close(fd)

    def take_command(self, command: host_service_pb2.HostCommand) -> None:
        """Forwards a command, once its operands have come."""
        message = link_pb2.FrontEndMessage.FromString(command.front_end_message)
        if message.HasField("start"):
            message.start.program_dir = self._program_dir
        nbytes = max(command.operand_bytes, command.result_begin + command.result_bytes)
        if not nbytes:
            self._send(message)
            return
        region = self._reserve(nbytes)
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

    def _reserve(self, nbytes: int) -> Region | None:
        """Returns memory for a command; without it the mesh must end, since other hosts may have begun the command."""
        region = None
        try:
            region = self._arena.acquire("", nbytes)
            region.reserve(nbytes, lambda: None)
        except CallError as error:
            if region is not None:
                region.release()
            failure = link_pb2.Failure(reason=Reason.INTERNAL.value, message=error.message)
            answer = link_pb2.WorkerMessage(failure=failure).SerializeToString()
            self._send_request(host_service_pb2.JoinRequest(worker_message=answer).SerializeToString())
            return None
        return region

    @property
    def arriving(self) -> tuple[int, int]:
        """The id of the command whose operands are arriving and the bytes that have arrived; zeros for none."""
        filling = self._filling
        return (filling[0].call_id, self._arrived_bytes) if filling is not None else (0, 0)

    def take_chunk(self, offset: int, data: np.ndarray) -> None:
        """Writes a chunk of the operands of the last command."""
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
        except LinkClosedError:  # the thread that waits for the worker reports its exit
            pass
        except LinkFullError:
            structlog.get_logger().error("the worker does not read its link and is killed", pid=self.pid)
            self.kill()

    def _detach(self, memory_id: int) -> None:
        if memory_id in self._attached:
            self._attached.remove(memory_id)
            detach = link_pb2.DetachMemory(memory_id=memory_id)
            self._send(link_pb2.FrontEndMessage(detach_memory=detach))

    def trim(self) -> None:
        """Frees memory that was not used for a while."""
        self._arena.drop_unused_since(time.monotonic() - _TRIM_AFTER_S)

    def kill(self) -> None:
        """Kills the worker at once."""
        with contextlib.suppress(OSError):
            self._process.kill()

    def close(self) -> None:
        """Kills the worker and frees its memory; no command or chunk may come afterwards."""
        self.kill()
        self._filling = None
        self._closed = True
        while self._regions:
            with contextlib.suppress(KeyError):  # the thread that sends results was first
                self._regions.popitem()[1][0].release()
        self._arena.drop_unused_since(math.inf)


def _make_arena(on_gone: Callable[[int], None]) -> Arena:
    limit = memory_bytes()
    return Arena(MemoryBudget(limit, limit), itertools.count(_FIRST_MEMORY_ID).__next__, on_gone)


def _spans(message: link_pb2.FrontEndMessage) -> Iterator[link_pb2.MemorySpan]:
    """Returns the memory spans that a command names."""
    arrays: list[link_pb2.TensorData | link_pb2.ResultDestination] = [*operands_of(message), *results_of(message)]
    return (array.blocks for array in arrays if array.HasField("blocks"))
