"""Sends recorded calls: as one program, or one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardcall._src.calls.call_memo import CallMemo
from shardcall._src.calls.call_request import CallRequest, prepare
from shardcall._src.calls.call_trace import TraceBuffer
from shardcall._src.calls.fused_programs import FusedProgram, FusedPrograms
from shardcall._src.calls.pending_calls import PendingCall, SubmittedResult
from shardcall._src.calls.recorded_graph import RecordedGraph, RecordedNode
from shardcall._src.calls.remote_arrays import RemoteArrays
from shardcall._src.device_arrays.remote_array import RemoteArray, mark_lost
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S, Deadline, deadline
from shardcall._src.transfer.upload import Value as Operand
from shardcall._src.types.errors import CallCancelledError, ShardcallError

_NOT_OF_THE_PROGRAM = frozenset(
    (
        *("MESH_RESTARTED", "ARRAY_LOST", "DEADLINE_EXCEEDED", "CANCELLED", "SERVER_BUSY", "SERVER_DRAINING"),
        *("MESH_NOT_READY", "TOKEN_REQUIRED", "SCOPE_MISSING", "QUOTA_EXCEEDED", "STREAM_IDLE", ""),
    )
)
"""The reasons for which the calls would fail one by one, too."""


class RecordedSending:
    """Sends the recorded calls of a client.

    Args:
        arrays: the arrays of the client.
        memo: the messages of the client's calls.
        most_seconds: the longest timeout.
    """

    def __init__(self, arrays: RemoteArrays, memo: CallMemo, most_seconds: float) -> None:
        self.history = TraceBuffer()
        self._arrays = arrays
        self._memo = memo
        self._most_seconds = most_seconds
        self._programs = FusedPrograms()

    def send(self, graph: RecordedGraph, *, is_cut: bool) -> None:
        """Sends the calls of a graph whose lock this thread holds, and clears it.

        Errors are those of the results; what interrupts this thread is raised.

        Args:
            graph: the calls.
            is_cut: True if they are an accidental part of those that the caller repeats.
        """
        nodes, inputs = graph.nodes, graph.inputs
        kept = _kept(nodes)
        devices = graph.devices
        graph.clear()
        if kept:  # else nobody can see what they compute
            until = deadline(DEFAULT_TIMEOUT_S, self._most_seconds)
            self._send(
                _Batch(nodes, inputs, kept, self._programs.get(nodes, list(kept)), devices, until), is_cut=is_cut
            )

    def _send(self, batch: _Batch, *, is_cut: bool) -> None:
        is_single, ran_as = len(batch.program.nodes) == 1, "program"
        try:
            may_fuse = not is_single and self._programs.may_run(batch.program, is_cut=is_cut)
            if not may_fuse or not self._run_program(batch):
                ran_as = "call" if is_single else "calls"
                self._run_one_by_one(batch)
            self._trace(batch, ran_as)
        finally:
            for i in batch.kept:
                if batch.nodes[i].result.actual is None and batch.nodes[i].result.placed is None:
                    self._fail(batch, i, CallCancelledError("the call was interrupted before it was sent"))

    def abandon(self, graph: RecordedGraph) -> None:
        """Forgets the calls of a graph when the client is closed."""
        for node in graph.nodes:
            call = PendingCall(self._arrays.pending, node.template.kernel, node.template.types, 0.0, str(node))
            call.fail(CallCancelledError("the call was cancelled: the client was closed"))
            node.result.actual = SubmittedResult(call, 0)
        for array in _kept(graph.nodes).values():
            mark_lost(array, "whose client was closed")
        graph.clear()

    def _run_program(self, batch: _Batch) -> bool:
        """Sends the calls as one program; returns False if the server refuses it, so that they must be sent."""
        program = batch.program
        operands = [batch.inputs[i] for i in program.inputs]
        calls = {i: self._pending(batch, i) for i in batch.kept}
        try:
            call = prepare("graph", operands, {"graph": program.text}, memo=self._memo)
            if not self._arrays.can_submit(call.values, batch.until):
                return False
            self._arrays.send_recorded(call, list(batch.kept.values()), list(calls.values()), batch.until)
        except ShardcallError as error:
            for i in batch.kept:
                self._fail(batch, i, error)
            return True
        try:
            if not program.is_proven:
                self._prove(program, list(calls.values()))
        finally:
            if program.is_refused:
                self._arrays.renew(list(batch.kept.values()))
            else:
                for index, (i, pending) in enumerate(calls.items()):
                    batch.publish(i, SubmittedResult(pending, index, batch.devices))
        return not program.is_refused

    def _prove(self, program: FusedProgram, calls: Sequence[PendingCall]) -> None:
        """Waits for the first answer of a program: its calls can be sent one by one while their operands are there."""
        first = calls[0]
        self._arrays.pending.wait(first, None)
        program.is_proven = not first.is_failed
        if _is_refused(first):
            program.is_refused = True
            for call in calls:
                call.is_raised = True

    def _run_one_by_one(self, batch: _Batch) -> None:
        """Sends the calls one after the other, those whose results are needed."""
        arrays: dict[int, RemoteArray] = dict(batch.kept)
        for i in batch.program.nodes:
            node = batch.nodes[i]
            operands = [
                None if value is None else batch.inputs[value.number] if value.node < 0 else arrays[value.node]
                for value in node.operands
            ]
            pending = self._pending(batch, i)
            try:
                call = prepare(node.template.kernel, operands, dict(node.template.parameters), memo=self._memo)
                owner = next(iter(batch.kept.values()))._owner
                array = arrays.setdefault(
                    i, self._arrays.recorded(owner, node.template.result, None, committed=node.committed)
                )
                if self._arrays.can_submit(call.values, batch.until):
                    self._arrays.send_recorded(call, [array], [pending], batch.until)
                else:
                    self._run(call, array)
                    node.result.placed = array._version.placed
                    continue
            except ShardcallError as error:
                pending.fail(error)
            result = SubmittedResult(pending, 0, batch.devices)
            if i in batch.kept:
                batch.publish(i, result)
            elif array._version.placed is None:
                array._version.pending = result

    def _run(self, call: CallRequest, array: RemoteArray) -> None:
        """Runs a call where there is no call stream."""
        client: Any = array._owner
        (made,) = client._run(call, call.values, DEFAULT_TIMEOUT_S, keep=True).arrays
        self._arrays.adopt(array, made)

    def _pending(self, batch: _Batch, index: int) -> PendingCall:
        node = batch.nodes[index]
        return PendingCall(
            self._arrays.pending, node.template.kernel, node.template.types, batch.until.timeout_s, str(node)
        )

    def _fail(self, batch: _Batch, index: int, error: ShardcallError) -> None:
        pending = self._pending(batch, index)
        pending.fail(error)
        batch.publish(index, SubmittedResult(pending, 0))

    def _trace(self, batch: _Batch, ran_as: str) -> None:
        nodes = [batch.nodes[i] for i in batch.program.nodes]
        self.history.add([node.template.kernel for node in nodes], len(batch.kept), ran_as, str(nodes[-1]))


class _Batch:
    """Recorded calls that are sent together.

    Attributes:
        nodes: the calls.
        inputs: their operands.
        kept: the results that the caller has, by the indices of their calls.
        program: the program that they may run as.
        devices: the devices of the operands, if they are known.
        until: the deadline of the calls.
    """

    def __init__(
        self,
        nodes: Sequence[RecordedNode],
        inputs: Sequence[Operand],
        kept: dict[int, RemoteArray],
        program: FusedProgram,
        devices: tuple[int, ...] | None,
        until: Deadline,
    ) -> None:
        self.nodes = nodes
        self.inputs = inputs
        self.kept = kept
        self.program = program
        self.devices = devices
        self.until = until

    def publish(self, index: int, result: SubmittedResult) -> None:
        """Registers the result of a call for waiting."""
        version = self.kept[index]._version
        if version.placed is None:
            version.pending = result
        self.nodes[index].result.actual = result


def _kept(nodes: Sequence[RecordedNode]) -> dict[int, RemoteArray]:
    """Returns the results of recorded calls that the caller has, by the indices of the calls."""
    versions = ((i, None if node.version is None else node.version()) for i, node in enumerate(nodes))
    return {i: RemoteArray._of(version) for i, version in versions if version is not None}


def _is_refused(call: PendingCall) -> bool:
    return call.reason is not None and call.reason not in _NOT_OF_THE_PROGRAM and call.root is call
