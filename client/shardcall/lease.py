"""The lease under which a client's arrays stay on the mesh."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable

from shardcall.errors import ShardcallError
from shardcall.remote_array import RemoteArray

_ID_BYTES = 32
_RENEWALS = 4

Renew = Callable[[bytes], object]
Delete = Callable[[list[bytes]], object]


class Lease:
    """A client's lease, and which arrays are held under it; safe to use from several threads at once.

    While there are arrays a thread renews the lease, four times as often as it must, and deletes the arrays whose
    objects the caller has lost.

    Args:
        seconds: how long it lasts after a renewal.
        renew: renews the lease of an id.
        delete: deletes arrays by their handles.
    """

    def __init__(self, seconds: float, renew: Renew, delete: Delete) -> None:
        self.lease_id = os.urandom(_ID_BYTES)
        self._interval_s = seconds / _RENEWALS
        self._renew = renew
        self._delete = delete
        self._lock = threading.Lock()
        self._arrays: dict[bytes, weakref.ref[RemoteArray]] = {}
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def hold(self, handle: bytes, make: Callable[[], RemoteArray]) -> RemoteArray:
        """Returns the array of a handle, the same object as long as the caller has it.

        Args:
            handle: of an array under this lease.
            make: makes the object where there is none.
        """
        with self._lock:
            known = self._arrays.get(handle)
            array = known() if known is not None else None
            if array is None:
                array = make()
                self._arrays[handle] = weakref.ref(array)
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._keep, name="shardcall-lease", daemon=True)
                self._thread.start()
            return array

    def holds(self, handle: bytes) -> bool:
        """Whether an array is under this lease."""
        with self._lock:
            return handle in self._arrays

    def dropped(self) -> list[bytes]:
        """The handles of those arrays whose objects the caller has lost."""
        with self._lock:
            return [handle for handle, known in self._arrays.items() if known() is None]

    def release(self, handles: Iterable[bytes]) -> list[RemoteArray]:
        """Forgets arrays that are no longer on the mesh; returns those objects that the caller still has."""
        with self._lock:
            known = [self._arrays.pop(handle) for handle in handles if handle in self._arrays]
        return _objects(known)

    def close(self) -> tuple[list[bytes], list[RemoteArray]]:
        """Ends the thread; returns the handles of all arrays, and those objects that the caller still has."""
        self._stop.set()
        with self._lock:
            held, self._arrays = self._arrays, {}
        return list(held), _objects(held.values())

    def _keep(self) -> None:
        while not self._stop.wait(self._interval_s):
            with self._lock:
                lost = [handle for handle, known in self._arrays.items() if known() is None]
                is_last = len(lost) == len(self._arrays)
                if is_last:
                    self._arrays.clear()  # what cannot be deleted now goes when the lease ends
                    self._thread = None
            # In the next round again if the server cannot be reached.
            with contextlib.suppress(ShardcallError):
                if lost:
                    self._delete(lost)
                    self.release(lost)
                if not is_last:
                    self._renew(self.lease_id)
            if is_last:
                return


def _objects(known: Iterable[weakref.ref[RemoteArray]]) -> list[RemoteArray]:
    return [array for reference in known if (array := reference()) is not None]
