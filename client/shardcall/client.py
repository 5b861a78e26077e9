"""A connection to a server, with its kernels as methods."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import cached_property
from types import TracebackType
from typing import NoReturn, Self

import numpy as np
import numpy.typing as npt

from shardcall._src.calls import result
from shardcall._src.calls.array_methods import ArrayMethods
from shardcall._src.calls.call_memo import CallMemo
from shardcall._src.calls.calls import AUTO, Call, prepare
from shardcall._src.calls.profile import Profile
from shardcall._src.calls.residents import Residents
from shardcall._src.calls.result import Result
from shardcall._src.device_arrays import plan
from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.plan import Plan
from shardcall._src.device_arrays.remote_array import SHORT_TIMEOUT_S
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S, Deadline, deadline
from shardcall._src.rpc.transport import Transport
from shardcall._src.transfer.download import Answer
from shardcall._src.transfer.execution import Execution
from shardcall._src.transfer.sharing import Sharing
from shardcall._src.transfer.upload import Value
from shardcall._src.types import kernels, server_info, usage
from shardcall._src.types.arrays import Array, NDArray
from shardcall._src.types.errors import ShardcallError
from shardcall._src.types.kernels import KernelDescription, KernelTable
from shardcall._src.types.mesh import MeshLike
from shardcall._src.types.parameters import ParameterLike
from shardcall._src.types.server_info import ServerInfo
from shardcall._src.types.specs import SpecLike
from shardcall._src.types.usage import Usage
from shardcall.compiled import CompiledKernel
from shardcall.methods import KernelMethods
from shardcall.v1 import kernel_service_pb2, server_info_service_pb2

_HINT_TIMEOUT_S = 1.0

Specs = Sequence[SpecLike | None] | None


class Client(KernelMethods[Result], ArrayMethods):
    """A connection to a server; made by `connect` or `local`, safe to use from several threads at once.

    Every method raises a `shardcall.ShardcallError` of the class that fits.
    """

    def __init__(self, transport: Transport, info: ServerInfo, sharing: Sharing | None = None) -> None:
        transport.keep_to(info.limits.max_concurrent_calls_per_connection)
        self._transport = transport
        self._info = info
        self._sharing = sharing
        self._execution = Execution(transport, info.limits, sharing)
        self._residents = Residents(transport, info.limits, sharing, info.epoch)
        self._memo = CallMemo()
        self._on_close: Callable[[], object] | None = None

    @property
    def address(self) -> str:
        """Where the server is."""
        return self._transport.address

    def call(
        self,
        name: str,
        /,
        *operands: OperandLike | None,
        mesh: MeshLike | None = None,
        in_specs: Specs = None,
        out_specs: Specs = None,
        strategy: str = AUTO,
        keep: bool = False,
        timeout: float | None = DEFAULT_TIMEOUT_S,
        **parameters: ParameterLike | OperandLike | SpecLike,
    ) -> Result:
        """Runs any kernel of the server.

        Args:
            name: the kernel, as `kernels` tells it.
            operands: whatever NumPy takes, and arrays on the mesh, in the kernel's order; None leaves an optional one
                out.
            mesh: the devices to run on; None for those of the first operand that is on the mesh, else as the server
                chooses.
            in_specs: one per operand; those missing at the end, and None, are as the operand lies on the mesh, else
                as the kernel chooses.
            out_specs: one per result, likewise.
            strategy: how the kernel does its work; ``"auto"`` leaves it to the kernel.
            keep: leave the results on the mesh: each is then a `RemoteArray`.
            timeout: seconds for the whole call, upload and compilation included; None for the server's maximum.
            parameters: the kernel's static parameters; for kernels that have a method of their own also the
                names that it gives to operands and specs.

        Raises:
            ShardcallError: of the class that fits.
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
        return self._run(call, call.values, timeout, keep=keep)

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
        """Tells what a call would do, without its values.

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
        with self._residents.using(call.operands, call.names):
            response = self._transport.unary(
                self._transport.stubs.kernels.Plan,
                request,
                self._deadline(timeout),
                kernel=name,
                rerun=not call.handles,
            )
        return plan.from_proto(response.plan, response.cache)

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

        Arguments are those of `call`. A `shardcall.Array` stands for each array that the kernel's callers will
        give; operands given with their values, such as ``prepend=0.0``, are bound.

        As with ``jax.stages.Compiled``, an array on the mesh whose placement is not the one compiled for is refused
        with a `ShardingError`; a bound one is refused at once. With ``reshard=True`` calls move it instead, and
        ``compiled(x, reshard=True)`` allows that to a single call.
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
            with self._residents.using(call.operands, call.names):
                return self._transport.unary(
                    self._transport.stubs.kernels.Compile,
                    request,
                    self._deadline(timeout),
                    kernel=name,
                    rerun=not call.handles,
                )

        with self._transport.meters.start() as meter:
            meter.compile()
            response = compiled(timeout, text=False)
        known = plan.from_proto(response.plan, response.cache)
        sizes = [placement.type.nbytes for placement in known.results]

        def run(running: Call, values: tuple[Value, ...], timeout: float | None, keep: bool, reshard: bool) -> Result:
            return self._run(running, values, timeout, keep=keep, result_sizes=sizes, refuse_transfers=not reshard)

        return CompiledKernel(
            call, known, lambda timeout: compiled(timeout, text=True).compiled_text, run, reshard=reshard
        )

    def kernels(self, *, timeout: float | None = 10.0) -> KernelTable:
        """Tells which kernels the server has; ``print`` shows a table."""
        request = kernel_service_pb2.ListKernelsRequest()
        response = self._transport.unary(self._transport.stubs.kernels.ListKernels, request, self._deadline(timeout))
        return KernelTable(map(kernels.from_proto, response.kernels))

    def kernel(self, name: str, *, timeout: float | None = 10.0) -> KernelDescription:
        """Tells all about one kernel."""
        request = kernel_service_pb2.DescribeKernelRequest(kernel=name)
        response = self._transport.unary(self._transport.stubs.kernels.DescribeKernel, request, self._deadline(timeout))
        return kernels.from_proto(response.kernel)

    def server_info(self, *, timeout: float | None = 10.0) -> ServerInfo:
        """Tells what the server is and what it allows."""
        return ask_server_info(self._transport, self._deadline(timeout))

    def usage(self, *, timeout: float | None = 10.0) -> Usage:
        """Tells what the server holds at this moment."""
        request = server_info_service_pb2.GetUsageRequest()
        return usage.from_proto(
            self._transport.unary(self._transport.stubs.server.GetUsage, request, self._deadline(timeout))
        )

    def profile(
        self, directory: str | os.PathLike[str], *, max_seconds: float = 0.0, timeout: float | None = DEFAULT_TIMEOUT_S
    ) -> Profile:
        """Records what the server's devices do during a ``with`` block, with JAX's profiler.

            with client.profile("traces") as profile:
                client.matmul(a, b)
            print(profile.path)                          # TensorBoard and XProf read traces/

        The calls of all clients are recorded, so it takes a token of scope ``admin``. One profile is recorded at a
        time.

        Args:
            directory: where the files go, each profile in a fresh folder ``plugins/profile/<time>`` below it.
            max_seconds: after which the server throws away what nobody has stopped; 0 for 300. For so
                long a client that is gone keeps others from recording.
            timeout: seconds for starting, and again for stopping and fetching; None for the server's maximum.

        Raises:
            InvalidParameterError: if the directory is no path, or ``max_seconds`` no number.
            InvalidRequestError: when a profile is being recorded already, or the server threw it away.
            AccessDeniedError: for a token without the scope ``admin``.
        """
        return Profile(self._transport, directory, max_seconds, lambda: self._deadline(timeout))

    def empty(self, shape: int | Iterable[int], dtype: npt.DTypeLike = np.float64) -> NDArray:
        """Returns an uninitialized array, as ``numpy.empty``, that need not be copied to be an operand.

        It lies in memory shared with the server where that can be had, else it is an ordinary array. It stays valid
        after `close`. It must be left alone while a call that it is an operand of runs.

        Args:
            shape: the size of each axis; an integer for one axis.
            dtype: the element type, as of `shardcall.Array`.

        Raises:
            InvalidOperandError: for a negative size.
            OperandTypeError: for an element type that cannot travel.
        """
        kind = Array(shape, dtype)
        if self._sharing is None:
            return np.empty(kind.shape, kind.dtype)
        return self._sharing.empty(kind, self._deadline(SHORT_TIMEOUT_S))

    def close(self) -> None:
        """Deletes this client's arrays from the mesh and ends the connection; may be repeated.

        Ends the server where `local` started it. Arrays that came back as results, and those of `empty`, stay valid.
        """
        self._residents.close()
        if self._sharing is not None:
            self._sharing.close()
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
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self.address}, {len(self._info.devices)} {self._info.platform} devices>"

    def _run(
        self,
        call: Call,
        values: tuple[Value, ...],
        timeout: float | None,
        *,
        keep: bool = False,
        result_sizes: Sequence[int] | None = None,
        refuse_transfers: bool = False,
    ) -> Result:
        until = self._deadline(timeout)
        lease_id = self._residents.lease_id if keep else b""

        def run() -> Answer:
            return self._execution.run(
                call.message,
                values,
                until,
                lease_id=lease_id,
                result_sizes=result_sizes,
                refuse_transfers=refuse_transfers,
            )

        with self._residents.using(values, call.names), self._residents.making() if keep else nullcontext():
            answer = self._residents.make_room(run, until) if keep else run()
            arrays = self._residents.kept(self, answer)
        return result.from_answer(answer, arrays, until.elapsed_s())

    @cached_property
    def _kernels(self) -> frozenset[str]:
        return frozenset(kernel.name for kernel in self.kernels(timeout=_HINT_TIMEOUT_S))

    def _kernel_names(self) -> Iterable[str]:
        with suppress(ShardcallError):
            return self._kernels
        return ()

    def _deadline(self, timeout: float | None) -> Deadline:
        return deadline(timeout, self._info.limits.max_call_seconds)


def ask_server_info(transport: Transport, until: Deadline) -> ServerInfo:
    """Asks a server what it is."""
    request = server_info_service_pb2.GetServerInfoRequest()
    return server_info.from_proto(transport.unary(transport.stubs.server.GetServerInfo, request, until, repeats=False))
