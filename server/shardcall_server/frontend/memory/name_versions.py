"""Versions of the values of names, by which a client notices that a restart has lost values that it has seen.

The numbers of a name go on after a restart from that of the checkpoint, so that a number alone may stand for values
that are lost and for others that were computed since. A name therefore keeps the restarts from which it went on, and
a client the number that it has seen and the restart before that.
"""

from __future__ import annotations

import time

from shardcall.v1 import array_service_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_server.frontend.files.checkpoint_folder import moment
from shardcall_worker.v1 import checkpoint_pb2

MAX_RESTORATIONS = 64
"""The most restarts that a name keeps. If it has had more, the first two count as one, at the lower number."""

ANY = array_service_pb2.NameVersion()
"""The version of a client that accepts any values."""

NameHistory = checkpoint_pb2.NameHistory


def now_us() -> int:
    """Returns the time in microseconds since 1970-01-01 00:00 UTC."""
    return time.time_ns() // 1000


def first_history(since_us: int) -> NameHistory:
    """Returns the history of a name that stands for its first values.

    Args:
        since_us: the begin of the mesh: clients may have seen values of the same name that an earlier mesh had.
    """
    return NameHistory(number=1, restorations=[checkpoint_pb2.NameRestoration(time_microseconds=since_us)])


def next_history(before: NameHistory) -> NameHistory:
    """Returns the history of a name that stands for other values than before."""
    return NameHistory(number=before.number + 1, restorations=before.restorations)


def restored_history(saved: NameHistory, checkpoint_s: float) -> NameHistory:
    """Returns the history of a name that stands for the values of a checkpoint again.

    Args:
        checkpoint_s: the moment of the checkpoint.
    """
    last_us = saved.restorations[-1].time_microseconds if saved.restorations else 0
    # One at a number that is no lower than this one says nothing more.
    left = [there for there in saved.restorations if there.number < saved.number]
    if len(left) >= MAX_RESTORATIONS:
        left[1].number = left[0].number
        del left[0]
    left.append(
        checkpoint_pb2.NameRestoration(
            time_microseconds=max(now_us(), last_us + 1), number=saved.number, checkpoint_seconds=checkpoint_s
        )
    )
    return NameHistory(number=saved.number, restorations=left)


def version_of(history: NameHistory) -> array_service_pb2.NameVersion:
    """Returns the version of the present values, for clients."""
    since_us = history.restorations[-1].time_microseconds
    return array_service_pb2.NameVersion(number=history.number, since_microseconds=since_us)


def check_seen(text: str, history: NameHistory, seen: array_service_pb2.NameVersion) -> None:
    """Checks that no restart has lost the values of a name that a client has seen.

    Args:
        text: the name, as the client sent it.
        seen: the version, or `ANY`.

    Raises:
        CallError: ARRAY_LOST.
    """
    for there in reversed(history.restorations):
        if there.time_microseconds > seen.since_microseconds and there.number < seen.number:
            raise _gone_back(text, there, seen)


def _gone_back(text: str, there: checkpoint_pb2.NameRestoration, seen: array_service_pb2.NameVersion) -> CallError:
    shown, seconds = shorten(text), there.checkpoint_seconds
    if seconds:
        what = f"went back to the checkpoint of {moment(seconds)} when the mesh or the server restarted, and later "
        what += "values, which this client has seen, are lost"
    else:
        what = "was lost when the mesh or the server restarted, and another one has its name"
    return CallError(
        Reason.ARRAY_LOST,
        f"the array {shown!r} {what}; go on with what the name stands for now by client.open({shown!r}), or put the "
        "array again with replace=True",
        field="name",
        metadata={
            "name": shown,
            "version_seen": str(seen.number),
            "version_restored": str(there.number),
            "checkpoint_seconds": f"{seconds:.6f}",
        },
    )
