"""The client's methods for calls whose answers it does not wait for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from shardcall._src.calls.array_methods import ArrayMethods
from shardcall._src.calls.call_memo import CallMemo
from shardcall._src.calls.call_request import AUTO, CallRequest, prepare
from shardcall._src.calls.call_sender import CallSender
from shardcall._src.calls.call_trace import CallTrace
from shardcall._src.calls.recorded_graph import common_location
from shardcall._src.calls.recording import Recorder, is_recorded, kind_of
from shardcall._src.calls.result import Result
from shardcall._src.calls.result_types import ResultTypes
from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import RemoteArray, settle
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S
from shardcall._src.transfer.upload import Value
from shardcall_core.types.mesh import MeshLike, as_mesh
from shardcall_core.types.parameters import ParameterLike
from shardcall_core.types.specs import SpecLike
from shardcall_core.types.tracebacks import shorten, shortened


class Submission(ArrayMethods):
    """Submits calls, and waits for all of them."""

    _memo: CallMemo
    _result_types: ResultTypes
    _synchronous: bool
    _sender: CallSender
    _recorder: Recorder | None

    @abstractmethod
    def _run(
        self, call: CallRequest, values: tuple[Value, ...], timeout: float | None, *, keep: bool = ...
    ) -> Result[Any]:
        """Runs a call."""

    @abstractmethod
    def _is_tracing(self, operands: Sequence[Any]) -> bool:
        """Returns True while this thread traces a function."""

    @abstractmethod
    def _traced(self, name: str, operands: Sequence[Any], arguments: Mapping[str, Any]) -> Any:
        """Adds a call to the program of that function; returns its results."""

    def submit(
        self,
        name: str,
        /,
        *operands: OperandLike | None,
        mesh: MeshLike | None = None,
        in_specs: Sequence[SpecLike | None] | None = None,
        out_specs: Sequence[SpecLike | None] | None = None,
        strategy: str = AUTO,
        timeout: float | None = DEFAULT_TIMEOUT_S,
        **parameters: ParameterLike | OperandLike | SpecLike,
    ) -> RemoteArray | tuple[RemoteArray, ...]:
        """Runs any kernel of the server without waiting for it; its results stay on the mesh.

        A result is an operand of further calls at once. Its shape and element type are known; reading its values, or
        a property that depends on the mesh, waits for the call. If the call fails, so do the calls that depend on it.
        The error names the line that submitted the call. It is raised by reading a result, by the next `get` of any
        array, by `synchronize`, or at the end of the client's ``with`` block.

        Invalid arguments are refused at once. A call waits for its answer, as `call` with ``keep=True``, if its
        operands are large, or if it is the first one of its kind of a kernel that is in no table of this client.

        Args:
            name: the name of the kernel, such as `kernels` lists.
            operands: as of `call`.
            mesh: the devices to run on; None for those of the first committed operand, else of the largest on the
                mesh, else the server's choice.
            in_specs: as of `call`.
            out_specs: as of `call`.
            strategy: the name of a strategy; ``"auto"`` leaves the choice to the server.
            timeout: seconds for the call, from its arrival at the server; None for the server's maximum.
            parameters: as of `call`.

        Returns:
            The result; a tuple of the results of a kernel with several.

        Raises:
            ShardcallError: of the class that fits, for invalid arguments, or if the call cannot be sent in time.
        """
        try:
            if self._is_tracing(operands):
                how = {"mesh": mesh, "in_specs": in_specs, "out_specs": out_specs, "strategy": strategy}
                results: tuple[RemoteArray, ...] = self._traced(name, operands, {**parameters, **how})
                return results[0] if len(results) == 1 else results
            recorder = self._recorder
            if recorder is not None:
                plain = mesh is None and in_specs is None and out_specs is None and strategy == AUTO
                if plain and timeout == DEFAULT_TIMEOUT_S and (kind := kind_of(name, operands, parameters)) is not None:
                    array = self._recorded(recorder, name, kind, parameters)
                    if array is not None:
                        return array
                recorder.flush()
            call = prepare(
                name,
                operands,
                parameters,
                mesh=mesh,
                in_specs=in_specs,
                out_specs=out_specs,
                strategy=strategy,
                memo=self._memo,
            )
            values, types, until = call.values, self._result_types.find(call), self._deadline(timeout)
            if not types or not self._sender.can_submit(values, until):
                arrays: tuple[RemoteArray, ...] = self._run(call, values, timeout, keep=True).arrays
                self._result_types.add(call, [array.type for array in arrays])
            else:
                arrays = self._sender.submit(self, call, values, types, until, _mesh_of_results(values, mesh))
                if self._synchronous:
                    settle(arrays[0])
            return arrays[0] if len(arrays) == 1 else arrays
        except Exception as error:
            shorten(error)
            raise

    def _recorded(
        self,
        recorder: Recorder,
        name: str,
        kind: tuple[Hashable, list[Value | None]],
        parameters: Mapping[str, Any],
    ) -> RemoteArray | None:
        """Records a call; returns its result, or None for a call that is to be sent."""
        key, values = kind
        template = recorder.find(key)
        if template is None:
            call = prepare(name, values, parameters, memo=self._memo)
            types = self._result_types.find(call)
            if types is None or len(types) != 1 or not is_recorded(call, parameters):
                return None
            template = recorder.add_template(key, call, parameters, types[0])
        return recorder.record(self, template, values)

    def trace_calls(self) -> CallTrace:
        """Returns what the latest calls that were recorded ran as, oldest first; ``print`` shows a table.

        Calls that depend on each other are recorded and sent as one program (docs/pending_arrays.md).
        """
        return CallTrace(()) if self._recorder is None else self._recorder.sending.history.trace()

    @shortened
    def synchronize(self, *, timeout: float | None = None) -> None:
        """Waits for all calls that were submitted before.

        Args:
            timeout: seconds; None for the timeouts of the calls.

        Raises:
            DeadlineExceededError: if not all are done in time; they continue.
            ShardcallError: of a submitted call that failed, if neither this nor another method has raised it before.
        """
        if self._recorder is not None:
            self._recorder.flush_all()
        self._sender.pending.synchronize(None if timeout is None else self._deadline(timeout))

    def _synchronize_at_end(self) -> None:
        """Waits for all submitted calls but loops, which are cancelled: nobody can read their results any more."""
        if self._recorder is not None:
            self._recorder.flush_all()
        self._sender.pending.stop_loops()
        self.synchronize()


def _mesh_of_results(values: Sequence[Value | None], mesh: MeshLike | None) -> Hashable | None:
    """Returns what is known of the mesh of a call's results: the mesh, or what stands for it."""
    if mesh is None:
        location = common_location(values)
        return None if location is None else location[1]
    over = as_mesh(mesh)
    return None if over.device_ids is None else over
