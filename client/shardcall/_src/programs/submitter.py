"""Submits calls, and waits for all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

from shardcall._src.calls.call_request import AUTO, CallRequest, prepare
from shardcall._src.calls.call_trace import CallTrace
from shardcall._src.calls.result import Result
from shardcall._src.device_arrays.array_version import Owner, settle_others
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.programs.call_sender import CallSender
from shardcall._src.programs.pending_call import PendingCall
from shardcall._src.programs.pending_calls import PendingCalls
from shardcall._src.programs.recorded_calls import common_location
from shardcall._src.programs.recording import Recorder
from shardcall._src.programs.templates import Templates
from shardcall._src.programs.transposed_factors import before_transposes
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S, Deadline, deadline_after
from shardcall._src.transfer.upload import Value
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.errors import ShardcallError
from shardcall_core.types.mesh import MeshLike, as_mesh
from shardcall_core.types.specs import SpecLike
from shardcall_core.wire.forks import finish_calls_before_forks


class SubmittingClient(Owner, Protocol):
    """A client that submits calls."""

    def _run(
        self, call: CallRequest, values: tuple[Value, ...], timeout: float | None, *, keep: bool = ...
    ) -> Result[Any]:
        """Runs a call, and waits for its results."""

    def _put_array(self, array: NDArray, mesh: None, spec: None) -> RemoteArray:
        """Puts an array of this process on the mesh."""


class Submitter:
    """Submits the calls of a client, and waits for all of them.

    Attributes:
        recorder: records calls, to send several as one program; None if each is sent by itself.

    Args:
        sender: sends the calls.
        recorder: as the attribute.
        templates: the templates of the client's calls.
        max_seconds: the longest timeout.
        is_synchronous: whether to wait for each call.
    """

    def __init__(
        self,
        sender: CallSender,
        recorder: Recorder | None,
        templates: Templates,
        max_seconds: float,
        *,
        is_synchronous: bool,
    ) -> None:
        self.recorder = recorder
        self._sender = sender
        self._templates = templates
        self._max_seconds = max_seconds
        self._is_synchronous = is_synchronous
        finish_calls_before_forks(self)

    def submit(
        self,
        client: SubmittingClient,
        name: str,
        operands: Sequence[Any],
        parameters: Mapping[str, Any],
        *,
        mesh: MeshLike | None,
        in_specs: Sequence[SpecLike | None] | None,
        out_specs: Sequence[SpecLike | None] | None,
        strategy: str,
        timeout: float | None,
    ) -> tuple[RemoteArray, ...]:
        """Submits a call; returns its results. Arguments are those of `shardcall.Client.submit`."""
        recorder = self.recorder
        if name == "matmul" and in_specs is None:
            operands, parameters = before_transposes(operands, parameters)
        if recorder is not None:
            plain = mesh is None and in_specs is None and out_specs is None and strategy == AUTO
            if plain and timeout == DEFAULT_TIMEOUT_S:
                array = recorder.record(client, name, operands, parameters)
                if array is not None:
                    return (array,)
            recorder.flush()
        call = prepare(
            name,
            operands,
            parameters,
            mesh=mesh,
            in_specs=in_specs,
            out_specs=out_specs,
            strategy=strategy,
            memo=self._templates.messages,
        )
        types = self._templates.types(call)
        arrays = self.send(client, call, types or (), timeout, _mesh_of_results(call.values, mesh))
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
        submitted.located = located or submitted.located
        if stops_unread:
            submitted.stops_without = [version.handle for version in versions]
        sender.send(call, versions, [submitted], deadline)
        if self._is_synchronous:
            arrays[0]._settled()
        return arrays

    @property
    def pending(self) -> PendingCalls:
        """The calls that were submitted."""
        return self._sender.pending

    def flush(self) -> None:
        """Sends the calls that this thread has recorded."""
        if self.recorder is not None:
            self.recorder.flush()

    def flush_all(self) -> None:
        """Sends the calls that all threads have recorded."""
        if self.recorder is not None:
            self.recorder.flush_all()

    def stop_recording(self) -> None:
        """Sends each call by itself from now on."""
        self.recorder = None

    def trace(self) -> CallTrace:
        """Returns what the latest calls that were recorded ran as."""
        return CallTrace(()) if self.recorder is None else self.recorder.sending.history.trace()

    def synchronize(self, deadline: Deadline | None) -> None:
        """Waits for all calls that were submitted before, as `shardcall.Client.synchronize`."""
        self.flush_all()
        self._sender.pending.synchronize(deadline)

    @property
    def has_open_calls(self) -> bool:
        """True if a call was recorded and not sent, or submitted and not answered."""
        is_recorded = self.recorder is not None and self.recorder.has_open_calls  # first: such calls become the others
        return is_recorded or self._sender.pending.has_open_calls

    def finish_calls(self) -> None:
        """Sends the recorded calls and waits for all, before a fork; raises no errors."""
        with contextlib.suppress(ShardcallError):
            self.flush_all()
            self._sender.pending.finish(None)

    def give_up_calls(self) -> None:
        """Keeps later forks from waiting for the calls."""
        self._sender.pending.give_up_calls()

    def stop_loops(self) -> None:
        """Cancels the loops among all calls that were submitted before."""
        self.flush_all()
        self._sender.pending.stop_loops()


def _mesh_of_results(values: Sequence[Value | None], mesh: MeshLike | None) -> Hashable | None:
    """Returns what is known of the mesh of a call's results: the mesh, or what stands for it."""
    if mesh is None:
        location = common_location(values)
        return None if location is None else location[1]
    call_mesh = as_mesh(mesh)
    return None if call_mesh.device_ids is None else call_mesh
