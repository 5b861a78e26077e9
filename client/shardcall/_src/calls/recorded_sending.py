"""Sends recorded calls: as one program, or one by one."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from shardcall._src.calls.call_memo import CallMemo
from shardcall._src.calls.call_request import CallRequest, prepare
from shardcall._src.calls.call_sender import CallSender
from shardcall._src.calls.call_trace import TraceBuffer
from shardcall._src.calls.fused_programs import FusedProgram, FusedPrograms, needed_calls, results_before
from shardcall._src.calls.pending_call import PendingCall, SubmittedResult
from shardcall._src.calls.recorded_graph import RecordedGraph, RecordedNode
from shardcall._src.device_arrays.array_version import ArrayVersion
from shardcall._src.device_arrays.remote_array import RemoteArray, mark_lost
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S, Deadline, deadline_after
from shardcall._src.transfer.upload import Value as Operand
from shardcall_core.graphs.graph import Value
from shardcall_core.locks import check_held, lock
from shardcall_core.types.errors import CallCancelledError, ShardcallError
from shardcall_core.types.mesh import Mesh
from shardcall_core.wire.forks import begin_anew_in_children

_NOT_OF_THE_PROGRAM = frozenset(
    (
        *("MESH_RESTARTED", "DEADLINE_EXCEEDED", "CANCELLED", "SERVER_BUSY", "SERVER_DRAINING"),
        *("MESH_NOT_READY", "TOKEN_REQUIRED", "SCOPE_MISSING", "QUOTA_EXCEEDED", "STREAM_IDLE", "EXECUTE_LIMIT", ""),
    )
)
"""The reasons for which all calls would fail one by one, too."""

_OF_THE_MOMENT = frozenset(("ARRAY_LOST", "OUT_OF_DEVICE_MEMORY", "OUT_OF_HOST_MEMORY", "RESIDENT_LIMIT"))
"""The reasons for which a program may run another time."""


class RecordedCallSender:
    """Sends the recorded calls of a client.

    Args:
        sender: sends the calls.
        memo: the messages of the client's calls.
        max_seconds: the longest timeout.
    """

    def __init__(self, sender: CallSender, memo: CallMemo, max_seconds: float) -> None:
        self.history = TraceBuffer()
        self._sender = sender
        self._memo = memo
        self._max_seconds = max_seconds
        self._programs = FusedPrograms()

    def send(self, graph: RecordedGraph, *, is_cut: bool) -> None:
        """Sends the calls of a graph, whose lock is held, and clears it.

        Errors are those of the results; what interrupts this thread is raised.

        Args:
            graph: the calls.
            is_cut: True if they are an accidental part of those that the caller repeats.
        """
        check_held(graph.lock)
        nodes, inputs, location = graph.nodes, graph.inputs, graph.location
        kept = _kept(nodes)
        graph.sending = nodes
        graph.clear()
        try:
            if kept and location is not None:  # else nobody can see what they compute
                deadline = deadline_after(DEFAULT_TIMEOUT_S, self._max_seconds)
                self._send(_Batch(nodes, inputs, kept, location[1], deadline), is_cut=is_cut)
        finally:
            for i, array in kept.items():
                if not nodes[i].result.is_sent:
                    self._interrupted(nodes[i], array)
            graph.sending = ()

    def _send(self, batch: _Batch, *, is_cut: bool) -> None:
        program = self._programs.get(batch.nodes, list(batch.kept), batch.decided_mesh)
        # A new program may begin with one that has run: a read after the last step of a loop then needs a program of
        # two calls, where another one of the complete step takes 0.19 s to compile.
        if not program.is_proven and not program.is_repeated:
            program.is_repeated = True
            count = self._programs.find_beginning(batch.nodes, list(batch.kept), batch.decided_mesh)
            if count is not None:
                self._send(self._beginning(batch, count), is_cut=is_cut)
                if (rest := batch.rest(count)).kept:
                    self._send(rest, is_cut=is_cut)
                return
        is_single, ran_as = len(program.nodes) == 1, "program"
        may_fuse = not is_single and self._programs.may_run(program, is_cut=is_cut)
        if not may_fuse or not self._run_program(batch, program):
            ran_as = "call" if is_single else "calls"
            self._run_one_by_one(batch, program.nodes)
        self._add_to_history(batch, program.nodes, ran_as)

    def _add_to_history(self, batch: _Batch, indices: Sequence[int], ran_as: str) -> None:
        nodes = [batch.nodes[i] for i in indices]
        self.history.add([node.template.kernel for node in nodes], len(batch.kept), ran_as, str(nodes[-1]))

    def _beginning(self, batch: _Batch, count: int) -> _Batch:
        """Returns the first calls, with the results that the others need."""
        owner = next(iter(batch.kept.values()))._owner
        for i in results_before(batch.nodes, list(batch.kept), count):
            if i not in batch.created:
                node = batch.nodes[i]
                batch.created[i] = self._sender.new_result(owner, node.template.result, None, committed=node.committed)
        kept = {i: batch.created[i] for i in sorted(batch.created) if i < count}
        return _Batch(batch.nodes[:count], batch.inputs, kept, batch.mesh, batch.deadline)

    def abandon(self, graph: RecordedGraph) -> None:
        """Forgets the calls of a graph, whose lock is held, when the client is closed."""
        check_held(graph.lock)
        for node in graph.nodes:
            call = PendingCall(self._sender.pending, node.template.kernel, node.template.types, 0.0, str(node))
            call.fail(CallCancelledError("the call was cancelled: the client was closed"))
            node.result.actual = SubmittedResult(call, 0)
        for array in _kept(graph.nodes).values():
            mark_lost(array, "whose client was closed")
        graph.clear()

    def _run_program(self, batch: _Batch, program: FusedProgram) -> bool:
        """Sends the calls as one program; returns False if the server refuses it, so that they must be sent."""
        operands = [batch.inputs[i] for i in program.inputs]
        calls = self._calls_of(batch, program)
        try:
            call = prepare("graph", operands, {"graph": program.graph}, memo=self._memo)
            if not self._sender.can_submit(call.values, batch.deadline):
                return False
            self._sender.send(call, list(batch.kept.values()), list(calls.values()), batch.deadline)
        except ShardcallError as error:
            for i, pending in self._calls_of(batch, program).items():
                pending.fail(error)
                batch.publish(i, SubmittedResult(pending, 0))
            return True
        is_refused = False
        try:
            if not program.is_proven:
                is_refused = self._is_refused(program, list(calls.values()))
            self._programs.add_run(program, next(iter(calls.values())))
        finally:
            if is_refused:
                self._sender.renew(list(batch.kept.values()))
            else:
                results = {i: SubmittedResult(calls[i], index, batch.mesh) for index, i in enumerate(calls)}
                for i, result in results.items():
                    batch.publish(i, result)
                again = _FailedProgram(batch, results, self._resend)
                for pending in calls.values():
                    pending.resend = again.send
                    if pending.is_done and not pending.is_failed:
                        pending.resend = None
        return not is_refused

    def _is_refused(self, program: FusedProgram, calls: Sequence[PendingCall]) -> bool:
        """Waits for the answer of a new program; returns True if its calls are to be sent one by one.

        They can be sent as long as their operands are there.
        """
        first = calls[0]
        self._sender.pending.wait(first, None)
        if not _may_run_one_by_one(first, len(calls)):
            program.is_refused = first.reason == "EXECUTE_LIMIT"
            return False
        program.is_refused = first.root is first and first.reason not in _OF_THE_MOMENT
        for call in calls:
            call.is_raised = True
        return True

    def _calls_of(self, batch: _Batch, program: FusedProgram) -> dict[int, PendingCall]:
        """Returns a call for each result, by the indices of the recorded calls."""
        calls = {i: self._pending(batch, i) for i in batch.kept}
        for i, call in calls.items():
            call.depend_on([calls[other] for other in sorted(program.depends_on[i])])
        return calls

    def _resend(self, batch: _Batch, results: Mapping[int, SubmittedResult]) -> None:
        """Sends the calls of a program that failed, those whose results the caller has.

        Args:
            batch: the calls.
            results: their results.
        """
        first = next(iter(results.values())).call
        if not batch.kept or not _may_run_one_by_one(first, len(results)):
            return
        if not self._sender.can_submit([value for value in batch.inputs if value is not None], batch.deadline):
            return
        self._sender.renew(list(batch.kept.values()))
        for i in batch.kept:
            results[i].call.is_raised = True
        needed = sorted(needed_calls(batch.nodes, batch.kept))
        self._run_one_by_one(batch, needed)
        self._add_to_history(batch, needed, "calls")
        for i in batch.kept:
            if (result := batch.nodes[i].result.actual) is not None and result is not results[i]:
                results[i].replace(result)

    def _run_one_by_one(self, batch: _Batch, indices: Iterable[int]) -> None:
        """Sends calls one after the other."""
        owner = next(iter(batch.kept.values()))._owner
        arrays: dict[int, RemoteArray] = dict(batch.kept)
        for i in indices:
            node = batch.nodes[i]
            if i not in arrays:
                arrays[i] = self._sender.new_result(owner, node.template.result, None, committed=node.committed)
            array = arrays[i]
            operands = [
                None if value is None else batch.inputs[value.number] if value.node < 0 else arrays[value.node]
                for value in node.operands
            ]
            pending = self._pending(batch, i)
            try:
                call = node.template.request(operands, self._memo)
                if self._sender.can_submit(call.values, batch.deadline):
                    self._sender.send(call, [array], [pending], batch.deadline)
                else:
                    self._run(call, array)
                    node.result.placed = array._version.placed
                    continue
            except ShardcallError as error:
                pending.fail(error)
            result = SubmittedResult(pending, 0, batch.mesh)
            if i in batch.kept:
                batch.publish(i, result)
            elif array._version.placed is None:
                array._version.pending = result

    def _run(self, call: CallRequest, array: RemoteArray) -> None:
        """Runs a call where there is no call stream."""
        client: Any = array._owner
        (result,) = client._run(call, call.values, DEFAULT_TIMEOUT_S, keep=True).arrays
        self._sender.adopt(array, result)

    def _pending(self, batch: _Batch, index: int) -> PendingCall:
        node = batch.nodes[index]
        call = PendingCall(
            self._sender.pending, node.template.kernel, node.template.types, batch.deadline.timeout_s, str(node)
        )
        call.results = [] if node.version is None else [node.version]
        return call

    def _interrupted(self, node: RecordedNode, array: RemoteArray) -> None:
        """Fails a call that was not sent because this thread was interrupted."""
        template = node.template
        call = PendingCall(self._sender.pending, template.kernel, template.types, DEFAULT_TIMEOUT_S, str(node))
        call.fail(CallCancelledError("the call was interrupted before it was sent"))
        call.is_raised = True  # as the interrupt
        _publish(node, array, SubmittedResult(call, 0))


class _Batch:
    """Recorded calls that are sent together.

    Attributes:
        nodes: the calls.
        inputs: their operands.
        kept: the results that the caller has, by the indices of their calls.
        result: these, and results that only calls of a later batch need.
        mesh: the mesh of all results, or what stands for it.
        deadline: the deadline of the calls.
    """

    def __init__(
        self,
        nodes: Sequence[RecordedNode],
        inputs: Sequence[Operand],
        kept: dict[int, RemoteArray],
        mesh: Hashable,
        deadline: Deadline,
    ) -> None:
        self.nodes = nodes
        self.inputs = inputs
        self.kept = kept
        self.created = dict(kept)
        self.mesh = mesh
        self.deadline = deadline

    @property
    def decided_mesh(self) -> Mesh | None:
        """The mesh; None if it is not known yet."""
        return self.mesh if isinstance(self.mesh, Mesh) else None

    def publish(self, index: int, result: SubmittedResult) -> None:
        """Registers the result of a call for waiting."""
        _publish(self.nodes[index], self.kept[index], result)

    def rest(self, count: int) -> _Batch:
        """Returns all but the first calls, whose results are operands."""
        numbers: dict[Value, int] = {}
        nodes = []
        for node in self.nodes[count:]:
            values = [
                None
                if value is None
                else Value(value.node - count, 0)
                if value.node >= count
                else Value(-1, numbers.setdefault(value, len(numbers)))
                for value in node.operands
            ]
            rest = RecordedNode(node.template, tuple(values), node.result, node.line, committed=node.committed)
            nodes.append(rest)
        inputs = [self.inputs[value.number] if value.node < 0 else self.created[value.node] for value in numbers]
        kept = {i - count: array for i, array in self.kept.items() if i >= count}
        return _Batch(nodes, inputs, kept, self.mesh, self.deadline)


class _FailedProgram:
    """Sends the calls of a program one by one if it fails, once.

    It keeps no array: what the caller has dropped is not computed, nor what needs it.

    Args:
        batch: the calls.
        results: their results, by the indices of the calls.
        send: sends them.
    """

    def __init__(
        self,
        batch: _Batch,
        results: Mapping[int, SubmittedResult],
        send: Callable[[_Batch, Mapping[int, SubmittedResult]], None],
    ) -> None:
        self._nodes = batch.nodes
        self._inputs = [weakref.ref(x._version) if isinstance(x, RemoteArray) else x for x in batch.inputs]
        self._mesh = batch.mesh
        self._timeout_s = batch.deadline.timeout_s
        self._results = results
        self._send = send
        self.begin_anew()
        self._is_sent = False
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Replaces the lock in a forked child."""
        # Held while the calls are sent, so that others who need the results wait; comes after the graph's lock.
        self._lock = lock("the lock of a failed program", 20)

    def send(self) -> None:
        """Sends the calls, if nobody has."""
        with self._lock:
            if not self._is_sent:
                self._is_sent = True
                self._send(self._batch(), self._results)

    def _batch(self) -> _Batch:
        versions = [reference() if isinstance(reference, weakref.ref) else reference for reference in self._inputs]
        inputs = [
            RemoteArray._of(reference) if isinstance(reference, ArrayVersion) else reference for reference in versions
        ]
        kept = {
            i: array
            for i, array in _kept(self._nodes).items()
            if i in self._results and not array.lost and all(inputs[k] is not None for k in self._needs(i))
        }
        return _Batch(self._nodes, inputs, kept, self._mesh, Deadline(self._timeout_s))

    def _needs(self, index: int) -> set[int]:
        """Returns the indices of the operands that a result needs."""
        values = (value for i in needed_calls(self._nodes, [index]) for value in self._nodes[i].operands)
        return {value.number for value in values if value is not None and value.node < 0}


def _may_run_one_by_one(call: PendingCall, count: int) -> bool:
    """Returns True if calls of a program that failed may succeed one by one.

    Args:
        call: the first of those that wait for its results.
        count: the number of its results; where it is one, that needs all operands.
    """
    if call.reason is None or call.reason in _NOT_OF_THE_PROGRAM:
        return False
    return count > 1 or (call.root is call and call.reason != "ARRAY_LOST")


def _publish(node: RecordedNode, array: RemoteArray, result: SubmittedResult) -> None:
    version = array._version
    if version.placed is None:
        version.pending = result
    node.result.actual = result


def _kept(nodes: Sequence[RecordedNode]) -> dict[int, RemoteArray]:
    """Returns the results of recorded calls that the caller has, by the indices of the calls."""
    versions = ((i, None if node.version is None else node.version()) for i, node in enumerate(nodes))
    return {i: RemoteArray._of(version) for i, version in versions if version is not None}
