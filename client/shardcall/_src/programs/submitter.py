"""Submits calls: records them, to send several as one program, or sends each by itself."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from shardcall._src.calls.call_request import CallOptions, CallRequest, prepare
from shardcall._src.calls.result import Result
from shardcall._src.device_arrays.array_version import ArrayVersion, Owner, settle_others
from shardcall._src.device_arrays.call_sites import call_site
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.programs.call_sender import CallSender
from shardcall._src.programs.pending_calls import PendingCall
from shardcall._src.programs.recorded_calls import CallRecording, RecordedCall, common_location
from shardcall._src.programs.sending import RecordedCallSender
from shardcall._src.programs.templates import FUSABLE, Templates
from shardcall._src.programs.transposed_factors import before_transposes
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S, deadline_after
from shardcall._src.rpc.threads import check_not_exiting, is_running, start_thread, surviving, thread_failure
from shardcall._src.rpc.wakeup import Wakeup
from shardcall._src.transfer.upload import Value
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.element_types import NATIVE_DTYPES
from shardcall_core.types.errors import CallCancelledError, ShardcallError
from shardcall_core.types.mesh import MeshLike, as_mesh
from shardcall_core.wire.forks import begin_anew_in_children, finish_calls_before_forks

_SMALL = (np.ndarray, np.generic, bool, int, float, complex)
_MAX_OPERAND_BYTES = 4096
_IDLE_S = 0.1


class SubmittingClient(Owner, Protocol):
    """A client that submits calls."""

    def _run(
        self, call: CallRequest, values: tuple[Value, ...], timeout: float | None, *, keep: bool = ...
    ) -> Result[Any]:
        """Runs a call, and waits for its results."""

    def _put_array(self, array: NDArray, mesh: None, spec: None) -> RemoteArray:
        """Puts an array of this process on the mesh."""


class Submitter:
    """Submits the calls of a client; safe to use from several threads at once.

    Each thread records calls of its own. They are sent when something needs a result, when a call of the same position
    in the caller's code comes again, and when nothing is recorded for some time.

    Attributes:
        is_recording: whether calls are recorded; else each is sent by itself.
        pending: the calls that were sent.
        sending: sends the recorded calls.

    Args:
        sender: sends the calls.
        templates: the templates of the client's calls.
        max_seconds: the longest timeout.
        is_recording: as the attribute.
        is_synchronous: whether to wait for each call.
    """

    def __init__(
        self, sender: CallSender, templates: Templates, max_seconds: float, *, is_recording: bool, is_synchronous: bool
    ) -> None:
        self.is_recording = is_recording
        self.pending = sender.pending
        self._timeout_s = deadline_after(DEFAULT_TIMEOUT_S, max_seconds).timeout_s
        self.sending = RecordedCallSender(sender, templates.messages, self._timeout_s)
        self._sender = sender
        self._templates = templates
        self._max_seconds = max_seconds
        self._is_synchronous = is_synchronous
        self._closed = False
        self.begin_anew()
        begin_anew_in_children(self)
        finish_calls_before_forks(self)

    def use(self, max_seconds: float) -> None:
        """Keeps another longest timeout from now on, that of another server."""
        self._max_seconds = max_seconds
        self._timeout_s = self.sending.timeout_s = deadline_after(DEFAULT_TIMEOUT_S, max_seconds).timeout_s

    def begin_anew(self) -> None:
        """Resets the object in a forked child: recorded calls are its parent's."""
        for recording in tuple(getattr(self, "_recordings", ())):
            for call in recording.calls:
                call.recording = None
                call.lose_in_fork()
            recording.begin_anew()
        self._recordings: weakref.WeakSet[CallRecording] = weakref.WeakSet()
        self._lock = threading.Lock()  # guards the recordings and the start of the thread
        self._local = threading.local()  # the recording of each thread
        self._timer: threading.Thread | None = None
        self._has_recorded = Wakeup()  # set while something may be recorded, and by `close`

    def submit(
        self,
        client: SubmittingClient,
        name: str,
        operands: Sequence[Any],
        parameters: Mapping[str, Any],
        options: CallOptions,
        timeout: float | None,
    ) -> tuple[RemoteArray, ...]:
        """Submits a call; returns its results. Arguments are those of `shardcall.Client.submit`."""
        if name == "matmul" and options.in_specs is None:
            operands, parameters = before_transposes(operands, parameters)
        if self.is_recording and timeout == DEFAULT_TIMEOUT_S and options.are_plain:
            values = self._values(name, operands)
            version = None if values is None else self.record(client, name, values, parameters)
            if version is not None:
                return (RemoteArray(version),)
        self.flush()
        call = prepare(name, operands, parameters, options, memo=self._templates.messages)
        types = self._templates.types(call)
        arrays = self.send(client, call, types or (), timeout, _mesh_of_results(call.values, options.mesh))
        if not types:
            self._templates.add_types(call, [array.type for array in arrays])
        return arrays

    def send(
        self,
        client: SubmittingClient,
        call: CallRequest,
        types: Sequence[Array],
        timeout: float | None,
        mesh: Hashable | None = None,
        name: str = "",
        *,
        stops_unread: bool = False,
        located: Callable[[ShardcallError], ShardcallError] | None = None,
    ) -> tuple[RemoteArray, ...]:
        """Sends a call, and waits for it if it cannot be submitted; returns its results.

        Args:
            client: the client.
            call: the call.
            types: the types of its results; empty if only the server can determine them.
            timeout: seconds.
            mesh: as of `PendingCall`.
            name: its name in errors; empty for that of the kernel.
            stops_unread: whether to cancel it when all its results are deleted.
            located: as of `PendingCall`.
        """
        deadline = deadline_after(timeout, self._max_seconds)
        if not types or not self._sender.can_submit(call.values, deadline):
            try:
                return tuple(client._run(call, call.values, timeout, keep=True).arrays)
            except ShardcallError as error:
                if located is None:
                    raise
                raise located(error) from None
        settle_others(call.values, client, deadline)
        sender, name = self._sender, name or call.message.kernel
        submitted = PendingCall(sender.pending, name, call.types, deadline.timeout_s, mesh=mesh)
        versions = [
            sender.new_result(client, result_type, submitted, index, committed=call.commits)
            for index, result_type in enumerate(types)
        ]
        arrays = tuple(map(RemoteArray, versions))
        submitted.located = located
        if stops_unread:
            submitted.stops_without = [version.handle for version in versions]
        sender.send(call, versions, [submitted], deadline)
        if self._is_synchronous:
            arrays[0]._settled()
        return arrays

    def record(
        self, owner: Owner, name: str, values: Sequence[Value], keywords: Mapping[str, Any]
    ) -> ArrayVersion | None:
        """Records a call without a mesh and specs; returns its result, or None for a call that must be sent by itself.

        Args:
            owner: the client.
            name: the name of the kernel.
            values: the operands; the caller does not change arrays of this process among them.
            keywords: the parameters.

        Raises:
            ClientClosedError: if Python exits.
            ShardcallError: for a call that the function does not accept.
        """
        if not self.is_recording or name not in FUSABLE:
            return None
        template = self._templates.find(name, values, keywords)
        if template is None or not template.is_fusable or template.may_be_refused(values):
            return None
        check_not_exiting()
        recording: CallRecording = getattr(self._local, "recording", None) or self._new_recording()
        for value in values:
            if not isinstance(value, ArrayVersion):
                continue
            if value.owner is not owner and value.pending is not None:
                value.settled()  # its client may send it later than this one's calls
            if not self._sender.is_here(value):
                return None  # it is refused with the reason
            maker = value.pending
            if type(maker) is RecordedCall and maker.recording not in (None, recording):
                maker.begin()
        at, line, position = getattr(self._local, "taking", None) or (*call_site(), None)
        site = at if position is None else (at, position, template.number)
        with recording.lock:
            if (location := common_location(values)) is None:
                return None
            if recording.unsent or not recording.batch.accepts(site, len(values), location):
                self._send(recording)
                if (location := common_location(values)) is None:
                    return None
            committed = location[0]
            batch = recording.batch
            inputs = tuple([batch.value(value, is_committed=committed) for value in values])
            number = len(batch.calls)
            call = RecordedCall(self.pending, template, recording, number, self._timeout_s, line, location)
            version = self._sender.new_result(owner, template.results[0], call, committed=committed)
            batch.add(call, inputs, site, location)
            recording.touched_s = time.monotonic()
        if not (self._has_recorded.is_set() and is_running(self._timer)):
            self._start_timer()
        return version

    def _values(self, name: str, operands: Sequence[Any]) -> list[Value] | None:
        """Returns the operands of a call, without those left out at its end; None if it is not recorded.

        An operand is on the mesh, and the others are small; these are copied, since the caller may change them.
        """
        if name not in FUSABLE or len(operands) > len(FUNCTIONS[name].operands):
            return None
        values: list[Value] = []
        is_on_mesh = False
        for i, operand in enumerate(operands):
            if type(operand) is RemoteArray:
                is_on_mesh = True
                values.append(self._view_value(operand, i) if operand._steps else operand._version)
            elif operand is None:
                values.append(None)
            elif isinstance(operand, _SMALL) and getattr(operand, "nbytes", 0) <= _MAX_OPERAND_BYTES:
                value = np.array(operand)
                if value.dtype not in NATIVE_DTYPES or type(operand) is np.ma.MaskedArray:
                    return None
                values.append(value)
            else:
                return None
        if not is_on_mesh:
            return None
        while values[-1] is None:
            values.pop()
        return values

    def _view_value(self, view: RemoteArray, index: int) -> ArrayVersion:
        """Returns the values of a view, the operand of a call by its index, computed at its position."""
        local = self._local
        outer = getattr(local, "taking", None)
        local.taking = (*(outer[:2] if outer else call_site()), index)
        try:
            return view._version
        finally:
            local.taking = outer

    def flush(self) -> None:
        """Sends the calls that this thread has recorded."""
        recording = getattr(self._local, "recording", None)
        if recording is not None and not recording.is_empty:
            self._send_recorded(recording)

    def flush_all(self) -> None:
        """Sends the calls that all threads have recorded, and waits while another thread sends some."""
        for recording in self._all_recordings():
            if not recording.is_empty:
                self._send_recorded(recording)

    @property
    def has_open_calls(self) -> bool:
        """True if a call was recorded and not sent, or submitted and not answered."""
        is_recorded = not all(one.is_empty for one in tuple(self._recordings))
        return is_recorded or self.pending.has_open_calls  # last: recorded calls become pending ones

    def finish_calls(self) -> None:
        """Sends the recorded calls and waits for all, before a fork; raises no errors."""
        with contextlib.suppress(ShardcallError):
            self.flush_all()
            self.pending.finish(None)

    def give_up_calls(self) -> None:
        """Keeps later forks from waiting for the calls."""
        self.pending.give_up_calls()

    def close(self) -> None:
        """Forgets the recorded calls, whose results are lost, and cancels those that were not answered yet."""
        self._closed = True
        self._has_recorded.set()
        for recording in self._all_recordings():
            error = CallCancelledError("the call was cancelled: the client was closed")
            with recording.lock:
                self.sending.abandon(recording, error, "whose client was closed")
        self.pending.cancel()

    def _send_recorded(self, recording: CallRecording, *, is_idle: bool = False) -> None:
        check_not_exiting()
        if not recording.is_sent_by_this_thread:
            with recording.lock:
                self._send(recording, is_idle=is_idle)

    def _send(self, recording: CallRecording, *, is_idle: bool = False) -> None:
        if not recording.is_empty:
            is_cut, recording.is_cut = recording.is_cut or is_idle, is_idle
            self.sending.send(recording, is_cut=is_cut)

    def _new_recording(self) -> CallRecording:
        recording = self._local.recording = CallRecording(self._send_recorded)
        with self._lock:
            self._recordings.add(recording)
        return recording

    def _all_recordings(self) -> list[CallRecording]:
        with self._lock:
            return list(self._recordings)

    def _start_timer(self) -> None:
        if not is_running(self._timer) and not self._closed:
            with self._lock:
                if not is_running(self._timer):
                    arguments = weakref.ref(self), self._has_recorded
                    self._timer = start_thread("shardcall-recording", _send_when_idle, arguments)
        self._has_recorded.set()

    def send_idle(self) -> bool:
        """Sends what was recorded some time ago; returns False when there is no more to do, for ever."""
        self._has_recorded.clear()
        for recording in self._all_recordings():
            if recording.is_empty:
                continue
            if time.monotonic() - recording.touched_s < _IDLE_S:
                self._has_recorded.set()
            else:
                with surviving():
                    self._send_idle(recording)
        return not self._closed

    def _send_idle(self, recording: CallRecording) -> None:
        try:
            self._send_recorded(recording, is_idle=True)
        except Exception as error:
            with recording.lock:  # or the thread that recorded them would get the error again and again
                self.sending.abandon(recording, thread_failure(error))
            raise


def _send_when_idle(submitter: weakref.ref[Submitter], has_recorded: Wakeup) -> None:
    pause = threading.Event()  # never set: the thread sleeps by it
    while True:
        if not has_recorded.wait(1.0):
            if submitter() is None:
                return
            continue
        pause.wait(_IDLE_S)
        one = submitter()
        if one is None or not one.send_idle():
            return
        del one


def _mesh_of_results(values: Sequence[Value | None], mesh: MeshLike | None) -> Hashable | None:
    """Returns what is known of the mesh of a call's results: the mesh, or what stands for it."""
    if mesh is None:
        location = common_location(values)
        return None if location is None else location[1]
    call_mesh = as_mesh(mesh)
    return None if call_mesh.device_ids is None else call_mesh
