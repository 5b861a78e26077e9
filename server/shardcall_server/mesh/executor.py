"""Running compiled programs: launches in order on one thread, everything after a launch on others."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
class Launch:
    """An execution under way.

    Attributes:
        program: what runs.
        results: the arrays to come.
        targets: where each goes; None for into the answer.
        launched: when it was handed to the devices, on the monotonic clock.
        place_s: what placing took.
        mapped: whether it has a region.
    """

    program: Program
    results: Sequence[jax.Array]
    targets: Sequence[np.ndarray | None]
    launched: float
    place_s: float
    mapped: bool

    def release(self) -> None:
        """Lets go of results and region, once the answer is on its way: unmapping a large one takes time.

        JAX puts memory that it aliased on a list which it empties in the next placement or launch, so that
        the next call would pay; a collection of Python's youngest objects empties it too.
        """
        self.results, self.targets = (), ()
        if self.mapped:
            gc.collect(0)


class Executor:
    """Launches programs in the order of its calls, and finishes them on whatever thread asks."""

    def __init__(self) -> None:
        self._copiers = ThreadPoolExecutor(_COPY_THREADS, thread_name_prefix="copy")
        self._ready_lock = threading.Lock()
        self._last_ready = 0.0

    def launch(self, program: Program, command: link_pb2.Execute, fd: int | None) -> Launch:
        """Places the operands and hands the program to the devices.

        Operands may alias the region; it stays mapped until the execution has finished.

        Args:
            program: what to run.
            command: where operands are and results go.
            fd: the region's descriptor, owned here; None if there is no region.
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
        results = program.compiled(*arguments) if program.compiled else ()
        return Launch(program, results, targets, placed, placed - started, mapped=region is not None)

    def finish(self, launch: Launch) -> link_pb2.Executed:
        """Waits until every shard is ready and gathers them."""
        jax.block_until_ready(launch.results)
        ready = time.monotonic()
        with self._ready_lock:
            begun = max(launch.launched, min(self._last_ready, ready))
            self._last_ready = max(self._last_ready, ready)
        answer = link_pb2.Executed(
            place_seconds=launch.place_s,
            execute_seconds=ready - begun,
        )
        kinds = launch.program.resolved.problem.results
        for result, kind, target in zip(launch.results, kinds, launch.targets, strict=False):
            out = np.empty(kind.shape, kind.dtype) if target is None else target
            gather(result, out, self._copy)
            if target is None:
                answer.inline_results.append(out.tobytes())
        if not launch.results:
            answer.inline_results.extend(b"" for _ in kinds)
        answer.gather_seconds = time.monotonic() - ready
        return answer

    def close(self) -> None:
        """Ends the threads that copy."""
        self._copiers.shutdown()

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
