"""The client's methods for functions that run as one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, cast

from shardcall._src.calls.call_request import CallRequest, prepare
from shardcall._src.calls.result import Result
from shardcall._src.calls.submission import Submission
from shardcall._src.device_arrays.array_version import Where
from shardcall._src.device_arrays.remote_array import RemoteArray, settle
from shardcall._src.traced.control_flow import ControlFlow, LoopClient
from shardcall._src.traced.program import TracedProgram
from shardcall._src.traced.traced_array import TracedArray
from shardcall._src.traced.traced_function import Names, ProgramClient, TracedFunction
from shardcall._src.traced.tracing import ActiveTrace
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.errors import ShardcallError
from shardcall_core.types.mesh import MeshLike
from shardcall_core.types.specs import PartitionSpec, SpecLike
from shardcall_core.types.timing import Timing
from shardcall_core.types.tracebacks import shortened

_OPTIONS = ("mesh", "in_specs", "out_specs", "strategy")


class ClientTracing(Submission):
    """Traces functions, and the calls that they make.

    Attributes:
        _active: the trace that calls of this thread belong to.
    """

    _active: ActiveTrace

    @shortened
    def jit(
        self,
        function: Callable[..., Any] | None = None,
        *,
        static: Names = (),
        donate: Names = (),
        out_specs: Sequence[SpecLike | None] | None = None,
    ) -> Any:
        """Returns a function that runs on the mesh as one program, in one round trip; also a decorator.

            @client.jit
            def step(u, dt):
                return u + dt * (np.roll(u, 1, 0) + np.roll(u, -1, 0) - 2 * u)

        The function runs in this process with arrays without values, and what it calls becomes the program: operators,
        functions of NumPy and of `xp`, and methods of this client. It is traced again for arguments of another
        structure or of other types, and when a value that it refers to has changed (docs/traced_programs.md).

        Args:
            function: the function. Its arguments and results are arrays and numbers, in tuples, lists, dicts and
                dataclasses of any depth.
            static: the names or positions of arguments that the function gets as they are, hashable; it is traced for
                each of their values.
            donate: the names or positions of arguments that the caller does not need any more: their arrays on the mesh
                are deleted after a call was submitted.
            out_specs: the sharding of each result, in the sequence of the leaves; None, or a shorter list, for the
                default of the kernel that computes it.

        Returns:
            A `shardcall.TracedFunction`.
        """
        if function is None:
            return lambda each: self.jit(each, static=static, donate=donate, out_specs=out_specs)
        client = cast(ProgramClient, self)
        return TracedFunction(client, self._active, function, static=static, donate=donate, out_specs=out_specs)

    def _is_tracing(self, operands: Sequence[Any]) -> bool:
        """Returns True while this thread traces a function.

        Args:
            operands: the operands of a call.

        Raises:
            TracingError: if there is no trace and an operand is an array of one.
        """
        if self._active.trace is not None:
            return True
        for operand in operands:
            if type(operand) is TracedArray:
                operand._traced.begin()
        return False

    def _traced_result(self, name: str, operands: Sequence[Any], arguments: Mapping[str, Any]) -> Result[Any]:
        """Returns the result of a call that becomes a part of a program."""
        results = self._traced(name, operands, arguments)
        return Result(arrays=results, timing=Timing(), cache_hit=True, explanation="", _plan=b"")

    def _traced(self, name: str, operands: Sequence[Any], arguments: Mapping[str, Any]) -> tuple[TracedArray, ...]:
        trace = self._active.trace
        assert trace is not None
        options = {key: value for key, value in arguments.items() if key in _OPTIONS}
        keywords = {key: value for key, value in arguments.items() if key not in _OPTIONS and key != "timeout"}
        return trace.submit(name, operands, keywords, **options)

    def _put_array(self, array: NDArray, mesh: MeshLike | None, spec: SpecLike | None) -> RemoteArray:
        if (trace := self._active.trace) is None:
            return super()._put_array(array, mesh, spec)
        constant = trace.constant(array)
        if mesh is None and spec is None:
            return constant
        return self._traced("reshard", [constant], {"mesh": mesh, "out_specs": [spec]})[0]

    @property
    def _here(self) -> Where:
        return self._sender.here

    def _submit_program(
        self,
        program: TracedProgram,
        operands: Sequence[Any],
        out_specs: Sequence[PartitionSpec | None] | None,
        timeout: float | None,
    ) -> Sequence[RemoteArray]:
        """Submits the stages of a program without waiting in between; returns its results."""
        if self._recorder is not None:
            self._recorder.flush()
        made: list[Sequence[RemoteArray]] = []
        for i, (stage, types) in enumerate(zip(program.stages, program.stage_types, strict=True)):
            values = [operands[v.number] if v.node < 0 else made[v.node][v.number] for v in stage.operands]
            call = prepare("graph", values, stage.parameters, out_specs=program.specs_of(i, out_specs), memo=self._memo)
            made.append(self._submit_stage(call, program.name, types, timeout, partial(program.located, i)))
        return [made[value.node][value.number] for value in program.returned]

    def _submit_stage(
        self,
        call: CallRequest,
        name: str,
        types: Sequence[Array],
        timeout: float | None,
        located: Callable[[ShardcallError], ShardcallError],
    ) -> Sequence[RemoteArray]:
        values, until = call.values, self._deadline(timeout)
        if not self._sender.can_submit(values, until):
            try:
                arrays: tuple[RemoteArray, ...] = self._run(call, values, timeout, keep=True).arrays
            except ShardcallError as error:
                raise located(error) from None
            return arrays
        arrays = self._sender.submit(
            self, call, values, types, until, name=name, stops_unread=timeout is None, located=located
        )
        if self._synchronous:
            settle(arrays[0])
        return arrays

    @cached_property
    def _control_flow(self) -> ControlFlow:
        return ControlFlow(cast(LoopClient, self), self._active)
