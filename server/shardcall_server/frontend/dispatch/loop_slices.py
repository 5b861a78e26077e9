"""Slices of loops: launches of several iterations, for about as long as other calls may wait."""

from __future__ import annotations

import itertools
import time

from shardcall_server.frontend.programs.cache_entry import CachedProgram
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_worker.v1 import link_pb2, loop_pb2

_MAX_ITERATIONS = 1 << 62
_MAX_GROWTH = 16  # from one slice to the next: the first iterations may be quicker than others
_SHARE_BESIDE_OTHERS = 0.02  # of the time of a slice, from another launch on for as long as a slice
_ids = itertools.count(1)


class LoopSlices:
    """The slices of one loop.

    Attributes:
        is_resumed: whether there was more than one slice.
        began: the time of its creation, of `time.monotonic`.
        ran: the number of iterations that have run.
        left: the maximum number of remaining iterations.

    Args:
        program: the program, with which the time of an iteration is kept.
        slice_s: the time that a slice is to take, in seconds.
        grants: the number of launches before the first.
    """

    def __init__(self, program: CachedProgram, slice_s: float, grants: int) -> None:
        self.is_resumed = False
        self.began = time.monotonic()
        self.ran = self.left = 0
        self._grants = grants
        self._alone_from = 0.0
        self._program = program
        self._slice_s = slice_s
        self._id = next(_ids)

    def first(self) -> loop_pb2.LoopSlice:
        """Returns the first slice, which has one iteration if the time of an iteration is not known."""
        return loop_pb2.LoopSlice(loop_id=self._id, max_iterations=self._fitting() if self._program.iteration_s else 1)

    def after(self, executed: link_pb2.Executed, grants: int) -> loop_pb2.LoopSlice | None:
        """Returns the slice after one that has ended; None after the last.

        Args:
            executed: the answer to that slice.
            grants: the number of launches so far. If there were others lately, the slice is shorter.
        """
        now = time.monotonic()
        if grants > self._grants + 1:
            self._alone_from = now + self._slice_s
        is_alone, self._grants = now >= self._alone_from, grants
        ran, self.left = executed.progress.ran, executed.progress.left
        self.ran += ran
        if ran:
            self._program.iteration_s = executed.progress.seconds / ran
        if not self.left:
            return None
        self.is_resumed = True
        return loop_pb2.LoopSlice(
            loop_id=self._id,
            resumes=True,
            max_iterations=min(self._fitting(1 if is_alone else _SHARE_BESIDE_OTHERS), _MAX_GROWTH * max(1, ran)),
        )

    def drop(self, session: MeshSession) -> None:
        """Releases the state of the loop."""
        session.notify(link_pb2.FrontEndMessage(drop_loop=loop_pb2.DropLoop(loop_id=self._id)))

    def _fitting(self, share: float = 1.0) -> int:
        return max(1, min(_MAX_ITERATIONS, int(share * self._slice_s / max(self._program.iteration_s, 1e-9))))
