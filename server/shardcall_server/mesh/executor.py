"""Execution of compiled programs: launches in order on one thread, and everything after a launch on other threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller

import jax
import numpy as np

from shardcall_core.layouts.layout import ArrayType
from shardcall_server.compilation.program import SMALL_BYTES, Placement, Program
from shardcall_server.mesh.host_buffers import OnGathered, Source, Target, in_answer
from shardcall_server.mesh.loops import Loops, LoopState
from shardcall_server.mesh.memory import MemoryFiles
from shardcall_server.mesh.placement import ParallelCopier, put_padded
from shardcall_server.mesh.profiling import count_events, phase
from shardcall_server.mesh.resident_arrays import DeviceArray, ResidentArrays
from shardcall_worker.v1 import link_pb2

# One element of any type. Results of this size come with the answer to their call: `float(loss)` of a traced function
# takes 2.4 to 3.3 ms, and 5.9 to 7.5 with another call for the number.
_VALUE_BYTES = 16
_MOMENT_S = 100e-6  # about a thread switch
_is_ready = methodcaller("is_ready")


@dataclass
class Launch:
    """A launched execution.

    Attributes:
        program: the program.
        arrays: the results to come, then the flags of the checks if there are any.
        targets: the destination of each result; None for the answer itself and for resident results.
        kept: the ids of resident results.
        began: the time of the launch, on the monotonic clock.
        placement_s: the time that placing the operands took, in seconds.
        message: the command.
        loop: the state of the loop that it is a slice of; None for any other program.
    """

    program: Program
    arrays: Sequence[jax.Array]
    targets: Sequence[Target | None]
    kept: Sequence[int]
    began: float
    placement_s: float
    message: link_pb2.FrontEndMessage
    loop: LoopState | None = None

    @property
    def is_ready(self) -> bool:
        """True if all results are computed, and those to gather are small."""
        return (bool(self.kept) or self.program.result_bytes <= SMALL_BYTES) and all(map(_is_ready, self.arrays))

    def is_ready_soon(self) -> bool:
        """Returns `is_ready`; waits for `_MOMENT_S` if the program is small."""
        deadline = time.monotonic() + (_MOMENT_S if self.program.is_small else 0.0)
        while not self.is_ready:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0)  # lets other threads run
        return True


class Executor:
    """Launches programs in the order of calls, and finishes them on any thread.

    Args:
        memory: the memory files of operands and results.
        loops: the loops that run in slices.
        copier: copies host memory.
    """

    def __init__(
        self, memory: MemoryFiles, resident_arrays: ResidentArrays, loops: Loops, copier: ParallelCopier
    ) -> None:
        self._memory = memory
        self._resident_arrays = resident_arrays
        self._loops = loops
        self._copier = copier
        self._is_one_process = jax.process_count() == 1
        self._ready_lock = threading.Lock()  # guards `_last_ready`
        self._last_ready = 0.0

    def launch(self, program: Program, message: link_pb2.FrontEndMessage) -> Launch:
        """Puts the operands on the devices and launches the program.

        Operands may alias shared memory, which the front end does not change before it has the answer.
        """
        started = time.monotonic()
        command, loop = message.execute, None
        with phase("place", message, program):
            arguments = [
                self._argument(*operand, data)
                # operands left out at the end have no data either; a repeated field iterates slowly, its slice does not
                for operand, data in zip(program.inputs, command.operands[:], strict=False)
                if operand is not None
            ]
            if program.limit is not None:
                loop = self._loops.state(program, command.slice, arguments)
                arguments = loop.arguments(command.slice)
        placed = time.monotonic()
        results = program.resolved.problem.results
        targets, kept = [], []
        for result, to in zip(results, command.results[:], strict=True):
            destination = to.WhichOneof("destination")
            targets.append(self.target(result, to) if destination else None)
            if destination == "array_id":
                kept.append(to.array_id)
        arrays: Sequence[jax.Array] = ()
        if program.compiled:
            with phase("launch", message, program):
                arrays = program.compiled(*arguments)
        elif kept:
            arrays = _nothing(program, self._copier)
        launch = Launch(program, arrays, targets, kept, placed, placed - started, message, loop)
        if loop is None:
            self._keep(launch)
        return launch

    def finish(self, launch: Launch, on_gathered: OnGathered, answer: link_pb2.Executed) -> None:
        """Waits until every shard is ready, gathers the results that are not resident, and releases the launch.

        Args:
            on_gathered: called with the number of bytes of all results, in order, that are gathered.
            answer: an empty answer, which receives results and times.

        Raises:
            CallError: the program refuses the values of its operands; its resident results are deleted.
        """
        try:
            with phase("execute", launch.message, launch.program):
                for array in launch.arrays:
                    array.block_until_ready()
                launch.program.check(launch.arrays)
        except BaseException:
            self._resident_arrays.delete(launch.kept)
            if launch.loop is not None:
                self._loops.drop(launch.message.execute.slice.loop_id)
            raise
        with self._ready_lock:
            ready = time.monotonic()
            begun = max(launch.began, self._last_ready)
            self._last_ready = ready
        is_complete = launch.loop is None or self._finish_slice(launch, launch.loop, answer)
        count_events(launch.program, launch.began, answer.progress.ran if launch.loop else 1)
        if is_complete:
            with phase("gather", launch.message, launch.program):
                results = self._values(launch) if launch.kept else self._gather_all(launch, on_gathered)
                answer.inline_results.extend(results)
        # Before the answer, after which the front end may give the memory to another call.
        launch.arrays, launch.targets = (), ()
        answer.place_seconds, answer.execute_seconds = launch.placement_s, ready - begun
        answer.gather_seconds = time.monotonic() - ready

    def _finish_slice(self, launch: Launch, loop: LoopState, answer: link_pb2.Executed) -> bool:
        """Advances a loop; returns True if its results are complete, which are then kept.

        A process without devices of the loop does not know that it has ended, and keeps both its state and its results.
        """
        progress = loop.advance(launch.arrays)
        if progress is not None:
            answer.progress.CopyFrom(progress)
            # Measured from the launch: measured from the end of another one in between, it would be too short.
            answer.progress.seconds = time.monotonic() - launch.began
            if progress.left:
                return False
            self._loops.drop(launch.message.execute.slice.loop_id)
        self._keep(launch)
        return True

    def _keep(self, launch: Launch) -> None:
        for array_id, array, result in zip(
            launch.kept, launch.arrays, launch.program.resolved.problem.results, strict=False
        ):
            self._resident_arrays.keep(array_id, result, array)

    def copy_out(self, resident: DeviceArray, target: Target | None, on_gathered: OnGathered) -> link_pb2.Executed:
        """Copies a resident array to its destination, or into the answer."""
        began = time.monotonic()
        answer = link_pb2.Executed()
        if target is None:
            answer.inline_results.append(self._in_answer(resident.array, resident.type))
        else:
            target.gather(resident.array, self._copier, on_gathered)
        answer.gather_seconds = time.monotonic() - began
        return answer

    def target(self, array_type: ArrayType, to: link_pb2.ResultDestination) -> Target | None:
        """Returns the destination of a result; None for the answer itself and for a resident result."""
        match to.WhichOneof("destination"):
            case "span":
                return Target(array_type, self._memory.view(array_type, to.span))
            case "blocks":
                return Target(array_type, self._memory.rest(to.blocks), is_complete=False)
        return None

    def source(self, array_type: ArrayType, data: link_pb2.TensorData) -> Source:
        """Returns the source of an array in a message or in shared memory."""
        match data.WhichOneof("source"):
            case "inline":
                return Source(array_type, np.ndarray(array_type.shape, array_type.dtype, buffer=data.inline))
            case "blocks":
                return Source(array_type, self._memory.rest(data.blocks), is_complete=False)
        return Source(array_type, self._memory.view(array_type, data.span))

    def _argument(
        self, array_type: ArrayType, placement: Placement, held: np.dtype, data: link_pb2.TensorData
    ) -> jax.Array | np.ndarray:
        direct = self._is_one_process and array_type.shape == placement.padded
        if direct and (inline := data.inline):
            # JAX aliases it, and shards a small array sooner than `put_padded` does.
            return np.ndarray(array_type.shape, held, inline)
        if data.HasField("array_id"):
            return self._resident_arrays.as_operand(data.array_id, placement)
        source = self.source(array_type, data)
        suits = direct and (array_type.nbytes <= SMALL_BYTES or len(placement.sharding.device_set) == 1)
        if source.is_complete and suits:
            return source.memory.view(held)
        return source.put(placement, self._copier, may_alias=True)

    def _gather_all(self, launch: Launch, on_gathered: OnGathered) -> list[bytes]:
        """Copies the results to their destinations; returns those for the answer."""
        inline, before = [], 0
        direct = launch.program.has_single_blocks and self._is_one_process
        types = launch.program.resolved.problem.results
        if not launch.arrays:  # results without elements
            return [b"" for _ in types]
        if direct and not any(launch.targets):
            return [np.asarray(array).tobytes() for array in launch.arrays[: len(types)]]
        for array, array_type, target in zip(launch.arrays, types, launch.targets, strict=False):
            if target is not None:
                target.gather(array, self._copier, partial(_report_offset, on_gathered, before))
            else:
                inline.append(self._in_answer(array, array_type))
            before += array_type.nbytes
        return inline

    def _values(self, launch: Launch) -> list[bytes]:
        """Returns the bytes of small resident results, and none for the others; an empty list if none is small."""
        types = launch.program.resolved.problem.results
        have_few = [0 < array_type.nbytes <= _VALUE_BYTES for array_type in types]
        if not self._is_one_process or not any(have_few):
            return []
        entries = zip(launch.arrays, types, have_few, strict=False)
        return [self._in_answer(array, array_type) if has_few else b"" for array, array_type, has_few in entries]

    def _in_answer(self, array: jax.Array, array_type: ArrayType) -> bytes:
        return in_answer(array, array_type, self._copier, is_complete=self._is_one_process)


def may_copy_now(resident: DeviceArray, target: Target | None) -> bool:
    """Returns True if an array is computed, and small: it has no target but the answer."""
    return target is None and _is_ready(resident.array)


def _report_offset(on_gathered: OnGathered, before: int, byte_count: int) -> None:
    on_gathered(before + byte_count)


def _nothing(program: Program, copier: ParallelCopier) -> Sequence[jax.Array]:
    """Returns results without elements, which need no computation."""
    return tuple(
        put_padded(np.empty(placement.padded, result.dtype), placement, copier, may_alias=False)
        for placement, result in zip(program.results, program.resolved.problem.results, strict=True)
    )
