"""Traces the calls of functions, and submits the programs that they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from shardcall._src.calls.call_memo import CallMemo
from shardcall._src.calls.call_request import CallOptions, prepare
from shardcall._src.calls.result import Result
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.programs.submitter import Submitter, SubmittingClient
from shardcall._src.traced.large_constants import LargeConstants
from shardcall._src.traced.program import TracedProgram
from shardcall._src.traced.traced_array import TracedArray
from shardcall._src.traced.tracing import ActiveTrace
from shardcall.v1.kernel_pb2 import KernelCall
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.mesh import MeshLike
from shardcall_core.types.specs import PartitionSpec, SpecLike
from shardcall_core.types.timing import Timing


class CallTracer:
    """Traces the calls of a client, and submits programs.

    Attributes:
        active: the trace that calls of this thread belong to.

    Args:
        submitter: submits the stages of programs.
        memo: the messages of the client's calls.
    """

    def __init__(self, submitter: Submitter, memo: CallMemo[KernelCall]) -> None:
        self.active = ActiveTrace()
        self._submitter = submitter
        self._memo = memo
        self._constants = LargeConstants(submitter.pending)

    def is_tracing(self, operands: Sequence[Any]) -> bool:
        """Returns True while this thread traces a function.

        Args:
            operands: the operands of a call.

        Raises:
            TracingError: if there is no trace and an operand is an array of one.
        """
        if self.active.trace is not None:
            return True
        for operand in operands:
            if type(operand) is TracedArray:
                operand._traced.begin()
        return False

    def add(
        self, name: str, operands: Sequence[Any], parameters: Mapping[str, Any], options: CallOptions
    ) -> tuple[TracedArray, ...]:
        """Adds a call to the program of the function that is traced; returns its results."""
        trace = self.active.trace
        assert trace is not None
        return trace.submit(name, operands, parameters, options)

    def result(
        self, name: str, operands: Sequence[Any], parameters: Mapping[str, Any], options: CallOptions
    ) -> Result[Any]:
        """Adds a call; returns its results as those of a call that is waited for."""
        results = self.add(name, operands, parameters, options)
        return Result(arrays=results, timing=Timing(), cache_hit=True, explanation="", _plan=b"")

    def constant(self, array: NDArray, mesh: MeshLike | None, spec: SpecLike | None) -> TracedArray:
        """Returns an array of this process as one of the program, sharded by a spec if there is one."""
        trace = self.active.trace
        assert trace is not None
        constant = trace.constant(array)
        if mesh is None and spec is None:
            return constant
        return self.add("reshard", [constant], {}, CallOptions(mesh, out_specs=[spec]))[0]

    def submit_program(
        self,
        client: SubmittingClient,
        program: TracedProgram,
        operands: Sequence[Any],
        out_specs: Sequence[PartitionSpec | None] | None,
        timeout: float | None,
    ) -> Sequence[RemoteArray]:
        """Submits the stages of a program without waiting in between; returns its results."""
        self._submitter.flush()
        operands = [*operands]
        for i in program.large_constants:
            operands[i] = self._constants.find_or_put(client, program.constants[i], operands[i])
        results: list[Sequence[RemoteArray]] = []
        for i, (stage, types) in enumerate(zip(program.stages, program.stage_types, strict=True)):
            values = [operands[v.number] if v.node < 0 else results[v.node][v.number] for v in stage.operands]
            options = CallOptions(out_specs=program.specs_of(i, out_specs))
            call = prepare("graph", values, stage.parameters, options, memo=self._memo)
            arrays = self._submitter.send(
                client,
                call,
                types,
                timeout,
                name=program.name,
                stops_unread=timeout is None,
                located=partial(program.located, i),
            )
            results.append(arrays)
        return [results[value.node][value.number] for value in program.returned]
