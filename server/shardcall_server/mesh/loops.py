"""Loops that run in slices: launches of some iterations each, between which their state stays on the devices."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import required
from shardcall_server.compilation.program import Placement, Program
from shardcall_server.kernels.graphs.graph_kernel import GraphParameters
from shardcall_server.mesh.placement import ParallelCopier, put_padded
from shardcall_server.mesh.profiling import recordable
from shardcall_server.mesh.resident_arrays import DeviceArray, ResidentArrays
from shardcall_worker.v1 import loop_pb2


class LoopState:
    """The state of a loop.

    Args:
        program: the program of a slice.
        operands: the operands of the next slice; the last is the number of iterations that are left.
        resident_arrays: moves results to where the next slice takes them.
        copier: copies host memory.
    """

    def __init__(
        self,
        program: Program,
        operands: list[jax.Array | np.ndarray],
        resident_arrays: ResidentArrays,
        copier: ParallelCopier,
    ) -> None:
        self.program = program
        self._operands = operands
        self._resident_arrays = resident_arrays
        self._copier = copier

    def arguments(self, command: loop_pb2.LoopSlice) -> list[jax.Array | np.ndarray]:
        """Returns the arguments of the next slice."""
        max_iterations = command.max_iterations
        if jax.process_count() == 1:  # several processes begin a recording at different launches
            max_iterations = recordable(self.program, max_iterations)
        return [*self._operands, self._number(max_iterations, required(self.program.limit))]

    def advance(self, arrays: Sequence[jax.Array]) -> loop_pb2.LoopProgress | None:
        """Makes the results of a slice the operands of the next one.

        Args:
            arrays: the results of the slice, flags and progress; empty if the program has no elements to compute.

        Returns:
            The progress; None if this process has no device of the mesh.
        """
        if not arrays:
            return loop_pb2.LoopProgress()
        problem, operands = self.program.resolved.problem, self._operands
        parameters: GraphParameters = problem.parameters
        for index, array, result in zip(parameters.carried, arrays, problem.results, strict=False):
            if index >= 0:
                placement = required(self.program.operands[index])
                operands[index] = self._resident_arrays.placed(DeviceArray(result, array), placement)
        shards = arrays[-1].addressable_shards
        if not shards:
            return None
        left, ran = np.asarray(shards[0].data).tolist()
        operands[-1] = self._number(left, required(self.program.operands[-1]))
        return loop_pb2.LoopProgress(left=left, ran=ran)

    def _number(self, number: int, placement: Placement) -> jax.Array | np.ndarray:
        array = np.asarray(number, np.int64)
        return array if jax.process_count() == 1 else put_padded(array, placement, self._copier, may_alias=False)


class Loops:
    """The running loops, by their ids.

    Threads share them without a lock: every use is one operation of a dictionary.
    """

    def __init__(self, resident_arrays: ResidentArrays, copier: ParallelCopier) -> None:
        self._resident_arrays = resident_arrays
        self._copier = copier
        self._states: dict[int, LoopState] = {}

    def state(self, program: Program, command: loop_pb2.LoopSlice, operands: list[jax.Array | np.ndarray]) -> LoopState:
        """Returns the state of a loop, which begins with these operands unless it resumes.

        Raises:
            CallError: for a loop that has ended.
        """
        if not command.resumes:
            self._states[command.loop_id] = LoopState(program, operands, self._resident_arrays, self._copier)
        return self._state(command.loop_id)

    def program(self, loop_id: int) -> Program:
        """Returns the program of a loop, which may have been evicted."""
        return self._state(loop_id).program

    def drop(self, loop_id: int) -> None:
        """Releases the state of a loop; an id without one is ignored."""
        self._states.pop(loop_id, None)

    def _state(self, loop_id: int) -> LoopState:
        state = self._states.get(loop_id)
        if state is None:
            raise CallError(Reason.INTERNAL, "the loop has ended")
        return state
