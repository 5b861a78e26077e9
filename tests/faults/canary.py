"""A well-behaved client that computes all the while beside clients that are not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from faults.callers import Callers, diff_on
from servers import ServerProcess

import shardcall as sc

_PAUSE_S = 0.03


@contextmanager
def beside_a_canary(
    server: ServerProcess, figure: Callable[[str], None], devices: int = 8, token: str | None = None
) -> Iterator[Callers]:
    """A caller of a server whose calls are all answered rightly, while the server's processes stay.

    Args:
        server: the server.
        figure: records the outcome.
        devices: how many it computes on.
        token: whose it shows; None for this user's.
    """
    before, compute = server.worker_pids(), diff_on(devices)
    with sc.connect(server.address, token=token) as client:
        compute(client, np.random.default_rng(0))  # compiled
    options = {"token": token, "shared_memory": True, "call_stream": True}
    with Callers(frozenset()).calling(server.address, [compute], _PAUSE_S, **options) as canary:
        yield canary
    figure(f"canary: {canary}")
    assert not canary.wrong, canary.wrong[:3]
    assert canary.right()
    assert server.process.poll() is None
    assert server.worker_pids() == before
