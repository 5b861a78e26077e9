"""Sends recorded calls: as one program, or one by one, also again after that program has failed."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

from shardcall._src.calls.call_memo import CallMemo
from shardcall._src.calls.call_request import CallRequest, prepare
from shardcall._src.calls.call_trace import TraceBuffer
from shardcall._src.device_arrays.array_version import ArrayVersion
from shardcall._src.programs.call_sender import CallSender
from shardcall._src.programs.fused_programs import FusedProgram, FusedPrograms
from shardcall._src.programs.pending_calls import PendingCall
from shardcall._src.programs.program_builder import needed_nodes, sources_of
from shardcall._src.programs.recorded_calls import CallRecording, RecordedBatch
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S, Deadline
from shardcall._src.transfer.upload import Value as Operand
from shardcall.v1.kernel_pb2 import KernelCall
from shardcall_core.locks import check_held, lock
from shardcall_core.types.errors import ShardcallError
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

    Attributes:
        timeout_s: the timeout of the calls.

    Args:
        sender: sends the calls.
        memo: the messages of the client's calls.
        timeout_s: as the attribute.
    """

    def __init__(self, sender: CallSender, memo: CallMemo[KernelCall], timeout_s: float) -> None:
        self.history = TraceBuffer()
        self._sender = sender
        self._memo = memo
        self.timeout_s = timeout_s
        self._programs = FusedPrograms()

    def send(self, recording: CallRecording, *, is_cut: bool) -> None:
        """Sends the calls of a thread, whose lock is held, which then begins another batch.

        Errors are those of the results; what interrupts this thread is raised. It may do so at any point: what was not
        sent by then stays, and is sent next.

        Args:
            recording: the calls.
            is_cut: True if they are an accidental part of those that the caller repeats.
        """
        check_held(recording.lock)
        if recording.batch.calls:
            # In one step: no signal is handled between the two assignments.
            recording.unsent, recording.batch = [*recording.unsent, recording.batch], RecordedBatch()
        while recording.unsent:
            batch = recording.unsent[0]
            if batch.has_begun:
                self.resend(batch, [i for i, call in enumerate(batch.calls) if call.recording is not None])
            else:
                batch.has_begun = True
                batch.kept = {call.number: version for call in batch.calls if (version := call.kept) is not None}
                if batch.kept:  # else nobody can see what they compute
                    self._send(batch, Deadline(self.timeout_s), is_cut=is_cut)
            for call in batch.calls:
                if call.recording is not None:
                    call.recording = None
                    call.drop_replaced()
            del recording.unsent[0]

    def abandon(self, recording: CallRecording, error: ShardcallError, why_lost: str = "") -> None:
        """Forgets the calls of a thread, whose lock is held, and fails them.

        Args:
            recording: the calls.
            error: their error.
            why_lost: why their results are lost for good; empty if they only fail.
        """
        check_held(recording.lock)
        for call in recording.calls:
            call.recording = None
            call.fail(error)
            if why_lost and (version := call.kept) is not None:
                version.lose(why_lost)
        recording.unsent, recording.batch = [], RecordedBatch()

    def _send(self, batch: RecordedBatch, deadline: Deadline, *, is_cut: bool) -> None:
        if len(batch.calls) == 1:
            self._run_one_by_one(batch, [0], deadline)
            return
        program = self._programs.get(batch)
        # A new program may begin with one that has run: a read after the last step of a loop then needs a program of
        # two calls, where another one of the complete step takes 0.19 s to compile.
        if not program.is_proven and not program.is_repeated:
            program.is_repeated = True
            if (count := self._programs.find_beginning(batch)) is not None:
                for part in batch.parts(count, partial(self._new_result, batch)):
                    if part.kept:
                        self._send(part, deadline, is_cut=is_cut)
                return
        is_single = len(program.nodes) == 1
        may_run = not is_single and self._programs.may_run(program, is_cut=is_cut)
        if not may_run or not self._run_program(batch, program, deadline):
            self._run_one_by_one(batch, program.nodes, deadline)

    def _add_to_history(self, batch: RecordedBatch, indices: Sequence[int], ran_as: str) -> None:
        kernels = [batch.calls[i].template.kernel for i in indices]
        self.history.add(kernels, len(batch.kept), ran_as, batch.calls[indices[-1]].line)

    def _new_result(self, batch: RecordedBatch, index: int) -> ArrayVersion:
        """Returns the result of a call that the caller has dropped, and another one needs."""
        call, owner = batch.calls[index], next(iter(batch.kept.values())).owner
        call.results = []
        version = self._sender.new_result(owner, call.template.results[0], call, committed=call.committed)
        if call.written is not None and (replaced := call.written()) is not None:
            replaced.keep(version)
        return version

    def _run_program(self, batch: RecordedBatch, program: FusedProgram, deadline: Deadline) -> bool:
        """Sends the calls as one program; returns False if the call stream does not take it.

        The answer to a new program is waited for. If the server refuses it, the calls are sent one by one.
        """
        calls = {i: batch.calls[i] for i in batch.kept}
        operands = [batch.inputs[i] for i in program.inputs]
        first = next(iter(calls.values()))
        try:
            request = prepare("graph", operands, {"graph": program.graph, "exact": True}, memo=self._memo)
            if not self._sender.can_submit(request.values, deadline):
                return False
            for index, (i, call) in enumerate(calls.items()):
                call.first = index
                call.depend_on([calls[other] for other in program.depends_on[i]])
            self._sender.send(request, list(batch.kept.values()), list(calls.values()), deadline)
        except ShardcallError as error:
            for call in calls.values():
                call.recording = None
                call.fail(error)
            return True
        again = _FailedProgram(batch, self)
        for call in calls.values():
            call.recording, call.resend = None, again.send
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

    def resend(self, batch: RecordedBatch, indices: Sequence[int]) -> None:
        """Sends calls one by one that were sent before: their program has failed, or the thread was interrupted.

        Args:
            batch: the calls.
            indices: those whose results are needed, if the caller has them, or a write has replaced them.
        """
        batch.kept = {}  # what nobody else has is not needed
        batch.kept = {i: version for i, call in enumerate(batch.calls) if (version := call.kept) is not None}
        results = [i for i in indices if i in batch.kept and not batch.kept[i].lost and batch.has_operands_of(i)]
        if not results:
            return
        results += [i for i in batch.replaced if batch.has_operands_of(i)]
        needed = [i for i in needed_nodes(batch.nodes, results) if i in indices or i not in batch.kept]
        self._sender.renew([batch.calls[i] for i in needed], [batch.kept[i] for i in needed if i in batch.kept])
        self._run_one_by_one(batch, needed, Deadline(self.timeout_s))

    def _run_one_by_one(self, batch: RecordedBatch, indices: Sequence[int], deadline: Deadline) -> None:
        """Sends calls one after the other."""
        versions = dict(batch.kept)
        for i in indices:
            call = batch.calls[i]
            if i not in versions:
                versions[i] = self._new_result(batch, i)
            operands: list[Operand] = []
            for value in sources_of(batch.nodes[i]):
                if value is None or value.node < 0:
                    operands.append(value and batch.inputs[value.number])
                else:
                    operands.append(versions[value.node])
            try:
                request = call.template.request(operands, self._memo)
                if self._sender.can_submit(operands, deadline):
                    self._sender.send(request, [versions[i]], [call], deadline)
                else:
                    self._run(request, versions[i])
                    call.run(versions[i].placed)
            except ShardcallError as error:
                call.fail(error)
            call.recording = call.resend = None
        self._add_to_history(batch, indices, "calls" if len(indices) > 1 else "call")

    def _run(self, call: CallRequest, version: ArrayVersion) -> None:
        """Runs a call where there is no call stream."""
        client: Any = version.owner
        (result,) = client._run(call, call.values, DEFAULT_TIMEOUT_S, keep=True).arrays
        self._sender.adopt(version, result._version)


