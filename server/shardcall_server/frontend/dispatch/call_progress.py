"""The progress of calls: their wait for a program, their position in the queue, and the iterations of loops."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from shardcall.v1 import server_info_service_pb2
from shardcall.v1.server_info_service_pb2 import CALL_PHASE_COMPILING, CALL_PHASE_QUEUED, CALL_PHASE_RUNNING
from shardcall_server.frontend.dispatch.loop_slices import LoopSlices
from shardcall_server.frontend.dispatch.mesh_queue import MeshQueue
from shardcall_server.frontend.programs.cache_entry import CacheEntry
from shardcall_server.frontend.programs.program_compiler import ProgramCompiler
from shardcall_server.frontend.rpc.server_call import ServerCall


class CallProgress:
    """The calls that wait or run in slices; a call that does neither costs nothing.

    Threads share it: every use of a dict is one operation.

    Args:
        queue: the queue for the mesh.
    """

    def __init__(self, queue: MeshQueue) -> None:
        self._queue = queue
        self._compiling: dict[ServerCall, tuple[ProgramCompiler, Future[CacheEntry]]] = {}
        self._loops: dict[LoopSlices, ServerCall] = {}

    @contextmanager
    def compiling(self, call: ServerCall, compiler: ProgramCompiler, future: Future[CacheEntry]) -> Iterator[None]:
        """Lists a call while it waits for its program, in the body.

        Args:
            compiler: the compiler of its mesh.
            future: the program.
        """
        self._compiling[call] = compiler, future
        try:
            yield
        finally:
            self._compiling.pop(call, None)

    def add_loop(self, loop: LoopSlices, call: ServerCall) -> None:
        """Lists a loop that has run a slice and has not ended; does nothing for one that is listed."""
        self._loops[loop] = call

    def remove_loop(self, loop: LoopSlices) -> None:
        """Removes a loop."""
        self._loops.pop(loop, None)

    def loops(self) -> list[server_info_service_pb2.RunningLoop]:
        """Returns the loops of all callers."""
        now = time.monotonic()
        return [
            server_info_service_pb2.RunningLoop(
                request_id=call.request_id,
                caller=call.owner,
                iterations=loop.ran,
                iterations_left=loop.left,
                seconds=now - loop.began,
            )
            for loop, call in self._loops.copy().items()
        ]

    def of_principal(
        self, principal_name: str, request_ids: Collection[str], *, with_results: bool = False
    ) -> list[server_info_service_pb2.CallProgress]:
        """Returns the progress of some calls of a principal.

        Args:
            principal_name: its name; empty without authentication.
            request_ids: the calls.
            with_results: whether to return the placements of their results, where they are known.
        """
        now, shown = time.monotonic(), dict[str, server_info_service_pb2.CallProgress]()
        queued, compiling = self._queue.waiting(), self._compiling.copy()
        waiting = {
            call for call in (*compiling, *(call for call, *_ in queued)) if call.principal_name == principal_name
        }

        def show(call: ServerCall, began: float, **fields: Any) -> None:
            if call.principal_name == principal_name and call.request_id in request_ids:
                progress = server_info_service_pb2.CallProgress(
                    request_id=call.request_id, seconds=max(0.0, now - began)
                )
                progress.MergeFrom(server_info_service_pb2.CallProgress(**fields))
                if with_results and call.plan is not None:
                    progress.results.extend(call.plan.results)
                    progress.mesh.CopyFrom(call.plan.mesh)
                shown[call.request_id] = progress

        for call, position, began in queued:
            if position:
                show(call, began, phase=CALL_PHASE_QUEUED, queue_position=position)
        for call, (compiler, future) in compiling.items():
            if call.principal_name == principal_name and call.request_id in request_ids:
                position, began = compiler.position(future)
                if position:
                    show(call, began, phase=CALL_PHASE_QUEUED, queue_position=position)
                    continue
                operands, earlier = compiler.operands(future, call.owner)
                about = {"operands": operands, "earlier_operands": earlier, "waiting_calls": len(waiting) - 1}
                show(call, began, phase=CALL_PHASE_COMPILING, **about)
        for loop, call in self._loops.copy().items():  # after the queue, where a loop is between two slices
            show(call, loop.began, phase=CALL_PHASE_RUNNING, iterations=loop.ran, iterations_left=loop.left)
        return list(shown.values())
