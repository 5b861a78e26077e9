"""A well-behaved client that computes all the while, and reports its results beside clients that are not."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Self

import numpy as np

import shardcall as sc

_PAUSE_S = 0.03


@dataclass
class Canary:
    """Computes in a thread of its own until the body ends.

    Args:
        address: the server.
        may_fail: the reasons that it is to bear, where the mesh is killed under it.
        devices: how many it computes on.
        token: whose it shows; None for this user's.

    Attributes:
        right: how many answers were right.
        wrong: descriptions of those that were not.
        errors: descriptions of the calls that failed.
        borne: how many ended for a reason that it is to bear.
        seconds: how long each right answer took.
    """

    address: str
    may_fail: frozenset[str] = frozenset()
    devices: int = 8
    token: str | None = None
    right: int = 0
    borne: int = 0
    wrong: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._ended = threading.Event()
        self._client = sc.connect(self.address, token=self.token)
        self._chance = np.random.default_rng(1)
        self._sing()  # compiles everything
        self._thread = threading.Thread(target=self._run, name="canary")
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._client.close()

    def check(self) -> None:
        """Raises unless it computed and all results were right."""
        assert not self.wrong, self.wrong[:3]
        assert not self.errors, self.errors[:3]
        assert self.right > 1

    def __str__(self) -> str:
        worst = max(self.seconds, default=0.0)
        return (
            f"canary: {self.right} right, {len(self.wrong)} wrong, {len(self.errors)} errors, {self.borne} borne, "
            f"median {1e3 * float(np.median(self.seconds or [0.0])):.1f} ms, worst {1e3 * worst:.0f} ms"
        )

    def _run(self) -> None:
        self._sing()
        while not self._ended.wait(_PAUSE_S):
            self._sing()

    def _sing(self) -> None:
        x, began = self._chance.standard_normal((64, 16)), time.monotonic()
        try:
            result = self._client.diff(x, axis=0, mesh=sc.Mesh(x=self.devices), spec=sc.P("x", None)).array
        except sc.ShardcallError as error:
            if error.reason in self.may_fail:
                self.borne += 1
            else:
                self.errors.append(f"{error.reason}: {error}")
            return
        if np.array_equal(result, np.diff(x, axis=0)):
            self.right += 1
            self.seconds.append(time.monotonic() - began)
        else:
            self.wrong.append(f"call {self.right + len(self.wrong)} of seed 1")
