"""The heat equation by a client that sends several calls as one program.

python -m peers.heat_client ADDRESS
"""

from __future__ import annotations

import sys
from functools import cache

import numpy as np

import shardcall
from harness.answering import answer
from peers.heat_steps import handler, start, step


def main() -> None:
    """Answers until standard input ends."""
    client = shardcall.connect(sys.argv[1])

    @cache
    def put(size: int) -> shardcall.RemoteArray:
        return client.put(start(size), mesh=shardcall.Mesh(x=8), spec=shardcall.P("x", None))

    answer({"heat": handler(put, step, lambda u: np.abs(u).max())})


if __name__ == "__main__":
    main()
