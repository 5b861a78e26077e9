"""What the front end holds for its clients: memory of calls, shared memory, arrays on the mesh."""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from shardcall_server.frontend.memory.arena import Arena
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.memory.call_buffers import BufferAllocator
from shardcall_server.frontend.memory.resident_array_table import LeaseTimer, ResidentArray, ResidentArrayTable
from shardcall_server.frontend.memory.segment_broker import make_segment_broker
from shardcall_server.frontend.memory.segments import SegmentTable
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_server.host_memory import memory_bytes
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2


class HostResources:
    """Makes and ends all of it, and gives back what has not been used for a while.

    Args:
        settings: the server's.
        session: the mesh's present session; None while there is none.

    Attributes:
        budget: what regions and segments may hold.
        arena: memory of calls.
        segments: memory that clients share.
        segment_broker: hands segments to their clients; None where they are off.
        array_table: arrays on the mesh.
        buffer_allocator: makes room for a call's arrays.
    """

    def __init__(self, settings: Settings, session: Callable[[], MeshSession | None]) -> None:
        self._session = session
        self._trim_after_s = settings.trim_after_s
        self._ended = threading.Event()
        self._deletions = 0
        memory_ids = itertools.count(1).__next__
        self.budget = MemoryBudget(settings.max_bytes_in_flight, settings.max_bytes_per_client)
        self.arena = Arena(self.budget, memory_ids, self._detach)
        self.segments = SegmentTable(self.budget, settings.max_segment_bytes, memory_ids, self._detach)
        self.segment_broker = make_segment_broker() if settings.segments else None
        self.array_table = ResidentArrayTable(
            partial(_most_resident_bytes, settings, session),
            settings.max_resident_bytes_per_lease,
            settings.lease_s,
            self._delete,
            max_client_bytes=settings.max_resident_bytes_per_client,
        )
        self.buffer_allocator = BufferAllocator(self.arena, self.segments)
        self._lease_timer = LeaseTimer(self.array_table)
        self._trimmer = threading.Thread(target=self._trim, name="trim", daemon=True)
        self._trimmer.start()

    def close(self) -> None:
        """Ends it all; the mesh has ended before."""
        self._ended.set()
        self._lease_timer.close()
        if self.segment_broker is not None:
            self.segment_broker.close()
        self.segments.close()
        self.arena.drop(self.arena.idle_bytes)

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
        """Gives idle regions back, and when nothing came or went for a while, the allocators' free memory too."""
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


def _most_resident_bytes(settings: Settings, session: Callable[[], MeshSession | None]) -> int:
    """Returns the most bytes of arrays that stay; where the devices have the host's memory, half is left to calls."""
    if settings.max_resident_bytes:
        return settings.max_resident_bytes
    present = session()
    device_bytes = present.device_bytes if present else 0
    most = device_bytes * 7 // 8 or memory_bytes() // 2
    return min(most, settings.max_device_bytes or most)
