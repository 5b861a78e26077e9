"""Whether all workers of a session are ready, and of one kind."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence

from shardcall_server.frontend.workers.merging import DisagreementError
from shardcall_worker.v1 import link_pb2


class StartupBarrier:
    """What the workers of one session said of themselves.

    Args:
        hosts: their names, in the order of their processes.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self._said: dict[int, link_pb2.Ready] = {}
        self._lock = threading.Lock()

    def add(self, index: int, ready: link_pb2.Ready) -> link_pb2.Ready | None:
        """Notes what one said; returns what holds for all when the last has.

        Raises:
            DisagreementError: they cannot be one mesh.
        """
        with self._lock:
            self._said[index] = ready
            if len(self._said) < len(self._hosts):
                return None
        first = self._said[0]
        for other, said in sorted(self._said.items()):
            for what, ours, theirs in (
                ("versions", first.versions, said.versions),
                ("platform", first.platform, said.platform),
                ("devices", list(first.devices), list(said.devices)),
                ("kernels", _kernels(first), _kernels(said)),
                ("known-answer tests", _tests(first), _tests(said)),
            ):
                if ours != theirs:
                    raise DisagreementError(
                        f"the {what} of hosts {self._hosts[0]} and {self._hosts[other]} differ; install the same on all"
                    )
        _merge_digests(first, list(self._said.values()))
        return first


def _merge_digests(merged: link_pb2.Ready, said: Sequence[link_pb2.Ready]) -> None:
    """Makes digests of known-answer tests those of all hosts: each has its own processor, and a verdict is of all."""
    for i, known in enumerate(merged.known_answers):
        digests = sorted({ready.known_answers[i].digest for ready in said})
        if len(digests) > 1:
            known.digest = hashlib.sha256(b"".join(digests)).digest()


def _tests(ready: link_pb2.Ready) -> list[str]:
    return [known.name for known in ready.known_answers]


def _kernels(ready: link_pb2.Ready) -> list[tuple[str, str]]:
    return [(kernel.name, str(kernel.version)) for kernel in ready.kernels]
