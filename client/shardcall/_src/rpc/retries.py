"""Retries of RPCs that failed before the server did anything, or whose connection was lost.

gRPC's own retries are off: they keep a second copy of a stream until the server answers (1,026 MiB for 1 GiB; these
keep 2), and grpcio 1.85 loses messages of a stream that it retries while more are being sent, or aborts the process
(grpc/grpc#40283). Requests are built anew.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from shardcall_core.types.errors import MeshRestartedError, ShardcallError
from shardcall_core.wire.metadata import Metadata

_REPEATABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
_DRAINING = "SERVER_DRAINING"
_GROWTH = 2.0
_LONGER = (1.0, 1.5)  # at random, so that refused clients do not return at the same time


@dataclass(frozen=True)
class Retries:
    """The rules by which RPCs are retried.

    Attributes:
        max_retries: the most retries of one RPC; 0 for none.
        first_s: the wait before the first retry, if the server names none; it doubles with each, up to `longest_s`.
        longest_s: the longest such wait.
    """

    max_retries: int = 4
    first_s: float = 0.1
    longest_s: float = 2.0

    def wait_s(
        self, error: ShardcallError, repeated: int, *, refused_only: bool = False, rerun: bool = False
    ) -> float | None:
        """Returns the seconds to wait before a failed RPC is retried, a random part included; None for no retry.

        Only UNAVAILABLE and RESOURCE_EXHAUSTED are retried: after the wait that the server names, and after a wait of
        our own if the connection was lost or the server is draining.

        Args:
            error: the error of the RPC.
            repeated: the number of retries before.
            refused_only: do not retry after a lost connection, because the server may still be at work on the RPC.
            rerun: retry after a restart of the mesh, unless the call is suspected to have caused it.
        """
        if repeated >= self.max_retries or error.status not in _REPEATABLE:
            return None
        longer = random.uniform(*_LONGER)  # noqa: S311  # not a secret
        if error.retry_after_s is not None:
            return error.retry_after_s * longer
        lost = error.status is grpc.StatusCode.UNAVAILABLE and not error.reason and not refused_only
        reruns = rerun and isinstance(error, MeshRestartedError) and not error.is_suspect
        if not lost and not reruns and error.reason != _DRAINING:
            return None
        return min(self.first_s * _GROWTH**repeated, self.longest_s) * longer


def is_out_of_service(error: ShardcallError) -> bool:
    """Returns True for an error of a server that drains, or whose connection was lost."""
    lost = error.status is grpc.StatusCode.UNAVAILABLE and not error.reason
    return lost or error.reason == _DRAINING


NO_RETRIES = Retries(max_retries=0)
"""No retries."""


@dataclass
class Attempt:
    """An attempt of an RPC.

    Attributes:
        timeout_s: gRPC's timeout.
        metadata: the metadata to send.
        answered: True after the first message of an answer.
    """

    timeout_s: float
    metadata: Metadata
    answered: bool = False


class Messages(Iterator[Any]):
    """The messages of an answer; the first one sets `Attempt.answered`.

    Args:
        call: the call of gRPC.
        attempt: the attempt to mark.
    """

    def __init__(self, call: Any, attempt: Attempt) -> None:
        self.call = call
        self._attempt = attempt

    def __next__(self) -> Any:
        message = next(self.call)
        self._attempt.answered = True
        return message
