"""Repeating what failed before the server did anything, or with a connection that was lost.

gRPC's own retries do not do: of a stream they keep a second copy until the server answers, and grpcio 1.85 loses
messages of one that it repeats while more are being sent, or ends the process (grpc/grpc#40283). So they are off, and
the request is made anew.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from shardcall._src.types.errors import MeshRestartedError, ShardcallError
from shardcall._src.wire.metadata import Metadata

_REPEATABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
_DRAINING = "SERVER_DRAINING"
_GROWTH = 2.0
_LONGER = (1.0, 1.5)  # at random, or all whom a server refuses would be back at once


@dataclass(frozen=True)
class Retries:
    """How often an RPC is repeated, and after how long.

    Attributes:
        most: repetitions of one RPC; 0 for none.
        first_s: the wait before the first where the server tells none; it doubles with each, up to `longest_s`.
        longest_s: the longest of these.
    """

    most: int = 4
    first_s: float = 0.1
    longest_s: float = 2.0

    def wait_s(
        self, error: ShardcallError, repeated: int, *, refused_only: bool = False, rerun: bool = False
    ) -> float | None:
        """How long to wait before an RPC that failed is repeated, a random part of it included; None for never.

        Only UNAVAILABLE and RESOURCE_EXHAUSTED are repeated: after as long as the server says, and where it gave no
        reason, the connection being lost, or is about to go, after a wait of our own.

        Args:
            error: what it failed with.
            repeated: how often it was repeated before.
            refused_only: whether a lost connection is the end of it, because the server may still be at work on it.
            rerun: whether it may run again where the mesh restarted under it, unless the mesh may have ended because
                of it.
        """
        if repeated >= self.most or error.status not in _REPEATABLE:
            return None
        longer = random.uniform(*_LONGER)  # noqa: S311  # not a secret
        if error.retry_after_s is not None:
            return error.retry_after_s * longer
        lost = error.status is grpc.StatusCode.UNAVAILABLE and not error.reason and not refused_only
        reruns = rerun and isinstance(error, MeshRestartedError) and not error.is_suspect
        if not lost and not reruns and error.reason != _DRAINING:
            return None
        return min(self.first_s * _GROWTH**repeated, self.longest_s) * longer


NO_RETRIES = Retries(most=0)
"""Nothing is repeated."""


@dataclass
class Attempt:
    """One sending of an RPC.

    Attributes:
        timeout_s: gRPC's.
        metadata: to be sent.
        answered: whether any message of a stream has come.
    """

    timeout_s: float
    metadata: Metadata
    answered: bool = False


class Messages(Iterator[Any]):
    """The messages of an answer, which note that they come.

    Args:
        call: gRPC's.
        attempt: where that is noted.
    """

    def __init__(self, call: Any, attempt: Attempt) -> None:
        self.call = call
        self._attempt = attempt

    def __next__(self) -> Any:
        message = next(self.call)
        self._attempt.answered = True
        return message
