"""The lease under which a client's arrays stay on the mesh."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from shardcall._src.device_arrays.array_version import ArrayVersion
from shardcall._src.device_arrays.remote_array import RemoteArray, find_object
from shardcall._src.rpc.threads import is_running, start_thread, surviving
from shardcall_core.locks import check_held, lock
from shardcall_core.wire.forks import begin_anew_in_children

LEASE_ID_BYTES = 32
_RENEWALS = 4
_COLLECTION_S = 0.25

Renew = Callable[[bytes], object]
Delete = Callable[..., object]
"""Deletes arrays by their handles; with ``replaced_by``, once the call that makes the array of this handle succeeds."""


@dataclass
class _LeasedArray:
    """An array under a lease.

    Attributes:
        waking: the reference that wakes the lease's thread when the array is dropped.
        version: returns the array, while the caller has an object of it.
        listed_at: the number of the last call that had begun when the array first appeared in a list; the answer of
            that call, or of one before it, may still return it to a caller. 0 after an answer has returned it.
    """

    waking: weakref.ref[ArrayVersion] | None
    version: Callable[[], ArrayVersion | None]
    listed_at: int = 0


class Lease:
    """A client's lease and the arrays under it; safe to use from several threads at once.

    While there are arrays a thread renews the lease, four times as often as required, and deletes the arrays whose
    objects the caller has dropped, some time after the first of them. A forked child has a lease of its own, and does
    not touch its parent's arrays.

    Args:
        seconds: the duration of the lease after a renewal.
        renew: renews the lease of an id.
        delete: deletes arrays by their handles.
        replacement_of: returns what `PendingCalls.replacement_of` does.
        collection_s: the seconds after which the array of a dropped object is deleted, together with others.
    """

    def __init__(
        self,
        seconds: float,
        renew: Renew,
        delete: Delete,
        replacement_of: Callable[[bytes], bytes | None] = lambda _: b"",
        collection_s: float = _COLLECTION_S,
    ) -> None:
        self.renew_within(seconds)
        self._replacement_of = replacement_of
        self._collection_s = collection_s
        self._renew = renew
        self._delete = delete
        self._closed = False
        self.begin_anew()
        begin_anew_in_children(self)

    def renew_within(self, seconds: float) -> None:
        """Renews the lease by another duration from the next renewal on."""
        self._interval_s = seconds / _RENEWALS

    def begin_anew(self) -> None:
        """Starts a new lease without arrays."""
        self.lease_id = os.urandom(LEASE_ID_BYTES)
        self._lock = lock("the lock of the lease")  # guards all of these but `_lost`; objects are made under it
        self._arrays: dict[bytes, _LeasedArray] = {}
        self._dying: set[bytes] = set()  # no longer in `_arrays`: their deletion is in progress
        self._awaited: set[bytes] = set()  # those that have to replace them
        self._begun = 0
        self._making: set[int] = set()
        self._thread: threading.Thread | None = None
        self._deletion_ended = threading.Condition(self._lock)
        self.deletions = 0
        """The number of deletions of dropped arrays that have ended."""
        self._lost: SimpleQueue[bytes] = SimpleQueue()  # the handles of the objects that the caller has dropped
        self._unchecked: set[bytes] = set()  # those that have been read from `_lost`
        self._wakes: SimpleQueue[object] = SimpleQueue()  # an item for each dropped object, and one of `close`
        self._closing = threading.Event()  # set by `close`
        if self._closed:
            self._closing.set()

    @contextmanager
    def making(self) -> Iterator[None]:
        """Marks a call that makes arrays until `hold` has registered them; a list shows them as dropped before."""
        with self._lock:
            self._begun += 1
            number = self._begun
            self._making.add(number)
        try:
            yield
        finally:
            with self._lock:
                self._making.discard(number)

    def hold(self, handle: bytes, make: Callable[[], RemoteArray]) -> RemoteArray:
        """Returns the array of a handle in an answer, the same object as long as the caller has it.

        Args:
            handle: the handle of an array under this lease.
            make: makes the object if there is none.
        """
        with self._lock:
            return self._hold(handle, make, 0)

    def hold_listed(self, handle: bytes, make: Callable[[], RemoteArray]) -> RemoteArray | None:
        """Returns the array of a handle in a list, as `hold`; None if it is being deleted."""
        with self._lock:
            if handle in self._dying:
                return None
            leased = self._arrays.get(handle)
            return self._hold(handle, make, self._begun if leased is None else leased.listed_at)

    def add(self, versions: Sequence[ArrayVersion]) -> None:
        """Adds arrays that calls will make."""
        with self._lock:
            for version in versions:
                self._add(version.handle, version, 0)

    def _hold(self, handle: bytes, make: Callable[[], RemoteArray], listed_at: int) -> RemoteArray:
        leased = self._arrays.get(handle)
        version = leased.version() if leased is not None else None
        array = make() if version is None else find_object(version)
        self._add(handle, array._version, listed_at)
        return array

    def _add(self, handle: bytes, version: ArrayVersion, listed_at: int) -> None:
        check_held(self._lock)
        # No Python code runs when an object is dropped, which may happen anywhere: a Ctrl-C in it would be ignored, and
        # it must wait for no lock. The argument that follows, the reference, means nothing to a queue without a limit.
        # The thread does not wait for `_lost` itself: from Python 3.13 on a queue hands an item to the thread that
        # waits, and until that runs no other would find the handle. Of two references the later one is called first.
        waking = weakref.ref(version, self._wakes.put)
        lost = weakref.ref(version, partial(self._lost.put, handle))
        self._arrays[handle] = _LeasedArray(waking, lost, listed_at)
        if not is_running(self._thread) and not self._closing.is_set():
            self._thread = start_thread("shardcall-lease", self._renew_periodically)

    def holds(self, handle: bytes) -> bool:
        """Returns True if an array is under this lease."""
        with self._lock:
            return handle in self._arrays

    def find(self, handle: bytes) -> RemoteArray | None:
        """Returns the object of an array; None if the caller has none, or the array is not under this lease."""
        with self._lock:
            leased = self._arrays.get(handle)
        version = None if leased is None else leased.version()
        return None if version is None else find_object(version)

    def delete_dropped(self, delete: Delete) -> bool:
        """Deletes the arrays whose objects the caller has dropped; returns True if there were any.

        Raises:
            ShardcallError: as ``delete`` raises it; the arrays are then deleted later.
        """
        if not self._unchecked and self._lost.empty():
            return False
        groups: dict[bytes, list[bytes]] = {}
        with self._lock:
            for handle, replaced_by in (replacements := self._dropped()).items():
                groups.setdefault(replaced_by, []).append(handle)
            dropped = {handle: self._arrays.pop(handle) for handle in replacements}
            self._dying.update(dropped)
            self._awaited.update(groups)
        try:
            for replaced_by in sorted(groups, reverse=True):  # what they name is deleted after them
                handles = groups[replaced_by]
                delete(handles, replaced_by=replaced_by) if replaced_by else delete(handles)
        except BaseException:
            with self._lock:
                self._arrays.update(dropped)
                self._unchecked.update(dropped)
            raise
        finally:
            with self._lock:
                self._dying.difference_update(dropped)
                self._awaited.difference_update(groups)
                self.deletions += bool(dropped)
                self._deletion_ended.notify_all()
        return bool(dropped)

    def wait_deleted(self, since: int, timeout_s: float) -> bool:
        """Returns True if dropped arrays were deleted; waits for a deletion that another thread has begun.

        Args:
            since: an earlier value of `deletions`.
            timeout_s: the limit of the wait in seconds.
        """
        with self._lock:
            self._deletion_ended.wait_for(lambda: self.deletions > since or not self._dying, timeout_s)
            return self.deletions > since

    def release(self, handles: Iterable[bytes]) -> list[ArrayVersion]:
        """Removes arrays that are no longer on the mesh; returns those that the caller still has."""
        with self._lock:
            released = [self._arrays.pop(handle) for handle in handles if handle in self._arrays]
        return _alive(released)

    def drop(self, handles: Iterable[bytes]) -> None:
        """Has arrays deleted whose objects stand for others now."""
        with self._lock:
            for handle in handles:
                if (leased := self._arrays.get(handle)) is not None:
                    leased.version = _no_version
                    self._unchecked.add(handle)

    def keep(self, handle: bytes, version: ArrayVersion | None) -> None:
        """Keeps an array while an object of it exists, or this one; None deletes what has no object."""
        with self._lock:
            if version is None:
                self._arrays.setdefault(handle, _LeasedArray(None, _no_version))
                self._unchecked.add(handle)
                return
            before = self._arrays.get(version.handle)  # which it has got where its call was sent again
            self._add(version.handle, version, 0)
            if before is not None:
                one, other = before.version, self._arrays[version.handle].version
                self._arrays[version.handle].version = lambda: one() or other()

    def close(self) -> tuple[list[bytes], list[ArrayVersion]]:
        """Stops the thread; returns the handles of all arrays, and those that the caller still has."""
        self._closed = True
        self._closing.set()
        self._wakes.put(None)
        with self._lock:
            held, self._arrays = self._arrays, {}
        return list(held), _alive(held.values())

    def _dropped(self) -> dict[bytes, bytes]:
        """Returns the arrays to delete and, for each, the one that must have replaced it; empty if none has to."""
        with contextlib.suppress(Empty):
            while True:
                self._unchecked.add(self._lost.get_nowait())
        oldest = min(self._making, default=math.inf)
        dropped, unchecked = dict[bytes, bytes](), set[bytes]()
        for handle in self._unchecked:
            if (leased := self._arrays.get(handle)) is not None and leased.version() is None:
                replaced_by = self._replacement_of(handle) if leased.listed_at < oldest else None
                # The server must not delete first what has replaced an array: it would not know that it was there.
                is_there = not replaced_by or replaced_by in self._arrays
                if replaced_by is None or not is_there or handle in self._awaited:
                    unchecked.add(handle)
                else:
                    dropped[handle] = replaced_by
        self._unchecked = unchecked
        return dropped

    def _renew_periodically(self) -> None:
        while self._wait_for_round():
            with self._lock:
                dropped = self._dropped()
                self._unchecked.update(dropped)
                is_last = len(dropped) == len(self._arrays)
                if is_last:
                    self._thread = None
            # Tried again in the next round if the server cannot be reached, else when the lease expires.
            with surviving():
                self.delete_dropped(self._delete)
                if not is_last:
                    self._renew(self.lease_id)
            if is_last:
                return

    def _wait_for_round(self) -> bool:
        """Waits until the lease is due, deleting dropped arrays meanwhile; returns False if it was closed."""
        due = time.monotonic() + self._interval_s
        while (left_s := due - time.monotonic()) > 0 and not self._closing.is_set():
            with contextlib.suppress(Empty):
                self._wakes.get(timeout=left_s)
                self._closing.wait(min(self._collection_s, left_s))
                while self._wakes.qsize():  # before the handles are read
                    self._wakes.get()
                if not self._closing.is_set():
                    with surviving():  # tried again in the next round
                        self.delete_dropped(self._delete)
        return not self._closing.is_set()


def _no_version() -> None:
    """Returns None, for an array without an object."""


def _alive(held: Iterable[_LeasedArray]) -> list[ArrayVersion]:
    return [version for one in held if (version := one.version()) is not None]
