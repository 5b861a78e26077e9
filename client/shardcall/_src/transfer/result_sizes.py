"""The sizes of the results of earlier calls."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TypeAlias

from shardcall._src.memory.segment import ALIGNMENT
from shardcall._src.transfer.upload import Value
from shardcall.v1 import kernel_pb2
from shardcall_core.element_types import DType
from shardcall_core.wire.forks import begin_anew_in_children

_MAX = 256

Signature: TypeAlias = tuple[bytes, tuple[tuple[tuple[int, ...], DType] | None, ...]]


class ResultSizes:
    """A cache of the bytes of results of recent calls, safe to use from several threads at once.

    Args:
        min_bytes: smaller results are not cached.
    """

    def __init__(self, min_bytes: int) -> None:
        self._min_bytes = min_bytes
        self._sizes: dict[Signature, int] = {}
        self._lock = threading.Lock()  # guards `_sizes`, which are read without it
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Replaces the lock in a forked child."""
        self._lock = threading.Lock()

    def find(self, call: kernel_pb2.KernelCall, operands: Sequence[Value]) -> int | None:
        """Returns the bytes of a segment that a call's results need; None if unknown."""
        return self._sizes.get(_signature(call, operands)) if self._sizes else None

    def note(self, call: kernel_pb2.KernelCall, operands: Sequence[Value], sizes: Sequence[int]) -> None:
        """Stores the sizes of a call's results."""
        size = aligned_size(sizes)
        if size < self._min_bytes:
            return
        signature = _signature(call, operands)
        with self._lock:
            self._sizes.pop(signature, None)
            self._sizes[signature] = size
            while len(self._sizes) > _MAX:
                del self._sizes[next(iter(self._sizes))]


def aligned_size(sizes: Sequence[int]) -> int:
    """Returns the bytes of a segment that results of these sizes need."""
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)


def _signature(call: kernel_pb2.KernelCall, operands: Sequence[Value]) -> Signature:
    types = tuple(None if operand is None else (operand.shape, operand.dtype) for operand in operands)
    return call.SerializeToString(deterministic=True), types
