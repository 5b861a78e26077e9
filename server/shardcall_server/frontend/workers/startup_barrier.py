"""Startup barrier: waits until all workers of a session are ready and checks that they can form one mesh."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence

from shardcall_server.frontend.workers.merging import DisagreementError
from shardcall_worker.v1 import link_pb2


class StartupBarrier:
    """Collects the `Ready` messages of the workers of one session.

    Args:
        hosts: the names of their hosts, in the order of their processes.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self._received: dict[int, link_pb2.Ready] = {}
        self._lock = threading.Lock()  # guards the messages

    def add(self, index: int, ready: link_pb2.Ready) -> link_pb2.Ready | None:
        """Adds the message of one worker; returns the merged one when it is the last, else None.

        Raises:
            DisagreementError: the workers cannot form one mesh.
        """
        with self._lock:
            self._received[index] = ready
            if len(self._received) < len(self._hosts):
                return None
        first = self._received[0]
        for other, message in sorted(self._received.items()):
            for what, ours, theirs in (
                ("versions", first.versions, message.versions),
                ("platform", first.platform, message.platform),
                ("devices", list(first.devices), list(message.devices)),
                ("kernels", _kernels(first), _kernels(message)),
                ("known-answer tests", _tests(first), _tests(message)),
            ):
                if ours != theirs:
                    raise DisagreementError(
                        f"the {what} of hosts {self._hosts[0]} and {self._hosts[other]} differ; install the same on all"
                    )
        _merge_digests(first, list(self._received.values()))
        return first


def _merge_digests(merged: link_pb2.Ready, messages: Sequence[link_pb2.Ready]) -> None:
    """Combines the digests of known-answer tests: processors differ between hosts, and a verdict holds for all."""
    for i, test in enumerate(merged.known_answers):
        digests = sorted({ready.known_answers[i].digest for ready in messages})
        if len(digests) > 1:
            test.digest = hashlib.sha256(b"".join(digests)).digest()


def _tests(ready: link_pb2.Ready) -> list[str]:
    return [test.name for test in ready.known_answers]


def _kernels(ready: link_pb2.Ready) -> list[tuple[str, str]]:
    return [(kernel.name, str(kernel.version)) for kernel in ready.kernels]
