"""Sends recorded calls: as one program, or one by one."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from shardcall._src.calls.call_memo import CallMemo
from shardcall._src.calls.call_request import CallRequest, prepare
from shardcall._src.calls.call_trace import TraceBuffer
from shardcall._src.device_arrays.array_version import ArrayVersion
from shardcall._src.programs.call_sender import CallSender
from shardcall._src.programs.fused_programs import FusedProgram, FusedPrograms, results_before
from shardcall._src.programs.pending_calls import PendingCall, lost_in_fork
from shardcall._src.programs.program_builder import ProgramBuilder, needed_nodes
from shardcall._src.programs.recorded_calls import RecordedCall, RecordedGraph
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S, Deadline
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
        timeout_s: the timeout of the calls.
    """

    def __init__(self, sender: CallSender, memo: CallMemo, timeout_s: float) -> None:
        self.history = TraceBuffer()
        self._sender = sender
        self._memo = memo
        self._timeout_s = timeout_s
        self._programs = FusedPrograms()

    def send(self, graph: RecordedGraph, *, is_cut: bool) -> None:
        """Sends the calls of a graph, whose lock is held, and clears it.

        Errors are those of the results; what interrupts this thread is raised.

        Args:
            graph: the calls.
            is_cut: True if they are an accidental part of those that the caller repeats.
        """
        check_held(graph.lock)
        calls, builder, location = graph.calls, graph.builder, graph.location
        kept = {call.number: version for call in calls if (version := call.kept) is not None}
        graph.sending = calls
        try:
            graph.clear()
            if kept and location is not None:  # else nobody can see what they compute
                self._send(_Batch(calls, builder, kept, location[1], Deadline(self._timeout_s)), is_cut=is_cut)
        finally:
            if graph.calls is calls or graph.builder is builder:  # this thread was interrupted
                graph.clear()
            for call in calls:
                if call.graph is not None:
                    call.graph = None
                    if call.number in kept:
                        _fail_interrupted(call)
            graph.sending = ()

    def abandon(self, graph: RecordedGraph) -> None:
        """Forgets the calls of a graph, whose lock is held, when the client is closed."""
        check_held(graph.lock)
        for call in graph.calls:
            call.graph = None
            call.fail(CallCancelledError("the call was cancelled: the client was closed"))
            if (version := call.kept) is not None:
                version.lost = "whose client was closed"
        graph.clear()

    def _send(self, batch: _Batch, *, is_cut: bool) -> None:
        results = list(batch.kept)
        program = self._programs.get(batch.calls, batch.builder, results, batch.decided_mesh)
        # A new program may begin with one that has run: a read after the last step of a loop then needs a program of
        # two calls, where another one of the complete step takes 0.19 s to compile.
        if not program.is_proven and not program.is_repeated:
            program.is_repeated = True
            count = self._programs.find_beginning(batch.calls, batch.builder, results, batch.decided_mesh)
            if count is not None:
                for part in self._parts(batch, count):
                    if part.kept:
                        self._send(part, is_cut=is_cut)
                return
        is_single = len(program.nodes) == 1
        if is_single or not self._programs.may_run(program, is_cut=is_cut) or not self._run_program(batch, program):
            self._run_one_by_one(batch, program.nodes)
            self._add_to_history(batch, program.nodes, "call" if is_single else "calls")

    def _add_to_history(self, batch: _Batch, indices: Sequence[int], ran_as: str) -> None:
        kernels = [batch.calls[i].template.kernel for i in indices]
        self.history.add(kernels, len(batch.kept), ran_as, batch.calls[indices[-1]].line)

    def _parts(self, batch: _Batch, count: int) -> tuple[_Batch, _Batch]:
        """Returns the first calls, with the results that the others need, and the others."""
        created = dict(batch.kept)
        for i in results_before(batch.builder, list(batch.kept), count):
            if i not in created:
                created[i] = self._new_result(batch, i)
        rest: ProgramBuilder[Operand] = ProgramBuilder()
        nodes = batch.builder.nodes
        for node in nodes[count:]:
            operands: list[Value | None] = []
            for value in node.operands:
                if value is None or value.node >= count:
                    operands.append(value and Value(value.node - count, 0))
                else:
                    item = created[value.node] if value.node >= 0 else batch.builder.inputs[value.number]
                    operands.append(rest.add_input(value, item))
            rest.add_node(node._replace(operands=tuple(operands)))
        first: ProgramBuilder[Operand] = ProgramBuilder()
        first.nodes, first.inputs = nodes[:count], batch.builder.inputs
        before = {i: created[i] for i in sorted(created) if i < count}
        after = {i - count: array for i, array in batch.kept.items() if i >= count}
        return (
            _Batch(batch.calls[:count], first, before, batch.mesh, batch.deadline),
            _Batch(batch.calls[count:], rest, after, batch.mesh, batch.deadline),
        )

    def _new_result(self, batch: _Batch, index: int) -> ArrayVersion:
        """Returns the result of a call that the caller has dropped, and another one needs."""
        call, owner = batch.calls[index], next(iter(batch.kept.values())).owner
        call.results = []
        return self._sender.new_result(owner, call.template.results[0], call, committed=call.committed)

    def _run_program(self, batch: _Batch, program: FusedProgram) -> bool:
        """Sends the calls as one program; returns False if the call stream does not take it.

        The answer to a new program is waited for. If the server refuses it, the calls are sent one by one.
        """
        calls = {i: batch.calls[i] for i in batch.kept}
        operands = [batch.builder.inputs[i] for i in program.inputs]
        first = next(iter(calls.values()))
        try:
            request = prepare("graph", operands, {"graph": program.graph}, memo=self._memo)
            if not self._sender.can_submit(request.values, batch.deadline):
                return False
            for index, (i, call) in enumerate(calls.items()):
                call.first = index
                call.depend_on([calls[other] for other in program.depends_on[i]])
            self._sender.send(request, list(batch.kept.values()), list(calls.values()), batch.deadline)
        except ShardcallError as error:
            for call in calls.values():
                call.graph = None
                call.fail(error)
            return True
        again = _FailedProgram(batch, self)
        for call in calls.values():
            call.graph, call.resend = None, again.send
            if call.is_done and not call.is_failed:
                call.resend = None
        if not program.is_proven:
            first.wait_answered(None)
        self._programs.add_run(program, first)
        if not first.is_failed or not self._is_refused(program, first, len(calls)):
            self._add_to_history(batch, program.nodes, "program")
        return True

    @staticmethod
    def _is_refused(program: FusedProgram, first: PendingCall, count: int) -> bool:
        """Returns True if the calls of a new program that failed are sent one by one now, and marks one not to be sent.

        Args:
            program: the program.
            first: the first of its calls with results.
            count: their number.
        """
        if not _may_run_one_by_one(first, count):
            program.is_refused = first.reason == "EXECUTE_LIMIT"
            return False
        program.is_refused = first.root is first and first.reason not in _OF_THE_MOMENT
        first.begin()
        return True

    def resend(self, batch: _Batch) -> None:
        """Sends the calls of a program that failed, those whose results the caller has."""
        if not batch.kept or not self._sender.can_submit(batch.builder.inputs, batch.deadline):
            return
        needed = needed_nodes(batch.builder.nodes, batch.kept)
        self._sender.pending.renew([batch.calls[i] for i in needed])
        self._sender.renew(list(batch.kept.values()))
        self._run_one_by_one(batch, needed)
        self._add_to_history(batch, needed, "calls")

    def _run_one_by_one(self, batch: _Batch, indices: Sequence[int]) -> None:
        """Sends calls one after the other."""
        versions = dict(batch.kept)
        for i in indices:
            call = batch.calls[i]
            if i not in versions:
                versions[i] = self._new_result(batch, i)
            operands: list[Operand] = []
            for value in batch.builder.nodes[i].operands:
                if value is None or value.node < 0:
                    operands.append(value and batch.builder.inputs[value.number])
                else:
                    operands.append(versions[value.node])
            try:
                request = call.template.request(operands, self._memo)
                if self._sender.can_submit(operands, batch.deadline):
                    self._sender.send(request, [versions[i]], [call], batch.deadline)
                else:
                    self._run(request, versions[i])
                    call.placed, call.is_done = versions[i].placed, True
            except ShardcallError as error:
                call.fail(error)
            call.graph = call.resend = None

    def _run(self, call: CallRequest, version: ArrayVersion) -> None:
        """Runs a call where there is no call stream."""
        client: Any = version.owner
        (result,) = client._run(call, call.values, DEFAULT_TIMEOUT_S, keep=True).arrays
        self._sender.adopt(version, result._version)