class _FailedProgram:
    """Sends the calls of a program one by one if it fails, once.

    It keeps no array, unless the program has writes to an array of which it returns only the last: what the caller has
    dropped is not computed, nor what needs it.

    Args:
        batch: the calls.
        sender: sends them.
    """

    def __init__(self, batch: RecordedBatch, sender: RecordedCallSender) -> None:
        self._batch = RecordedBatch(batch.calls, batch.location)
        self._batch.nodes = batch.nodes
        is_kept = bool(batch.replaced)
        inputs = [(x.stand_in or x) if isinstance(x, ArrayVersion) else x for x in batch.inputs]
        self._inputs = [weakref.ref(x) if isinstance(x, ArrayVersion) and not is_kept else x for x in inputs]
        self._results = {i: batch.calls[i] for i in batch.kept}
        self._sender = sender
        self._may_run: bool | None = None
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Replaces the lock in a forked child, and fails the calls that a thread of the parent was about to send."""
        for call in self._results.values():
            if call.resend is not None and call.is_unsent:
                call.lose_in_fork()
        # Held while the calls are sent, so that others who need the results wait; comes after the graph's lock.
        self._lock = lock("the lock of a failed program", 20)

    def send(self) -> None:
        """Sends the calls, if nobody has, after those of failed programs that make their operands."""
        for reference in self._inputs:
            version = reference() if isinstance(reference, weakref.ref) else reference
            if isinstance(version, ArrayVersion) and (maker := version.pending) is not None:
                maker.begin()
        with self._lock:
            unsent = {i: call for i, call in self._results.items() if call.resend is not None}
            if self._may_run is None:  # else a thread was interrupted
                count = len({*self._results, *self._batch.replaced})
                self._may_run = bool(unsent) and _may_run_one_by_one(next(iter(unsent.values())), count)
            if self._may_run and unsent:
                self._batch.inputs = [one() if isinstance(one, weakref.ref) else one for one in self._inputs]
                self._sender.resend(self._batch, [*unsent])
            for call in unsent.values():
                call.resend = None


def _may_run_one_by_one(call: PendingCall, count: int) -> bool:
    """Returns True if calls of a program that failed may succeed one by one.

    Args:
        call: the first of those that wait for its results.
        count: the number of its results; where it is one, that needs all operands.
    """
    if call.reason is None or call.reason in _NOT_OF_THE_PROGRAM:
        return False
    return count > 1 or (call.root is call and call.reason != "ARRAY_LOST")
