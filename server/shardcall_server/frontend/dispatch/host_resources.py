"""Host resources of the front end: memory of calls, shared segments and the table of resident arrays."""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from shardcall_core.wire.token_fields import PrincipalLimits, no_limits
from shardcall_server.frontend.files.checkpoint_folder import CheckpointFolder
from shardcall_server.frontend.memory.arena import Arena
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.memory.call_buffers import BufferAllocator
from shardcall_server.frontend.memory.lease_timer import LeaseTimer
from shardcall_server.frontend.memory.open_file import OpenFile
from shardcall_server.frontend.memory.resident_array_table import ResidentArray, ResidentArrayTable
from shardcall_server.frontend.memory.segment_broker import make_segment_broker
from shardcall_server.frontend.memory.segments import SegmentTable
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_server.host_memory import memory_bytes
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2


class HostResources:
    """Creates and closes the host resources, and frees memory that has not been used for a while.

    Args:
        session: returns the current session of the mesh; None if there is none.
        limits_of: returns the present limits of a principal in the token file.
        checkpoints: the checkpoints of arrays with names; None for none.

    Attributes:
        budget: the memory budget of regions and segments.
        arena: the memory of calls.
        segments: the memory that clients share.
        segment_broker: passes segments to their clients; None if segments are disabled.
        array_table: the resident arrays.
        buffer_allocator: allocates the buffers of calls.
    """

    def __init__(
        self,
        settings: Settings,
        budget: MemoryBudget,
        session: Callable[[], MeshSession | None],
        limits_of: Callable[[str], PrincipalLimits] = no_limits,
        checkpoints: CheckpointFolder | None = None,
        suspicion: Callable[[ResidentArray], str] = lambda _: "",
    ) -> None:
        self._session = session
        self._trim_after_s = settings.trim_after_s
        self._ended = threading.Event()  # ends the thread
        self._deletions = 0
        memory_ids = self._memory_ids = itertools.count(1).__next__
        self.budget = budget
        self.arena = Arena(self.budget, memory_ids, self._detach)
        self.segments = SegmentTable(self.budget, settings.max_segment_bytes, memory_ids, self._detach)
        self.segment_broker = make_segment_broker() if settings.segments else None
        self.array_table = ResidentArrayTable(
            partial(_max_resident_bytes, settings, session),
            settings.max_resident_bytes_per_lease,
            settings.lease_s,
            self._delete,
            max_client_bytes=settings.max_resident_bytes_per_client,
            max_arrays=settings.max_resident_arrays,
            limits_of=limits_of,
            checkpoints=checkpoints,
            suspicion=suspicion,
        )
        self.buffer_allocator = BufferAllocator(self.arena, self.segments)
        self._lease_timer = LeaseTimer(self.array_table)
        self._trimmer = threading.Thread(target=self._trim, name="trim", daemon=True)
        self._trimmer.start()

    def close(self) -> None:
        """Releases all resources, after the mesh has ended."""
        self._ended.set()
        self._lease_timer.close()
        if self.segment_broker is not None:
            self.segment_broker.close()
        self.segments.close()
        self.arena.drop(self.arena.idle_bytes)

    def open_file(self, fd: int, path: str, *, is_written: bool = False, marker: str = "") -> OpenFile:
        """Returns a file on disk for commands to the workers; its caller is its first user.

        Args:
            path: its path below the folder of all files.
            is_written: whether the workers write to it.
            marker: the name of a file in it, if it is a directory, by which other hosts recognize it; empty for none.
        """
        return OpenFile(self._memory_ids(), fd, path, self._detach, is_written=is_written, marker=marker)

    def _detach(self, memory_id: int) -> None:
        if (session := self._session()) is not None:
            session.detach(memory_id)

    def _delete(self, resident_arrays: Sequence[ResidentArray]) -> None:
        self._deletions += 1
        session = self._session()
        if session is not None:
            array_ids = [resident.array_id for resident in resident_arrays if resident.epoch == session.epoch]
            session.notify(link_pb2.FrontEndMessage(delete_arrays=link_pb2.DeleteArrays(array_ids=array_ids)))

    def _trim(self) -> None:
        """Frees idle regions, and after a while without calls also the free memory of the allocators."""
        seen, trimmed_at = 0, 0
        while not self._ended.wait(self._trim_after_s):
            self.arena.drop_unused_since(time.monotonic() - self._trim_after_s)
            happened = self.buffer_allocator.calls + self._deletions
            if happened == seen != trimmed_at:
                trimmed_at = happened
                ctypes.CDLL(None).malloc_trim(0)
                if (session := self._session()) is not None:
                    session.notify(link_pb2.FrontEndMessage(trim=link_pb2.Trim()))
            seen = happened


def _max_resident_bytes(settings: Settings, session: Callable[[], MeshSession | None]) -> int:
    """Returns the limit of resident arrays in bytes; devices that share the host's memory leave half of it to calls."""
    if settings.max_resident_bytes:
        return settings.max_resident_bytes
    present = session()
    device_bytes = present.device_bytes if present else 0
    max_bytes = device_bytes * 7 // 8 or memory_bytes() // 2
    return min(max_bytes, settings.max_device_bytes or max_bytes)