@dataclass
class _Batch:
    """Recorded calls that are sent together.

    Attributes:
        calls: the calls.
        builder: these as nodes, whose inputs are their operands.
        kept: the results that the caller has, or that calls of a later batch need, by the indices of their calls.
        mesh: the mesh of all results, or what stands for it.
        deadline: the deadline of the calls.
    """

    calls: Sequence[RecordedCall]
    builder: ProgramBuilder[Operand]
    kept: dict[int, ArrayVersion]
    mesh: Hashable
    deadline: Deadline

    @property
    def decided_mesh(self) -> Mesh | None:
        """The mesh; None if it is not known yet."""
        return self.mesh if isinstance(self.mesh, Mesh) else None


class _FailedProgram:
    """Sends the calls of a program one by one if it fails, once.

    It keeps no array: what the caller has dropped is not computed, nor what needs it.

    Args:
        batch: the calls.
        sender: sends them.
    """

    def __init__(self, batch: _Batch, sender: RecordedCallSender) -> None:
        self._calls = batch.calls
        self._nodes = batch.builder.nodes
        inputs = batch.builder.inputs
        self._inputs = [weakref.ref(x) if isinstance(x, ArrayVersion) else x for x in inputs]
        self._results = tuple(batch.kept)
        self._mesh = batch.mesh
        self._timeout_s = batch.deadline.timeout_s
        self._sender = sender
        self._is_sent = False
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Replaces the lock in a forked child, and fails the calls that a thread of the parent was about to send."""
        if self._is_sent:
            for call in self._unsent():
                call.resend = None
                call.fail(lost_in_fork(), is_raised=True)
        # Held while the calls are sent, so that others who need the results wait; comes after the graph's lock.
        self._lock = lock("the lock of a failed program", 20)

    def send(self) -> None:
        """Sends the calls, if nobody has, after those of failed programs that make their operands."""
        for reference in self._inputs:
            version = reference() if isinstance(reference, weakref.ref) else None
            if version is not None and (maker := version.pending) is not None:
                maker.begin()
        with self._lock:
            if self._is_sent:
                return
            self._is_sent = True
            try:
                if _may_run_one_by_one(self._calls[self._results[0]], len(self._results)):
                    self._sender.resend(self._batch())
            finally:
                for call in self._unsent():
                    _fail_interrupted(call)
                for i in self._results:
                    self._calls[i].resend = None

    def _unsent(self) -> list[RecordedCall]:
        """Returns the calls that were to be sent one by one and were not."""
        calls = [self._calls[i] for i in self._results]
        return [call for call in calls if call.resend is not None and call.is_unsent]

    def _batch(self) -> _Batch:
        versions = [reference() if isinstance(reference, weakref.ref) else reference for reference in self._inputs]
        builder: ProgramBuilder[Operand] = ProgramBuilder()
        builder.nodes = self._nodes
        builder.inputs = versions
        kept = {}
        for i in self._results:
            version = self._calls[i].kept
            if version is not None and not version.lost and all(versions[k] is not None for k in self._needs(i)):
                kept[i] = version
        return _Batch(self._calls, builder, kept, self._mesh, Deadline(self._timeout_s))

    def _needs(self, index: int) -> set[int]:
        """Returns the indices of the operands that a result needs."""
        values = (value for i in needed_nodes(self._nodes, [index]) for value in self._nodes[i].operands)
        return {value.number for value in values if value is not None and value.node < 0}


def _fail_interrupted(call: RecordedCall) -> None:
    # The interrupted thread learns of that.
    call.fail(CallCancelledError("the call was interrupted before it was sent"), is_raised=True)


def _may_run_one_by_one(call: PendingCall, count: int) -> bool:
    """Returns True if calls of a program that failed may succeed one by one.

    Args:
        call: the first of those that wait for its results.
        count: the number of its results; where it is one, that needs all operands.
    """
    if call.reason is None or call.reason in _NOT_OF_THE_PROGRAM:
        return False
    return count > 1 or (call.root is call and call.reason != "ARRAY_LOST")
