"""Running compiled programs: launches in order on one thread, everything after a launch on others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import jax
import numpy as np

from shardcall_server.compilation.program import Program
from shardcall_server.kernels.element_types import held_type
from shardcall_server.kernels.layout import ArrayType
from shardcall_server.mesh.placement import gather, place
from shardcall_server.mesh.regions import MappedRegion, inline_view
from shardcall_worker.v1 import link_pb2

# Copies release the interpreter lock; two threads saturate the memory of a small host, more gain nothing.
_COPY_THREADS = 2
_LARGE_COPY_BYTES = 4 << 20


@dataclass
class _Launch:
    """An execution under way.

    Attributes:
        results: the arrays to come.
        targets: where each goes; None for into the answer.
        launched: when it was handed to the devices, on the monotonic clock.
        place_s: what placing took.
    """

    program: Program
    results: Sequence[jax.Array]
    targets: list[np.ndarray | None]
    launched: float
    place_s: float


class Executor:
    """Launches programs in the order of its calls and finishes each on a thread of its own.

    Args:
        finishers: how many executions are waited for and gathered at once.
    """

    def __init__(self, finishers: int = 8) -> None:
        self._finishers = ThreadPoolExecutor(finishers, thread_name_prefix="finish")
        self._copiers = ThreadPoolExecutor(_COPY_THREADS, thread_name_prefix="copy")
        self._ready_lock = threading.Lock()
        self._last_ready = 0.0

    def launch(
        self, program: Program, command: link_pb2.Execute, fd: int | None
    ) -> Callable[[], Future[link_pb2.Executed]]:
        """Places the operands and hands the program to the devices.

        Operands may alias the region; it stays mapped until the execution has finished.

        Args:
            program: what to run.
            command: where operands are and results go.
            fd: the region's descriptor, owned here; None if there is no region.

        Returns:
            Begins the wait for the results.
        """
        started = time.monotonic()
        region = MappedRegion(fd, command.region_bytes) if fd is not None else None
        problem = program.resolved.problem
        direct = problem.mesh.device_count == 1
        arguments = [
            view.view(held_type(operand.dtype)) if direct else place(view, placement)
            # operands left out at the end have no data either
            for operand, placement, data in zip(problem.operands, program.operands, command.operands, strict=False)
            if operand is not None and placement is not None
            for view in [_operand(operand, data, region)]
        ]
        placed = time.monotonic()
        targets: list[np.ndarray | None] = [None] * len(problem.results)
        if command.result_offsets:
            assert region is not None
            targets = [
                region.view(result, offset)
                for result, offset in zip(problem.results, command.result_offsets, strict=True)
            ]
        results = program.compiled(*arguments)
        launch = _Launch(program, results, targets, placed, placed - started)
        return lambda: self._finishers.submit(self._finish, launch)

    def close(self) -> None:
        """Waits for what was launched."""
        self._finishers.shutdown()
        self._copiers.shutdown()

    def _finish(self, launch: _Launch) -> link_pb2.Executed:
        jax.block_until_ready(launch.results)
        ready = time.monotonic()
        with self._ready_lock:
            begun = max(launch.launched, min(self._last_ready, ready))
            self._last_ready = max(self._last_ready, ready)
        answer = link_pb2.Executed(
            place_seconds=launch.place_s,
            queue_seconds=begun - launch.launched,
            execute_seconds=ready - begun,
        )
        for result, kind, target in zip(
            launch.results, launch.program.resolved.problem.results, launch.targets, strict=True
        ):
            out = np.empty(kind.shape, kind.dtype) if target is None else target
            gather(result, out, self._copy)
            if target is None:
                answer.inline_results.append(out.tobytes())
        answer.gather_seconds = time.monotonic() - ready
        return answer

    def _copy(self, target: np.ndarray, source: np.ndarray) -> None:
        if target.nbytes < _LARGE_COPY_BYTES or target.shape[0] < _COPY_THREADS:
            np.copyto(target, source)
            return
        middle = target.shape[0] // 2
        other = self._copiers.submit(np.copyto, target[:middle], source[:middle])
        np.copyto(target[middle:], source[middle:])
        other.result()


def _operand(kind: ArrayType, data: link_pb2.TensorData, region: MappedRegion | None) -> np.ndarray:
    if data.WhichOneof("place") == "inline":
        return inline_view(kind, data.inline)
    assert region is not None
    return region.view(kind, data.region_offset)
