"""Runs programs on blocks of ones to time them. For the link's thread only."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp

from shardcall_server.compilation.program import Placement, Program
from shardcall_worker.v1 import measure_pb2


class TrialRunner:
    """Times programs.

    The blocks are kept from one run to the next: the candidates of one call have the same operands.
    """

    def __init__(self) -> None:
        self._layouts: list[tuple[Placement, str]] = []
        self._blocks: list[jax.Array] = []

    def run(self, program: Program, command: measure_pb2.Measure) -> measure_pb2.Measured:
        """Runs a program at least once, until the maximum number of runs or the maximum time is reached.

        The blocks are ones and not zeros: memory that was never written is read from one page, which is too fast.
        """
        assert program.compiled is not None
        layouts = [(placement, held.name) for _, placement, held in filter(None, program.inputs)]
        if layouts != self._layouts:
            self.discard_blocks()
            self._blocks = [
                jnp.ones(placement.padded, dtype, device=placement.sharding) for placement, dtype in layouts
            ]
            self._layouts = layouts
            jax.block_until_ready(self._blocks)
        measured = measure_pb2.Measured()
        started = now = time.monotonic()
        while not measured.run_seconds or (
            len(measured.run_seconds) < command.max_runs and now - started < command.max_seconds
        ):
            launched = now
            jax.block_until_ready(program.compiled(*self._blocks))
            now = time.monotonic()
            measured.run_seconds.append(now - launched)
        return measured

    def discard_blocks(self) -> None:
        """Releases the blocks."""
        self._layouts, self._blocks = [], []
