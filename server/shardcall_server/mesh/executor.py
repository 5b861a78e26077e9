"""Running compiled programs: launches in order on one thread, everything after a launch on others."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from shardcall_server.compilation.program import Launched, Placement, Program
from shardcall_server.kernels.element_types import held_type
from shardcall_server.kernels.layout import ArrayType
from shardcall_server.mesh.host_buffers import OnGathered, Source, Target, in_answer
from shardcall_server.mesh.memory import SharedMemory
from shardcall_server.mesh.placement import ParallelCopier, place
from shardcall_server.mesh.profiling import phase
from shardcall_server.mesh.resident_arrays import Resident, ResidentArrays
from shardcall_worker.v1 import link_pb2

_SMALL_BYTES = 64 << 10


@dataclass
class Launch:
    """An execution under way.

    Attributes:
        program: what runs.
        launched: the arrays to come.
        targets: where each is copied to; None for into the answer, or for nowhere: it stays.
        kept: the ids of results that stay.
        began: when it was handed to the devices, on the monotonic clock.
        place_s: what placing took.
        request_id: of the call.
    """

    program: Program
    launched: Launched
    targets: Sequence[Target | None]
    kept: Sequence[int]
    began: float
    place_s: float
    request_id: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether all is computed already, as small programs of one device are, and small to gather."""
        small = sum(result.nbytes for result in self.launched.results) <= _SMALL_BYTES
        return small and self.launched.is_ready

    def release(self) -> None:
        """Lets go of results and memory, once the answer is on its way."""
        self.launched, self.targets = Launched(), ()


class Executor:
    """Launches programs in the order of its calls, and finishes them on whatever thread asks.

    Args:
        memory: the memory files that operands and results lie in.
        residents: the arrays that stay.
        copier: copies.
    """

    def __init__(self, memory: SharedMemory, residents: ResidentArrays, copier: ParallelCopier) -> None:
        self._memory = memory
        self._residents = residents
        self._copier = copier
        self._is_one_process = jax.process_count() == 1
        self._ready_lock = threading.Lock()
        self._last_ready = 0.0

    def launch(self, program: Program, command: link_pb2.Execute, request_id: str = "") -> Launch:
        """Places the operands and hands the program to the devices.

        Operands may alias shared memory; the front end leaves it alone until it has the answer.

        Args:
            program: what to run.
            command: where operands are and results go.
            request_id: of the call.
        """
        started = time.monotonic()
        problem = program.resolved.problem
        direct = problem.mesh.device_count == 1 and self._is_one_process
        with phase("place", request_id, program):
            arguments = [
                self._argument(operand, placement, data, direct=direct)
                # operands left out at the end have no data either
                for operand, placement, data in zip(problem.operands, program.operands, command.operands, strict=False)
                if operand is not None and placement is not None
            ]
        placed = time.monotonic()
        targets = [self.target(result, to) for result, to in zip(problem.results, command.results, strict=True)]
        kept = [to.array_id for to in command.results if to.HasField("array_id")]
        launched = Launched()
        if program.compiled:
            with phase("launch", request_id, program):
                launched = program.launch(*arguments)
        elif kept:
            launched = Launched(_nothing(program, self._copier))
        for array_id, result, kind in zip(kept, launched.results if kept else (), problem.results, strict=False):
            self._residents.keep(array_id, kind, result)
        return Launch(program, launched, targets, kept, placed, placed - started, request_id)

    def finish(self, launch: Launch, tell: OnGathered) -> link_pb2.Executed:
        """Waits until every shard is ready and gathers the results that do not stay.

        Args:
            launch: what was launched.
            tell: told how many bytes of all results, in order, are in place.

        Raises:
            CallError: the call is refused for its operands' values; its results do not stay.
        """
        try:
            with phase("execute", launch.request_id, launch.program):
                jax.block_until_ready(launch.launched.results)
                launch.launched.check()
        except BaseException:
            self._residents.delete(launch.kept)
            raise
        ready = time.monotonic()
        with self._ready_lock:
            begun = max(launch.began, min(self._last_ready, ready))
            self._last_ready = max(self._last_ready, ready)
        answer = link_pb2.Executed(place_seconds=launch.place_s, execute_seconds=ready - begun)
        if not launch.kept:
            with phase("gather", launch.request_id, launch.program):
                answer.inline_results.extend(self._gather_all(launch, tell))
        answer.gather_seconds = time.monotonic() - ready
        return answer

    def copy_out(self, resident: Resident, target: Target | None, tell: OnGathered) -> link_pb2.Executed:
        """Copies an array that stays to where it is wanted, or into the answer."""
        began = time.monotonic()
        answer = link_pb2.Executed()
        if target is None:
            answer.inline_results.append(self._in_answer(resident.array, resident.type))
        else:
            target.gather(resident.array, self._copier, tell)
        answer.gather_seconds = time.monotonic() - began
        return answer

    def target(self, kind: ArrayType, to: link_pb2.ResultDestination) -> Target | None:
        """Where a result goes; None for into the answer, or nowhere: it stays."""
        match to.WhichOneof("destination"):
            case "span":
                return Target(kind, self._memory.view(kind, to.span))
            case "blocks":
                return Target(kind, self._memory.rest(to.blocks), is_whole=False)
        return None

    def source(self, kind: ArrayType, data: link_pb2.TensorData) -> Source:
        """An array that lies in a message or in shared memory."""
        match data.WhichOneof("source"):
            case "inline":
                return Source(kind, np.ndarray(kind.shape, kind.dtype, buffer=data.inline))
            case "blocks":
                return Source(kind, self._memory.rest(data.blocks), is_whole=False)
        return Source(kind, self._memory.view(kind, data.span))

    def _argument(
        self, kind: ArrayType, placement: Placement, data: link_pb2.TensorData, *, direct: bool
    ) -> jax.Array | np.ndarray:
        if data.WhichOneof("source") == "array_id":
            return self._residents.as_operand(data.array_id, placement)
        source = self.source(kind, data)
        small = self._is_one_process and kind.nbytes <= _SMALL_BYTES and kind.shape == placement.padded
        if source.is_whole and (direct or small):
            # JAX takes it as it is, and splits what is small sooner than `place` does.
            return source.memory.view(held_type(kind.dtype))
        return source.place(placement, self._copier, may_alias=True)

    def _gather_all(self, launch: Launch, tell: OnGathered) -> list[bytes]:
        """Copies the results to their places; returns those that go into the answer."""
        inline, before = [], 0
        kinds = launch.program.resolved.problem.results
        if not launch.launched.results:  # there was nothing to compute
            return [b"" for _ in kinds]
        for result, kind, target in zip(launch.launched.results, kinds, launch.targets, strict=True):
            if target is not None:
                target.gather(result, self._copier, partial(_tell_more, tell, before))
            else:
                inline.append(self._in_answer(result, kind))
            before += kind.nbytes
        return inline

    def _in_answer(self, array: jax.Array, kind: ArrayType) -> bytes:
        return in_answer(array, kind, self._copier, is_whole=self._is_one_process)


def _tell_more(tell: OnGathered, before: int, byte_count: int) -> None:
    tell(before + byte_count)


def _nothing(program: Program, copier: ParallelCopier) -> Sequence[jax.Array]:
    """Results without elements, for which there is nothing to compute."""
    return tuple(
        place(np.empty(result.padded, kind.dtype), result, copier, may_alias=False)
        for result, kind in zip(program.results, program.resolved.problem.results, strict=True)
    )
