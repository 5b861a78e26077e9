"""The lease under which a client's arrays stay on the mesh."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.types.errors import ShardcallError
from shardcall._src.wire.forks import begin_anew_in_children

_ID_BYTES = 32
_RENEWALS = 4
_COLLECTION_S = 0.25

Renew = Callable[[bytes], object]
Delete = Callable[[list[bytes]], object]


@dataclass
class _Held:
    """An array under a lease.

    Attributes:
        array: its object, while the caller has it.
        listed_at: the number of the last call that had begun when the array was first seen in a list; the answer of
            that one, or of one before it, may still bring it to a caller. 0 once an answer has brought it.
    """

    array: weakref.ref[RemoteArray]
    listed_at: int = 0


class Lease:
    """A client's lease, and which arrays are held under it; safe to use from several threads at once.

    While there are arrays a thread renews the lease, four times as often as it must, and deletes the arrays whose
    objects the caller has lost, some time after the first of them. A forked child has a lease of its own, and lets its
    parent's arrays alone.

    Args:
        seconds: how long it lasts after a renewal.
        renew: renews the lease of an id.
        delete: deletes arrays by their handles.
        collection_s: how many seconds after an object was lost its array is deleted, together with others.
    """

    def __init__(self, seconds: float, renew: Renew, delete: Delete, collection_s: float = _COLLECTION_S) -> None:
        self._interval_s = seconds / _RENEWALS
        self._collection_s = collection_s
        self._renew = renew
        self._delete = delete
        self._closed = False
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Has a new id, and no arrays under it."""
        self.lease_id = os.urandom(_ID_BYTES)
        self._lock = threading.Lock()
        self._arrays: dict[bytes, _Held] = {}
        self._dying: set[bytes] = set()  # no longer among them: the server is being told to delete these
        self._begun = 0
        self._making: set[int] = set()
        self._thread: threading.Thread | None = None
        self._lost: SimpleQueue[None] = SimpleQueue()  # an item for each object that the caller has lost
        self._stop = threading.Event()
        if self._closed:
            self._stop.set()

    @contextmanager
    def making(self) -> Iterator[None]:
        """Around a call that makes arrays, until `hold` has been told of them: till then a list shows them as lost."""
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
        """Returns the array of a handle that an answer brought, the same object as long as the caller has it.

        Args:
            handle: of an array under this lease.
            make: makes the object where there is none.
        """
        with self._lock:
            return self._hold(handle, make, 0)

    def hold_listed(self, handle: bytes, make: Callable[[], RemoteArray]) -> RemoteArray | None:
        """As `hold`, of an array that the server only showed; None for one that is being deleted."""
        with self._lock:
            if handle in self._dying:
                return None
            known = self._arrays.get(handle)
            return self._hold(handle, make, self._begun if known is None else known.listed_at)

    def _hold(self, handle: bytes, make: Callable[[], RemoteArray], listed_at: int) -> RemoteArray:
        known = self._arrays.get(handle)
        array = known.array() if known is not None else None
        if array is None:
            array = make()
        lost = self._lost
        # A weak reference calls back in the middle of anything: a put waits for no lock.
        self._arrays[handle] = _Held(weakref.ref(array, lambda _: lost.put(None)), listed_at)
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._keep, name="shardcall-lease", daemon=True)
            self._thread.start()
        return array

    def holds(self, handle: bytes) -> bool:
        """Whether an array is under this lease."""
        with self._lock:
            return handle in self._arrays

    def delete_dropped(self, delete: Delete) -> bool:
        """Deletes those arrays whose objects the caller has lost; returns whether there were any.

        Raises:
            ShardcallError: what ``delete`` raises; they are deleted another time.
        """
        with self._lock:
            dropped = {handle: self._arrays.pop(handle) for handle in self._dropped()}
            self._dying.update(dropped)
        try:
            if dropped:
                delete(list(dropped))
        except BaseException:
            with self._lock:
                self._arrays.update(dropped)
            raise
        finally:
            with self._lock:
                self._dying.difference_update(dropped)
        return bool(dropped)

    def release(self, handles: Iterable[bytes]) -> list[RemoteArray]:
        """Forgets arrays that are no longer on the mesh; returns those objects that the caller still has."""
        with self._lock:
            known = [self._arrays.pop(handle) for handle in handles if handle in self._arrays]
        return _objects(known)

    def close(self) -> tuple[list[bytes], list[RemoteArray]]:
        """Ends the thread; returns the handles of all arrays, and those objects that the caller still has."""
        self._closed = True
        self._stop.set()
        self._lost.put(None)
        with self._lock:
            held, self._arrays = self._arrays, {}
        return list(held), _objects(held.values())

    def _dropped(self) -> list[bytes]:
        oldest = min(self._making, default=math.inf)
        return [h for h, held in self._arrays.items() if held.array() is None and held.listed_at < oldest]

    def _keep(self) -> None:
        while self._wait_for_round():
            with self._lock:
                is_last = len(self._dropped()) == len(self._arrays)
                if is_last:
                    self._thread = None
            # In the next round again if the server cannot be reached; after the last they go when the lease ends.
            with contextlib.suppress(ShardcallError):
                self.delete_dropped(self._delete)
                if not is_last:
                    self._renew(self.lease_id)
            if is_last:
                return

    def _wait_for_round(self) -> bool:
        """Waits until the lease is to be renewed, deleting lost arrays meanwhile; returns False if it was closed."""
        due = time.monotonic() + self._interval_s
        while (left_s := due - time.monotonic()) > 0 and not self._stop.is_set():
            with contextlib.suppress(Empty):
                self._lost.get(timeout=left_s)
                self._stop.wait(min(self._collection_s, left_s))
                while not self._lost.empty():
                    self._lost.get_nowait()
                if not self._stop.is_set():
                    with contextlib.suppress(ShardcallError):  # in the next round again
                        self.delete_dropped(self._delete)
        return not self._stop.is_set()


def _objects(held: Iterable[_Held]) -> list[RemoteArray]:
    return [array for one in held if (array := one.array()) is not None]
