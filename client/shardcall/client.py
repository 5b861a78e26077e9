"""A connection to a server, with its kernels as methods."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import cached_property
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

from shardcall._src.calls import result
from shardcall._src.calls.call_memo import CallMemo
from shardcall._src.calls.call_request import AUTO, CallRequest, prepare
from shardcall._src.calls.call_sender import CallSender
from shardcall._src.calls.implicit_gets import ImplicitGet, ImplicitGets
from shardcall._src.calls.profile import Profile
from shardcall._src.calls.recording import Recorder
from shardcall._src.calls.remote_arrays import RemoteArrays
from shardcall._src.calls.result import Result
from shardcall._src.calls.result_types import ResultTypes
from shardcall._src.device_arrays import plan
from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.plan import Plan
from shardcall._src.device_arrays.remote_array import RemoteArray, settle_others
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S, Deadline, deadline
from shardcall._src.rpc.transport import Transport
from shardcall._src.traced.client_derivatives import ClientDerivatives
from shardcall._src.traced.tracing import ActiveTrace
from shardcall._src.transfer.call_runner import CallRunner
from shardcall._src.transfer.call_stream import CallStream
from shardcall._src.transfer.download import Answer
from shardcall._src.transfer.shared_memory_client import SharedMemory
from shardcall._src.transfer.upload import Value
from shardcall.compiled import CompiledKernel
from shardcall.methods import KernelMethods
from shardcall.methods.kernel_method import kernel_method
from shardcall.namespace import Namespace
from shardcall.v1 import kernel_service_pb2, server_info_service_pb2
from shardcall_core.markup import page
from shardcall_core.types import kernels, server_info, usage
from shardcall_core.types.arrays import Array
from shardcall_core.types.errors import ShardcallError
from shardcall_core.types.kernels import KernelDescription, KernelTable
from shardcall_core.types.mesh import MeshLike
from shardcall_core.types.parameters import ParameterLike
from shardcall_core.types.server_info import ServerInfo
from shardcall_core.types.specs import SpecLike
from shardcall_core.types.tracebacks import shorten, shortened
from shardcall_core.types.usage import Usage

_HINT_TIMEOUT_S = 1.0

Specs = Sequence[SpecLike | None] | None


class Client(KernelMethods[Result[Any]], ClientDerivatives):
    """A connection to a server; made by `connect` or `local`, safe to use from several threads at once.

    Every method raises a `shardcall.ShardcallError` of the class that fits.
    """

    def __init__(
        self,
        transport: Transport,
        info: ServerInfo,
        shared_memory: SharedMemory | None = None,
        *,
        call_stream: bool = False,
        synchronous: bool = False,
        implicit_get: ImplicitGet = "allow",
        fuse: bool = True,
    ) -> None:
        transport.limit_calls(info.limits.max_concurrent_calls_per_connection)
        self._transport = transport
        self._info = info
        self._shared_memory = shared_memory
        served = info.limits.max_streamed_calls and info.limits.max_prepared_calls
        self._call_stream = CallStream(transport, info.limits) if call_stream and served else None
        self._runner = CallRunner(transport, info.limits, shared_memory, self._call_stream)
        self._memo = CallMemo()
        self._sender = CallSender(transport, info.limits, info.epoch, self._call_stream)
        is_recording = fuse and not synchronous and self._call_stream is not None
        self._recorder = Recorder(self._sender, self._memo, info.limits.max_call_seconds) if is_recording else None
        self._remote_arrays = RemoteArrays(transport, info.limits, shared_memory, self._sender, self._recorder)
        self._result_types = ResultTypes()
        self._active = ActiveTrace()
        self._synchronous = synchronous
        self._implicit_gets = ImplicitGets(implicit_get)
        self._on_close: Callable[[], object] | None = None

    @property
    def xp(self) -> Namespace:
        """The functions of arrays with NumPy's names, whose results stay on the mesh."""
        return Namespace(self)

    @property
    def address(self) -> str:
        """The address of the server."""
        return self._transport.address

    @kernel_method
    def call(
        self,
        name: str,
        /,
        *operands: OperandLike | None,
        mesh: MeshLike | None = None,
        in_specs: Specs = None,
        out_specs: Specs = None,
        strategy: str = AUTO,
        keep: Literal[False] = False,  # for True see `kernel_method`
        timeout: float | None = DEFAULT_TIMEOUT_S,
        **parameters: ParameterLike | OperandLike | SpecLike,
    ) -> Result[Any]:
        """Runs any kernel of the server.

        Args:
            name: the name of the kernel, such as `kernels` lists.
            operands: array-likes, and arrays on the mesh, in the kernel's order; None leaves out an optional one.
            mesh: the devices to run on; None for those of the first committed operand (`RemoteArray.committed`),
                else of the largest operand on the mesh, else the server's choice.
            in_specs: the sharding of each operand; None, or a shorter list, for its own on the mesh, else the kernel's
                choice.
            out_specs: the sharding of each result; None, or a shorter list, for the kernel's choice.
            strategy: the name of a strategy; ``"auto"`` leaves the choice to the server.
            keep: leave the results on the mesh, each as a `RemoteArray`.
            timeout: seconds for the complete call, upload and compilation included; None for the server's maximum.
            parameters: the kernel's static parameters; for kernels with a method also its operands and specs by name.

        Raises:
            ShardcallError: of the class that fits.
        """
        try:
            how: dict[str, Any] = {"mesh": mesh, "in_specs": in_specs, "out_specs": out_specs, "strategy": strategy}
            if self._is_tracing(operands):
                return self._traced_result(name, operands, {**parameters, **how})
            call = prepare(name, operands, parameters, **how, memo=self._memo)
            return self._run(call, call.values, timeout, keep=keep)
        except Exception as error:
            shorten(error)
            raise

    @shortened
    def plan(
        self,
        name: str,
        /,
        *operands: OperandLike | Array | None,
        mesh: MeshLike | None = None,
        in_specs: Specs = None,
        out_specs: Specs = None,
        strategy: str = AUTO,
        timeout: float | None = DEFAULT_TIMEOUT_S,
        **parameters: ParameterLike | OperandLike | SpecLike | Array,
    ) -> Plan:
        """Returns the plan of a call, without running it.

        Arguments are those of `call`; a `shardcall.Array` stands for an array of its type.
        """
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
        request = kernel_service_pb2.PlanRequest(call=call.message, operands=call.type_messages(), handles=call.handles)
        until = self._deadline(timeout)
        with self._remote_arrays.using(call.operands, call.names, until):
            response = self._transport.unary(
                self._transport.stubs.kernels.Plan,
                request,
                until,
                kernel=name,
                rerun=not call.handles,
            )
        return plan.from_proto(response.plan, response.cache)

    @shortened
    def compile(
        self,
        name: str,
        /,
        *operands: OperandLike | Array | None,
        mesh: MeshLike | None = None,
        in_specs: Specs = None,
        out_specs: Specs = None,
        strategy: str = AUTO,
        reshard: bool = False,
        timeout: float | None = DEFAULT_TIMEOUT_S,
        **parameters: ParameterLike | OperandLike | SpecLike | Array,
    ) -> CompiledKernel:
        """Compiles a call ahead of time.

        Arguments are those of `call`. A `shardcall.Array` stands for each array that callers of the compiled kernel
        pass; operands with values, such as ``prepend=0.0``, are bound.

        As with ``jax.stages.Compiled``, an array on the mesh whose placement differs from the compiled one raises a
        `ShardingError`, a bound one immediately. With ``reshard=True`` calls move it instead; so does a single call
        ``compiled(x, reshard=True)``.
        """
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

        def compiled(timeout: float | None, *, text: bool) -> kernel_service_pb2.CompileResponse:
            request = kernel_service_pb2.CompileRequest(
                call=call.message, operands=call.type_messages(), include_text=text, handles=call.handles
            )
            until = self._deadline(timeout)
            with self._remote_arrays.using(call.operands, call.names, until):
                return self._transport.unary(
                    self._transport.stubs.kernels.Compile,
                    request,
                    until,
                    kernel=name,
                    rerun=not call.handles,
                )

        with self._transport.meters.start() as meter:
            meter.compile()
            response = compiled(timeout, text=False)
        compiled_plan = plan.from_proto(response.plan, response.cache)
        sizes = [placement.type.nbytes for placement in compiled_plan.results]

        def run(
            bound: CallRequest, values: tuple[Value, ...], timeout: float | None, keep: bool, reshard: bool
        ) -> Result[Any]:
            return self._run(bound, values, timeout, keep=keep, result_sizes=sizes, refuse_transfers=not reshard)

        return CompiledKernel(
            call, compiled_plan, lambda timeout: compiled(timeout, text=True).compiled_text, run, reshard=reshard
        )

    @shortened
    def kernels(self, *, timeout: float | None = 10.0) -> KernelTable:
        """Returns the descriptions of the server's kernels; ``print`` shows them in 80 columns."""
        request = kernel_service_pb2.ListKernelsRequest()
        response = self._transport.unary(self._transport.stubs.kernels.ListKernels, request, self._deadline(timeout))
        return KernelTable(map(kernels.from_proto, response.kernels))

    @shortened
    def kernel(self, name: str, *, timeout: float | None = 10.0) -> KernelDescription:
        """Returns the description of a kernel."""
        request = kernel_service_pb2.DescribeKernelRequest(kernel=name)
        response = self._transport.unary(self._transport.stubs.kernels.DescribeKernel, request, self._deadline(timeout))
        return kernels.from_proto(response.kernel)

    @shortened
    def server_info(self, *, timeout: float | None = 10.0) -> ServerInfo:
        """Returns the server's version, devices and limits."""
        return ask_server_info(self._transport, self._deadline(timeout))

    @shortened
    def usage(self, *, timeout: float | None = 10.0) -> Usage:
        """Returns the server's present use of memory, programs and arrays."""
        request = server_info_service_pb2.GetUsageRequest()
        return usage.from_proto(
            self._transport.unary(self._transport.stubs.server.GetUsage, request, self._deadline(timeout))
        )

    @shortened
    def profile(
        self, directory: str | os.PathLike[str], *, max_seconds: float = 0.0, timeout: float | None = DEFAULT_TIMEOUT_S
    ) -> Profile:
        """Records the server's devices during a ``with`` block, with JAX's profiler.

            with client.profile("traces") as profile:
                client.matmul(a, b)
            print(profile.path)                          # TensorBoard and XProf read traces/

        The calls of all clients are recorded, which requires a token of scope ``admin``. A server records one profile
        at a time.

        Args:
            directory: the folder for the files; each profile is written to a new ``plugins/profile/<time>`` below it.
            max_seconds: the time after which the server discards a profile that was not stopped; 0 for 300. A client
                that disappeared keeps others from recording for so long.
            timeout: seconds for starting, and again for stopping and fetching; None for the server's maximum.

        Raises:
            InvalidParameterError: if the directory is not a path, or ``max_seconds`` not a number.
            InvalidRequestError: if a profile is being recorded already, or the server discarded it.
            AccessDeniedError: if the token does not have the scope ``admin``.
        """
        return Profile(self._transport, directory, max_seconds, lambda: self._deadline(timeout))

    @shortened
    def close(self) -> None:
        """Deletes this client's arrays from the mesh and closes the connection; may be called again.

        A server that `local` started is terminated. Results in this process, and arrays of `empty`, stay valid.
        """
        self._remote_arrays.close()
        if self._shared_memory is not None:
            self._shared_memory.close()
        if self._call_stream is not None:
            self._call_stream.close()
        self._transport.close()
        if self._on_close is not None:
            self._on_close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a client belongs to its process, and is neither pickled nor copied; connect again in the other one: "
            "shardcall.connect(…)"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._synchronize_at_end()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<Client of {self.address}, {len(self._info.devices)} {self._info.platform} devices>"

    def _repr_html_(self) -> str:
        """Returns a display for a notebook, without a round trip."""
        return page.page(f"Client of {self.address}", page.facts(self._info.summary))

    def _run(
        self,
        call: CallRequest,
        values: tuple[Value, ...],
        timeout: float | None,
        *,
        keep: bool = False,
        result_sizes: Sequence[int] | None = None,
        refuse_transfers: bool = False,
    ) -> Result[Any]:
        until = deadline(timeout, self._info.limits.max_call_seconds)
        settle_others(values, self, until)
        for value in values:
            if isinstance(value, RemoteArray):
                break
        else:
            if not keep:
                answer = self._runner.run(call.message, values, until, result_sizes=result_sizes)
                return result.from_answer(answer, answer.results, until.elapsed_s())
        lease_id = self._remote_arrays.lease_id if keep else b""

        def send() -> Answer:
            return self._runner.run(
                call.message,
                values,
                until,
                lease_id=lease_id,
                result_sizes=result_sizes,
                refuse_transfers=refuse_transfers,
            )

        with self._remote_arrays.using(values, call.names), self._remote_arrays.making() if keep else nullcontext():
            answer = self._remote_arrays.call_after_deleting(send, until) if keep else send()
            arrays = self._remote_arrays.kept(self, answer, committed=call.commits)
        return result.from_answer(answer, arrays, until.elapsed_s())

    @cached_property
    def _kernels(self) -> frozenset[str]:
        with suppress(ShardcallError):
            return frozenset(kernel.name for kernel in self.kernels(timeout=_HINT_TIMEOUT_S))
        return frozenset()

    def _kernel_names(self) -> Iterable[str]:
        return self._kernels

    def _copied(self, array: RemoteArray, /) -> None:
        self._implicit_gets.add(array)

    def _deadline(self, timeout: float | None) -> Deadline:
        return deadline(timeout, self._info.limits.max_call_seconds)


def ask_server_info(transport: Transport, until: Deadline) -> ServerInfo:
    """Returns a server's description of itself."""
    request = server_info_service_pb2.GetServerInfoRequest()
    return server_info.from_proto(
        transport.unary(transport.stubs.server.GetServerInfo, request, until, retryable=False)
    )
