"""A connection to a server, with its kernels as methods."""

from __future__ import annotations

import copy
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_index

from shardcall._src.calls import result
from shardcall._src.calls.call_request import AUTO, CallOptions, CallRequest, prepare
from shardcall._src.calls.call_trace import CallTrace
from shardcall._src.calls.result import Result
from shardcall._src.device_arrays import plan
from shardcall._src.device_arrays.array_table import ArrayTable
from shardcall._src.device_arrays.array_version import ArrayBase, ArrayVersion, ServerIdentity, settle_others
from shardcall._src.device_arrays.bucketed_array import Bucket, BucketedArray
from shardcall._src.device_arrays.operands import OperandLike, as_operand
from shardcall._src.device_arrays.plan import Plan
from shardcall._src.device_arrays.remote_array import SHORT_TIMEOUT_S, RemoteArray, find_remote_array
from shardcall._src.display.progress import Progress
from shardcall._src.programs.call_sender import CallSender
from shardcall._src.programs.pending_calls import PendingCall
from shardcall._src.programs.progress_reader import ProgressReader
from shardcall._src.programs.submitter import Submitter
from shardcall._src.programs.templates import Templates
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S, Deadline, deadline_after
from shardcall._src.rpc.transport import Transport
from shardcall._src.services.implicit_gets import ImplicitGet, ImplicitGets, Statistics
from shardcall._src.services.models import PublishedModel, PublishedModels, PublishedModelTable
from shardcall._src.services.named_arrays import checked_name, checked_names, checked_principal
from shardcall._src.services.passed_arrays import Handle
from shardcall._src.services.profile import Profile
from shardcall._src.services.remote_arrays import RemoteArrays, array_to_put, checked_keep
from shardcall._src.services.saved_files import FileTable, SavedCheckpoint, SavedFile, SavedFiles
from shardcall._src.traced.call_tracer import CallTracer
from shardcall._src.traced.control_flow import ControlFlow
from shardcall._src.traced.derivatives import (
    Argnums,
    Checkpoint,
    ForwardDerivative,
    FunctionGradient,
    ReverseDerivative,
    TransformedFunction,
)
from shardcall._src.traced.program import TracedProgram
from shardcall._src.traced.traced_function import Names, TracedFunction
from shardcall._src.traced.vectorized import VectorizedFunction
from shardcall._src.transfer.call_runner import CallRunner
from shardcall._src.transfer.call_stream import CallStream
from shardcall._src.transfer.download import Answer
from shardcall._src.transfer.shared_memory_client import SharedMemory
from shardcall._src.transfer.upload import Value
from shardcall.compiled import CompiledKernel
from shardcall.methods import KernelMethods
from shardcall.methods.kernel_caller import kernel_method
from shardcall.namespace import Namespace
from shardcall.v1 import kernel_service_pb2, server_info_service_pb2
from shardcall_core.markup import page
from shardcall_core.placements.placement import MeshPlacement
from shardcall_core.types import kernels, server_info, usage
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.errors import ArrayLostError, InvalidParameterError, ShardcallError
from shardcall_core.types.flags import checked_flag
from shardcall_core.types.kernels import KernelDescription, KernelTable
from shardcall_core.types.mesh import MeshLike
from shardcall_core.types.parameters import ParameterLike
from shardcall_core.types.pytrees import flatten
from shardcall_core.types.server_info import ServerInfo
from shardcall_core.types.specs import PartitionSpec, SpecLike
from shardcall_core.types.tracebacks import shortened
from shardcall_core.types.usage import Usage

_ATTEMPTS = 8  # to copy an array that other clients write to
_HINT_TIMEOUT_S = 1.0
_PLACEMENT_TIMEOUT_S = 0.2

Specs = Sequence[SpecLike | None] | None


@shortened
class Client(KernelMethods[Result[Any]]):
    """A connection to a server; made by `connect` or `local`, safe to use from several threads at once.

    Every method raises a `shardcall.ShardcallError` of the class that fits.
    """

    _shows_values = False  # until the caller wants `repr` to show values

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
        show_values: bool = False,
    ) -> None:
        self._shows_values = show_values
        self._transport = transport
        self._info = info
        self._shared_memory = shared_memory
        served = info.limits.max_streamed_calls and info.limits.max_prepared_calls
        self._call_stream = CallStream(transport, info.limits) if call_stream and served else None
        self._runner = CallRunner(transport, info.limits, shared_memory, self._call_stream)
        self._templates = Templates()
        self._sender = CallSender(transport, info, self._call_stream)
        self._progress = ProgressReader(transport, self._sender.pending)
        self._progress.serve(transport.meters)
        is_recording = fuse and not synchronous and self._call_stream is not None
        longest_s = info.limits.max_call_seconds
        self._submitter = Submitter(
            self._sender, self._templates, longest_s, is_recording=is_recording, is_synchronous=synchronous
        )
        self._saved_files = SavedFiles(transport)
        self._models = PublishedModels(transport)
        self._remote_arrays = RemoteArrays(
            transport, info.limits, shared_memory, self._call_stream, self._sender, self._submitter
        )
        self._tracer = CallTracer(self._submitter, self._templates.messages)
        self._implicit_gets = ImplicitGets(implicit_get)
        self._kernels: frozenset[str] | None = None
        self._stop_server: weakref.finalize[..., Client] | None = None
        transport.limit_calls(info.limits.max_concurrent_calls_per_connection)
        transport.use_descriptions(partial(_use, weakref.ref(self)))  # the transport may outlive the client

    @property
    def _here(self) -> ServerIdentity:
        return self._sender.here

    def _use(self, info: ServerInfo) -> None:
        """Goes on at another server, by its description."""
        self._info = info
        self._transport.limit_calls(info.limits.max_concurrent_calls_per_connection)
        self._sender.use(info)
        self._submitter.use(info.limits.max_call_seconds)
        for part in (self._runner, self._remote_arrays, self._call_stream):
            if part is not None:
                part.use(info.limits)

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

        Example:
            >>> client.call("diff", np.array([1, 4, 9]), n=2).array
            array([2])
        """
        options = CallOptions(mesh, in_specs, out_specs, strategy)
        if self._tracer.is_tracing(operands):
            return self._tracer.result(name, operands, parameters, options)
        call = prepare(name, operands, parameters, options, memo=self._templates.messages)
        return self._run(call, call.values, timeout, keep=keep)

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
        The error names the line that submitted the call. It is raised by reading a result, by `synchronize`, or at the
        end of the client's ``with`` block; the next `get` of any array warns of one whose results were dropped.

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

        Example:
            >>> h = client.submit("diff", np.array([1, 4, 9]))
            >>> h.get()
            array([3, 5])
        """
        options = CallOptions(mesh, in_specs, out_specs, strategy)
        if self._tracer.is_tracing(operands):
            arrays: tuple[RemoteArray, ...] = self._tracer.add(name, operands, parameters, options)
        else:
            arrays = self._submitter.submit(self, name, operands, parameters, options, timeout)
        return arrays[0] if len(arrays) == 1 else arrays

    def _record(self, name: str, /, *values: ArrayVersion | NDArray, **parameters: Any) -> ArrayVersion | None:
        if self._tracer.active.trace is not None:
            return None
        return self._submitter.record(self, name, values, parameters)

    def synchronize(self, *, timeout: float | None = None) -> None:
        """Waits for all calls that were submitted before.

        Args:
            timeout: seconds; None for the timeouts of the calls.

        Raises:
            DeadlineExceededError: if not all are done in time; they continue.
            ShardcallError: of a submitted call that failed, if neither this nor another method has raised it before.

        Example:
            >>> h = client.put(np.arange(4.0)) + 1
            >>> client.synchronize()
        """
        self._submitter.flush_all()
        self._submitter.pending.synchronize(None if timeout is None else self._deadline(timeout))

    def trace_calls(self) -> CallTrace:
        """Returns what the latest calls that were recorded ran as, oldest first; ``print`` shows a table.

        Calls that depend on each other are recorded and sent as one program (docs/pending_arrays.md).

        Example:
            >>> values = (client.put(np.arange(4.0)) * 2 + 1).get()
            >>> trace = client.trace_calls()
        """
        return self._submitter.sending.history.trace()

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

        Example:
            >>> client.plan("diff", sc.Array((64, 8), "float64"), axis=0, mesh=sc.Mesh(x=8), spec="x", strategy="halo")
            diff on Mesh(x=8)
              strategy     halo: …
        """
        options = CallOptions(mesh, in_specs, out_specs, strategy)
        call = prepare(name, operands, parameters, options, memo=self._templates.messages)
        request = kernel_service_pb2.PlanRequest(call=call.message, operands=call.type_messages(), handles=call.handles)
        deadline = self._deadline(timeout)
        with self._remote_arrays.passed.using(call.operands, call.names, deadline):
            response = self._transport.unary(
                self._transport.stubs.kernels.Plan,
                request,
                deadline,
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

        Arguments are those of `call`. A `shardcall.Array` stands for each array that callers of the compiled kernel
        pass; operands with values, such as ``prepend=0.0``, are bound.

        As with ``jax.stages.Compiled``, an array on the mesh whose placement differs from the compiled one raises a
        `ShardingError`, a bound one immediately. With ``reshard=True`` calls move it instead; so does a single call
        ``compiled(x, reshard=True)``.

        Example:
            >>> diff = client.compile("diff", sc.Array((4,), "int64"))
            >>> diff(np.array([1, 4, 9, 16])).array
            array([3, 5, 7])
        """
        options = CallOptions(mesh, in_specs, out_specs, strategy)
        call = prepare(name, operands, parameters, options, memo=self._templates.messages)

        def compiled(timeout: float | None, *, text: bool) -> kernel_service_pb2.CompileResponse:
            request = kernel_service_pb2.CompileRequest(
                call=call.message, operands=call.type_messages(), include_text=text, handles=call.handles
            )
            deadline = self._deadline(timeout)
            with self._remote_arrays.passed.using(call.operands, call.names, deadline):
                return self._transport.unary(
                    self._transport.stubs.kernels.Compile,
                    request,
                    deadline,
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

    def jit(
        self,
        function: Callable[..., Any] | None = None,
        *,
        static: Names = (),
        donate: Names = (),
        exact: bool = False,
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
            exact: True for results that are equal, bit for bit, to those of the calls one by one. By default the
                compiler may round differently, as that of `jax.jit`, and the program takes less time.
            out_specs: the sharding of each result, in the sequence of the leaves; None, or a shorter list, for the
                default of the kernel that computes it.

        Returns:
            A `shardcall.TracedFunction`.

        Example:
            >>> double = client.jit(lambda x: 2 * x)
            >>> double(np.arange(4)).get()
            array([0, 2, 4, 6])
        """
        if function is None:
            return lambda function: self.jit(function, static=static, donate=donate, exact=exact, out_specs=out_specs)
        return TracedFunction(
            self, self._tracer.active, function, static=static, donate=donate, exact=exact, out_specs=out_specs
        )

    def publish(
        self,
        function: Callable[..., Any],
        name: str,
        /,
        *abstract: Any,
        shared: bool = False,
        timeout: float | None = DEFAULT_TIMEOUT_S,
    ) -> PublishedModel:
        """Publishes a function as a model, which clients of the Open Inference Protocol run (docs/inference.md).

        The function is traced as by `jit` and compiled on the server. The model stays without this client, and until
        the server ends. Another one of its name is replaced; the same one keeps its version.

        Args:
            function: the function, or what `jit` made of one.
            name: 1 to 64 ASCII letters, digits, ``.``, ``_`` and ``-``; not that of a kernel.
            abstract: the arguments. Each `shardcall.Array` in them is an input of the model. Other values are a part of
                it, as are arrays of this process that the function refers to, at most 1 MiB together. Arrays on the
                mesh need a name, by which each request looks them up.
            shared: whether other principals may run it, as ``principal/name``.
            timeout: seconds; None for the server's maximum.

        Raises:
            TracingError: for a function that cannot be traced, or that writes to an array of its caller.
            ResourceExhaustedError: if what is a part of the model is too large.
            ShardcallError: of the class that fits.

        Example:
            >>> model = client.publish(lambda x: 2 * x, "double", sc.Array((4,), "float32"))
            >>> model.inputs, model.outputs
            ({'x': Array((4,), 'float32')}, {'result0': Array((4,), 'float32')})
            >>> client.unpublish("double")
            True
        """
        name, is_shared, deadline = checked_name(name), checked_flag("shared", shared), self._deadline(timeout)
        traced = function if isinstance(function, TracedFunction) else self.jit(function)
        request = traced._model(abstract, self._info.limits.max_inline_bytes)
        request.name, request.shared = name, is_shared
        with self._remote_arrays.passed.using([], []):  # after the recorded calls
            return self._models.publish(request, deadline)

    def unpublish(self, name: str, /, *, timeout: float | None = SHORT_TIMEOUT_S) -> bool:
        """Removes a published model of this principal; returns whether there was one. Its running requests finish.

        Args:
            name: the name.
            timeout: seconds; None for the server's maximum.

        Raises:
            ShardcallError: of the class that fits.

        Example:
            >>> client.unpublish("no-model")
            False
        """
        return self._models.unpublish(checked_name(name), self._deadline(timeout))

    def models(self, *, timeout: float | None = SHORT_TIMEOUT_S) -> PublishedModelTable:
        """Returns the published models of this principal, and those that others share; ``print`` shows them.

        Args:
            timeout: seconds; None for the server's maximum.

        Raises:
            ShardcallError: of the class that fits.

        Example:
            >>> model = client.publish(lambda x: x + 1, "increment", sc.Array((2,), "int64"))
            >>> "increment" in [model.name for model in client.models()]
            True
            >>> client.unpublish("increment")
            True
        """
        return self._models.all(self._deadline(timeout))

    def value_and_grad(
        self, function: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False
    ) -> Callable[..., Any]:
        """Returns a function that returns what a function returns and its gradient, as one program.

            loss, gradients = client.value_and_grad(loss_of)(params, batch)

        Args:
            function: the function, as `jit` takes it, or one that `jit` returned. It returns a real floating-point
                number, the loss.
            argnums: the position of the argument that the gradient is with respect to, or several; the leaves are
                floating-point or complex.
            has_aux: True if the function returns a pair of the loss and other results.

        Returns:
            A `shardcall.TracedFunction`, which returns a pair: what the function returns, and the gradient in the
            structure of the argument, of several arguments a tuple.

        Example:
            >>> value, slope = client.value_and_grad(lambda x: (x * x).sum())(np.array([1.0, 3.0]))
            >>> value.item(), slope.get()
            (10.0, array([2., 6.]))
        """
        return self._transformed(
            FunctionGradient(self._tracer.active, function, argnums, has_value=True, has_aux=has_aux)
        )

    def grad(self, function: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False) -> Callable[..., Any]:
        """Returns a function that returns the gradient of a function, as one program.

        Args:
            function: the function, as of `value_and_grad`.
            argnums: the position of the argument that the gradient is with respect to, or several.
            has_aux: True if the function returns a pair of the loss and other results.

        Returns:
            A `shardcall.TracedFunction`, which returns the gradient; with ``has_aux`` a pair of it and the others.

        Example:
            >>> client.grad(lambda x: (x * x).sum())(np.array([1.0, 3.0])).get()
            array([2., 6.])
        """
        return self._transformed(
            FunctionGradient(self._tracer.active, function, argnums, has_value=False, has_aux=has_aux)
        )

    def jvp(self, function: Callable[..., Any], primals: Any, tangents: Any) -> Any:
        """Returns the results of a function, and their derivatives along tangents.

        Args:
            function: the function, as `jit` takes it.
            primals: its arguments, a sequence.
            tangents: the direction, of the structure and the types of the arguments.

        Returns:
            A pair: the results, and their derivatives in the same structure.

        Example:
            >>> result, slope = client.jvp(np.square, [np.array([3.0])], [np.array([1.0])])
            >>> result.get(), slope.get()
            (array([9.]), array([6.]))
        """
        return self._transformed(ForwardDerivative(self._tracer.active, function))(tuple(primals), tuple(tangents))

    def vjp(self, function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
        """Returns the results of a function, and a function of their cotangents.

        The second one computes the results again, in its own program.

        Args:
            function: the function, as `jit` takes it.
            primals: its arguments.

        Returns:
            A pair: the results, and a function that takes cotangents of the structure and the types of the results, and
            returns a tuple of the products of these and the derivatives for each argument.

        Example:
            >>> result, pull = client.vjp(np.square, np.array([3.0]))
            >>> pull(np.array([1.0]))[0].get()
            array([6.])
        """
        product = self._transformed(ReverseDerivative(self._tracer.active, function))
        leaves, structure = flatten(primals)
        # The caller may assign to elements of its arguments before it has cotangents.
        kept = structure.with_leaves([copy.copy(leaf) for leaf in leaves])
        return self.jit(function)(*kept), lambda cotangents: product(kept, cotangents)

    def checkpoint(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function whose intermediate results are computed again for derivatives, not kept in memory.

        Args:
            function: the function, as `jit` takes it.

        Returns:
            A `shardcall.TracedFunction` with the same results.

        Example:
            >>> layer = client.checkpoint(lambda x: np.sin(np.square(x)))
            >>> client.grad(lambda x: layer(x).sum())(np.array([0.0])).get()
            array([0.])
        """
        return self._transformed(Checkpoint(self._tracer.active, function))

    def vmap(self, function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
        """Returns a function that is computed for every index of an axis of its arguments at once, as one program.

            gradients = client.vmap(client.grad(loss_of), in_axes=(None, 0))(params, examples)

        The results are those of a loop over the indices, stacked. The mapped axes are not sharded; the others are as
        the function's calls shard them.

        Args:
            function: the function of one index, as `jit` takes it. It may be a transformed one, and may be transformed.
            in_axes: the axis of all arguments, or a tuple with the axis of each; None for an argument that every index
                gets complete. In place of an axis, a tree of the upper structure of the argument has one for each part.
                Arguments that are only given by name are mapped along axis 0, static ones never.
            out_axes: the axis of all results that the values of the indices are stacked along, or a tree of these of
                the upper structure of what the function returns.

        Returns:
            A `shardcall.TracedFunction`. It raises an `InvalidParameterError` for axes that there are not, axes of
            different lengths, and if no argument is mapped.

        Example:
            >>> dot = client.vmap(lambda x, y: (x * y).sum())
            >>> dot(np.ones((2, 3)), np.arange(6.0).reshape(2, 3)).get()
            array([ 3., 12.])
        """
        return self._transformed(VectorizedFunction(self._tracer.active, function, in_axes, out_axes))

    def put(
        self,
        x: OperandLike,
        /,
        *,
        mesh: MeshLike | None = None,
        spec: SpecLike | None = None,
        keep_for: float = 0.0,
        name: str | None = None,
        replace: bool = False,
        durable: bool = False,
        timeout: float | None = DEFAULT_TIMEOUT_S,
    ) -> RemoteArray:
        """Puts an array on the mesh, where it stays.

        Args:
            x: [...] an array-like.
            mesh: the mesh to place it on; None for the server's default mesh.
            spec: the sharding; None shards its first axis over all mesh axes.
            keep_for: seconds for which it stays without this client, until it is deleted or the mesh restarts; other
                clients of the same principal use its handle. 0 keeps it as long as this client has the object, and
                one with a name until it is deleted.
            name: the name by which `open` returns it in every client of the same principal; as of `name`.
            replace: whether to delete another array that has the name.
            durable: whether it is written to the server's disk, too, as by ``save_checkpoint(name)``. If that fails,
                the array is deleted, and the name stands for what it stood for before.
            timeout: seconds, upload included; None for the server's maximum.

        Returns:
            The array on the mesh, an operand of any kernel.

        Raises:
            InvalidRequestError: if the name stands for another array.
            ResourceExhaustedError: if the server's limits do not allow it.
            ShardcallError: of the class that fits.

        Example:
            >>> h = client.put(np.arange(16.0), mesh=sc.Mesh(x=8), spec=sc.P("x"))
            >>> np.sum(h).item()
            120.0
        """
        limit_s = self._info.limits.max_lease_seconds if name is None else 0.0
        array, keep_s, deadline = array_to_put(x), checked_keep(keep_for, limit_s), self._deadline(timeout)
        replaces, is_durable = checked_flag("replace", replace), checked_flag("durable", durable)
        if name is None:
            if is_durable:
                raise InvalidParameterError(
                    "durable is True, and the array has no name under which it could be there after a restart; give "
                    "name=, too",
                    field="durable",
                )
            return self._remote_arrays.put(self, array, mesh, spec, deadline, keep_s=keep_s)
        name = checked_name(name)
        there = self._remote_arrays.put(self, array, mesh, spec, deadline)
        names = self._remote_arrays.names
        give_name = names.name_durably if is_durable else names.name
        give_name(there, name, deadline, replaces=replaces, keep_s=keep_s)
        return there

    def name(
        self,
        array: Handle,
        name: str,
        /,
        *,
        keep_for: float = 0.0,
        replace: bool = False,
        timeout: float | None = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Gives an array a name, by which `open` returns it in every client of the same principal.

        The array then stays without this client. Its writes, such as ``h[key] = y`` and ``h += 1``, replace the array
        that the name stands for. An array has one name; an earlier one is free then.

        Args:
            array: a `RemoteArray` that is no view, or the handle of one.
            name: 1 to 64 ASCII letters, digits, ``.``, ``_`` and ``-``.
            keep_for: seconds after which it is deleted; 0 keeps it until `delete`, or until the mesh restarts, after
                which it is as `save_checkpoint` has saved it.
            replace: whether to delete another array that has the name.
            timeout: seconds; None for the server's maximum.

        Raises:
            InvalidRequestError: if the name stands for another array.
            ShardcallError: of the class that fits.

        Example:
            >>> h = client.put(np.arange(4.0))
            >>> client.name(h, "temperatures", replace=True)
            >>> client.open("temperatures").get()
            array([0., 1., 2., 3.])
            >>> client.delete(h)
            1
        """
        keep_s, deadline, replaces = checked_keep(keep_for), self._deadline(timeout), checked_flag("replace", replace)
        self._remote_arrays.names.name(array, checked_name(name), deadline, replaces=replaces, keep_s=keep_s)

    def open(self, name: str, /, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> RemoteArray:
        """Returns the array that a name stands for.

        All objects of it, in this client and others, are one array: a write to one is seen in the others. If a restart
        has taken the name back to a checkpoint, before values that this client has seen, every use of the older objects
        raises ArrayLostError, until this method has accepted the older values.

        Args:
            name: the name, or ``principal/name``.
            timeout: seconds; None for the server's maximum.

        Raises:
            ArrayLostError: if no array of this principal has the name, and none that another principal shares with it.
            ShardcallError: of the class that fits.

        Example:
            >>> h = client.put(np.zeros(3), name="counts", replace=True)
            >>> h[0] = 5
            >>> client.open("counts").get()
            array([5., 0., 0.])
            >>> client.delete(h)
            1
        """
        return self._remote_arrays.names.open(self, name, self._deadline(timeout))

    def share(
        self, name: str, /, *, with_: str, write: bool = False, timeout: float | None = DEFAULT_TIMEOUT_S
    ) -> None:
        """Shares the array of a name with another principal, whose clients use it as ``open("principal/name")``.

        They read it: as an operand of any call, by `get`, `describe` and `open`. They cannot name, delete or share it.
        The name stays shared when a write replaces the array, and until the array is deleted or gets another name.

        Args:
            name: the name.
            with_: the other principal, which need not exist yet; a name has at most 64.
            write: whether it may also write to the array, by assignments, ``out=`` and ``+=``. A later call of `share`
                replaces it.
            timeout: seconds; None for the server's maximum.

        Raises:
            ArrayLostError: if no array has the name.
            NotSupportedError: if the server does not authenticate its callers, who may all use the name.
            ShardcallError: of the class that fits.

        Example:
            >>> h = client.put(np.zeros(3), name="shared", replace=True)
            >>> client.share("shared", with_="alice")
            >>> client.unshare("shared")
            >>> client.delete(h)
            1
        """
        principal, deadline = checked_principal(with_), self._deadline(timeout)
        self._remote_arrays.names.share(checked_name(name), principal, deadline, may_write=checked_flag("write", write))

    def unshare(self, name: str, /, *, with_: str | None = None, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Shares the array of a name no longer; the other principal's running calls finish, and others are refused.

        Args:
            name: the name.
            with_: the other principal; None for all.
            timeout: seconds; None for the server's maximum.

        Raises:
            ArrayLostError: if no array has the name.
            ShardcallError: of the class that fits.

        Example:
            >>> h = client.put(np.zeros(3), name="shared", replace=True)
            >>> client.share("shared", with_="alice", write=True)
            >>> client.unshare("shared", with_="alice")
            >>> client.delete(h)
            1
        """
        principal = "" if with_ is None else checked_principal(with_)
        self._remote_arrays.names.unshare(checked_name(name), principal, self._deadline(timeout))

    def bucket(
        self, x: OperandLike, axis: int = 0, *, mesh: MeshLike | None = None, spec: SpecLike | None = None
    ) -> BucketedArray:
        """Puts an array on the mesh with one axis rounded up, so that arrays of many lengths share compiled programs.

        The axis gets one of eight sizes for each doubling, and at most an eighth more elements than it has. The array
        has its own shape in all results; docs/arrays.md lists the functions that keep the padding.

        Args:
            x: [...] an array-like, or an array on the mesh, whose padding is then made for each length.
            axis: the axis that is rounded up.
            mesh: the mesh to place it on; None for the server's default mesh, or that of an array on the mesh.
            spec: the sharding; None shards its first axis over all mesh axes, or for that of an array on the mesh.

        Raises:
            numpy.exceptions.AxisError: if there is no such axis.
            ShardcallError: of the class that fits.

        Example:
            >>> h = client.bucket(np.arange(100.0))
            >>> (h + 1).shape
            (100,)
        """
        if (here := find_remote_array(x)) is not None:
            return BucketedArray.of(self.xp.array(here, mesh=mesh, spec=spec), normalize_axis_index(axis, here.ndim))
        array = as_operand(x, "x")
        bucket = Bucket.of(normalize_axis_index(axis, array.ndim), array.shape[axis])
        return BucketedArray(self.put(np.pad(array, bucket.widths(array.ndim)), mesh=mesh, spec=spec), bucket)

    def get(self, array: Handle, /, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> NDArray:
        """Copies an array from the mesh.

        Args:
            array: a `RemoteArray`, or the handle of one.
            timeout: seconds, download included; None for the server's maximum.

        Raises:
            ArrayLostError: if it is no longer there.
            ShardcallError: of the class that fits.

        Example:
            >>> h = client.put(np.arange(4.0))
            >>> client.get(h)
            array([0., 1., 2., 3.])
        """
        return self._remote_arrays.get(self, array, deadline_after(timeout, self._info.limits.max_call_seconds))

    def describe(self, array: Handle, /, *, timeout: float | None = SHORT_TIMEOUT_S) -> RemoteArray:
        """Returns an array as the server describes it.

        Args:
            array: a `RemoteArray`, or the handle of one, which may be another client's.
            timeout: seconds; None for the server's maximum.

        Raises:
            ArrayLostError: if it is no longer there.
            ShardcallError: of the class that fits.

        Example:
            >>> h = client.put(np.arange(4.0))
            >>> client.describe(h.handle).shape
            (4,)
        """
        return self._remote_arrays.describe(self, array, self._deadline(timeout))

    def delete(self, /, *arrays: Handle, timeout: float | None = SHORT_TIMEOUT_S) -> int:
        """Deletes arrays from the mesh; those that are not there, and those of other principals, are ignored.

        An array that a copy shares, such as a slice of everything, stays until its last object is deleted or dropped;
        a handle deletes it for all.

        Args:
            arrays: `RemoteArray` objects, or handles.
            timeout: seconds; None for the server's maximum.

        Returns:
            The number of arrays that were there.

        Raises:
            ShardcallError: of the class that fits.

        Example:
            >>> h = client.put(np.arange(4.0))
            >>> client.delete(h)
            1
        """
        return self._remote_arrays.delete(arrays, self._deadline(timeout))

    def list(
        self, *, of_all_clients: bool = False, timeout: float | None = DEFAULT_TIMEOUT_S
    ) -> ArrayTable[RemoteArray]:
        """Returns the arrays that this client has on the server, oldest first, and those of its principal with names.

        Those that other principals share with it are there, too. ``print`` shows their names, owners, guests, ages and
        times.

        Args:
            of_all_clients: also those of other clients of the same principal, and those that outlive their clients.
            timeout: seconds; None for the server's maximum.

        Raises:
            ShardcallError: of the class that fits.

        Example:
            >>> h = client.put(np.arange(4.0))
            >>> h.handle in {array.handle for array in client.list()}
            True
        """
        if checked_flag("of_all_clients", of_all_clients):
            return self._remote_arrays.of_principal(self, self._deadline(timeout))
        return self._remote_arrays.all(self, self._deadline(timeout))

    def save(
        self, array: Handle, name: str | os.PathLike[str], /, *, timeout: float | None = DEFAULT_TIMEOUT_S
    ) -> SavedFile:
        """Saves an array in an npy file or a Zarr array of the server, without copying it to the client.

        When it returns, the file is on the server's disk. It replaces a file of the same name; if it fails, that one is
        as before.

        Args:
            array: a `RemoteArray`, or the handle of one.
            name: a path, a string or a `pathlib.Path`, such as ``"runs/a.npy"``, or ``"runs/a.zarr"`` for a directory
                in the Zarr format of version 3 with a chunk for each device's block: at most 8 parts of 1 to 64 ASCII
                letters, digits, ``.``, ``_`` and ``-``, none of which begins with a dot. Files belong to the principal.
            timeout: seconds; None for the server's maximum.

        Raises:
            ArrayLostError: if the array is no longer there.
            ResourceExhaustedError: if the server's limits or its disk do not allow it.
            ShardcallError: of the class that fits.

        Example:
            >>> h = client.put(np.arange(4.0))
            >>> client.save(h, "runs/a.npy").name
            'runs/a.npy'
        """
        return self._remote_arrays.save(array, name, deadline_after(timeout, self._info.limits.max_call_seconds))

    def load(
        self,
        name: str | os.PathLike[str],
        /,
        *,
        mesh: MeshLike | None = None,
        spec: SpecLike | None = None,
        timeout: float | None = DEFAULT_TIMEOUT_S,
    ) -> RemoteArray:
        """Puts an array on the mesh from an npy file or a Zarr array of the server, which `save` or others wrote.

        Args:
            name: the name of the file; of an array in a Zarr group, ``"runs/a.zarr/u"``.
            mesh: the mesh to place it on; None for the server's default mesh.
            spec: the sharding; None shards its first axis over all mesh axes.
            timeout: seconds; None for the server's maximum.

        Raises:
            InvalidRequestError: if there is no such file, or it is damaged.
            ResourceExhaustedError: if the server's limits do not allow it.
            ShardcallError: of the class that fits.

        Example:
            >>> saved = client.save(client.put(np.arange(4.0)), "runs/b.npy")
            >>> client.load("runs/b.npy", mesh=sc.Mesh(x=2)).get()
            array([0., 1., 2., 3.])
        """
        return self._remote_arrays.load(self, name, mesh, spec, self._deadline(timeout))

    def save_checkpoint(self, *names: str, timeout: float | None = DEFAULT_TIMEOUT_S) -> SavedCheckpoint:
        """Writes the arrays of names to the disk of the server, where they outlive restarts of the mesh and of it.

        When the mesh or the server has restarted, the names stand for the arrays of the last checkpoint again, which
        have their handles, and are read when they are first used. Later writes are lost, and clients that have seen
        them get an ArrayLostError, until they open the name again. The arrays of a checkpoint have the values of one
        moment, and checksums: one whose file was changed is refused with FILE_DAMAGED. A deleted array is deleted from
        the checkpoint, too.

        Args:
            names: the names whose arrays are written, beside which those of the last checkpoint stay; none for all
                names of the principal.
            timeout: seconds; None for the server's maximum.

        Raises:
            ArrayLostError: if no array has a name.
            InvalidRequestError: if the server keeps no files.
            ResourceExhaustedError: if the server's limits or its disk do not allow it; the last checkpoint stays.
            ShardcallError: of the class that fits.

        Example:
            >>> u = client.put(np.zeros(4), name="saved", durable=True)
            >>> u[0] = 1
            >>> "saved" in client.save_checkpoint().names
            True
            >>> u.delete()
        """
        deadline = deadline_after(timeout, self._info.limits.max_call_seconds)
        return self._remote_arrays.names.save_checkpoint(checked_names(names), deadline)

    def files(self, prefix: str | os.PathLike[str] = "", /, *, timeout: float | None = SHORT_TIMEOUT_S) -> FileTable:
        """Returns the files of arrays that the principal has on the server, by name; ``print`` shows them.

        Args:
            prefix: the beginning of their names, such as ``"runs/"``.
            timeout: seconds; None for the server's maximum.

        Raises:
            ShardcallError: of the class that fits.

        Example:
            >>> saved = client.save(client.put(np.arange(4.0)), "tables/c.npy")
            >>> [file.name for file in client.files("tables/")]
            ['tables/c.npy']
        """
        return self._saved_files.all(prefix, self._deadline(timeout))

    def remove_file(self, name: str | os.PathLike[str], /, *, timeout: float | None = SHORT_TIMEOUT_S) -> bool:
        """Removes a file of the server; returns whether there was one.

        Args:
            name: the name of the file.
            timeout: seconds; None for the server's maximum.

        Raises:
            ShardcallError: of the class that fits.

        Example:
            >>> client.remove_file("runs/none.npy")
            False
        """
        return self._saved_files.remove(name, self._deadline(timeout))

    def empty(self, shape: int | Iterable[int], dtype: npt.DTypeLike = np.float64) -> NDArray:
        """Returns an uninitialized array, as ``numpy.empty``, that calls use as an operand without a copy.

        The array is in memory shared with the server if there is some, else an ordinary array. It stays valid after
        `close`. It must not be changed while a call that it is an operand of runs.

        Args:
            shape: the size of each axis; an integer for one axis.
            dtype: the element type, as for `shardcall.Array`.

        Raises:
            InvalidOperandError: for a negative size.
            OperandTypeError: for an unsupported element type.

        Example:
            >>> x = client.empty((4, 3), np.float32)
            >>> x[:] = 1
            >>> client.sum(x).array
            array(12., dtype=float32)
        """
        array_type = Array(shape, dtype)
        if self._shared_memory is None:
            return np.empty(array_type.shape, array_type.dtype)
        return self._shared_memory.empty(array_type, self._deadline(SHORT_TIMEOUT_S))

    def statistics(self) -> Statistics:
        """Returns the counts of this client since it connected.

        Example:
            >>> statistics = client.statistics()
        """
        return self._implicit_gets.statistics()

    def kernels(self, *, timeout: float | None = 10.0) -> KernelTable:
        """Returns the descriptions of the server's kernels; ``print`` shows them in 80 columns.

        Example:
            >>> "diff" in [kernel.name for kernel in client.kernels()]
            True
        """
        request = kernel_service_pb2.ListKernelsRequest()
        response = self._transport.unary(self._transport.stubs.kernels.ListKernels, request, self._deadline(timeout))
        return KernelTable(map(kernels.from_proto, response.kernels))

    def kernel(self, name: str, *, timeout: float | None = 10.0) -> KernelDescription:
        """Returns the description of a kernel.

        Example:
            >>> [strategy.name for strategy in client.kernel("diff").strategies]
            ['gspmd', 'halo']
        """
        request = kernel_service_pb2.DescribeKernelRequest(kernel=name)
        response = self._transport.unary(self._transport.stubs.kernels.DescribeKernel, request, self._deadline(timeout))
        return kernels.from_proto(response.kernel)

    def server_info(self, *, timeout: float | None = 10.0) -> ServerInfo:
        """Returns the server's version, devices and limits.

        Example:
            >>> client.server_info().platform
            'cpu'
        """
        return ask_server_info(self._transport, self._deadline(timeout))

    def usage(self, *, timeout: float | None = 10.0) -> Usage:
        """Returns the server's present use of memory, programs and arrays, also by principal.

        Without the scope ``admin``, it is that of the caller's principal alone.

        Example:
            >>> client.usage().arrays >= 0
            True
        """
        request = server_info_service_pb2.GetUsageRequest()
        return usage.from_proto(
            self._transport.unary(self._transport.stubs.server.GetUsage, request, self._deadline(timeout))
        )

    def _progress_of(self, call: object, timeout: float | None) -> Progress | None:
        """Returns the progress of the call that makes an array; see `RemoteArray.progress`."""
        return self._progress.of_call(call, self._deadline(timeout)) if isinstance(call, PendingCall) else None

    def _expected_placement(self, call: object, index: int) -> MeshPlacement | None:
        """Returns the placement of a result of an unanswered call; None if the server does not say it soon."""
        with suppress(ShardcallError):
            if isinstance(call, PendingCall):
                return self._progress.placement(call, index, Deadline(_PLACEMENT_TIMEOUT_S))
        return None

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

        Example:
            >>> with client.profile("traces") as profile:
            ...     product = client.matmul(np.eye(2), np.eye(2))
        """
        return Profile(self._transport, directory, max_seconds, lambda: self._deadline(timeout))

    def close(self) -> None:
        """Deletes this client's arrays from the mesh and closes the connection; may be called again.

        A server that `local` started is terminated. Results in this process, and arrays of `empty`, stay valid.

        Example:
            >>> other = sc.connect(client.address)
            >>> other.close()
        """
        if sys.is_finalizing():  # the connection ends with the process, and the arrays with their lease
            return
        self._remote_arrays.close()
        if self._shared_memory is not None:
            self._shared_memory.close()
        if self._call_stream is not None:
            self._call_stream.close()
        self._transport.close()
        if self._stop_server is not None:
            self._stop_server()

    def _stop_at_close(self, stop: Callable[[], object]) -> None:
        """Makes `close` call a function, which must not refer to the client: also a collected client's, and at exit."""
        self._stop_server = weakref.finalize(self, stop)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a client belongs to its process, and is neither pickled nor copied; connect again in the other one: "
            "shardcall.connect(…)"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
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
        deadline = deadline_after(timeout, self._info.limits.max_call_seconds)
        settle_others(values, self, deadline)
        for value in values:
            if isinstance(value, ArrayVersion):
                break
        else:
            if not keep:
                answer = self._runner.run(call.message, values, deadline, result_sizes=result_sizes)
                return result.from_answer(answer, answer.results, deadline.elapsed_s())
        lease_id = self._remote_arrays.lease_id if keep else b""

        def send() -> Answer:
            return self._runner.run(
                call.message,
                values,
                deadline,
                lease_id=lease_id,
                result_sizes=result_sizes,
                refuse_transfers=refuse_transfers,
            )

        with (
            self._remote_arrays.passed.using(values, call.names),
            self._remote_arrays.making() if keep else nullcontext(),
        ):
            answer = self._remote_arrays.call_after_deleting(send, deadline) if keep else send()
            arrays = self._remote_arrays.kept(self, answer, committed=call.commits)
        return result.from_answer(answer, arrays, deadline.elapsed_s())

    def _synchronize_at_end(self) -> None:
        """Waits for all submitted calls except loops, which are cancelled: nobody can read their results any more."""
        self._submitter.flush_all()
        self._submitter.pending.stop_loops()
        self.synchronize()

    def _put_array(self, array: NDArray, mesh: MeshLike | None, spec: SpecLike | None) -> RemoteArray:
        """Puts an array on the mesh uncommitted; in a traced function, as a constant of it."""
        if self._tracer.active.trace is not None:
            return self._tracer.constant(array, mesh, spec)
        return self._remote_arrays.put_movable(self, array, mesh, spec, self._deadline(DEFAULT_TIMEOUT_S))

    def _submit_program(
        self,
        program: TracedProgram,
        operands: Sequence[Any],
        out_specs: Sequence[PartitionSpec | None] | None,
        timeout: float | None,
    ) -> Sequence[RemoteArray]:
        return self._tracer.submit_program(self, program, operands, out_specs, timeout)

    @cached_property
    def _control_flow(self) -> ControlFlow:
        return ControlFlow(self, self._tracer.active)

    def _transformed(self, function: TransformedFunction) -> Callable[..., Any]:
        transformed: Callable[..., Any] = self.jit(function, static=function.static)
        return transformed

    def _function_names(self) -> Iterable[str]:
        return dir(self.xp)

    def _kernel_names(self) -> Iterable[str]:
        if (
            self._kernels is None
        ):  # no `cached_property`, which takes a lock in Python 3.11 that a fork could leave locked
            self._kernels = frozenset()
            with suppress(ShardcallError):
                self._kernels = frozenset(kernel.name for kernel in self.kernels(timeout=_HINT_TIMEOUT_S))
        return self._kernels

    def _copied(self, array: RemoteArray, /) -> None:
        self._implicit_gets.add(array)

    def _present(self, array: RemoteArray, /) -> RemoteArray:
        trace = self._tracer.active.trace
        return array if trace is None or array._is_traced else trace.stand_in(array)

    def _refresh_named(self, base: ArrayBase, /) -> None:
        self._remote_arrays.names.refresh(base, self._deadline(DEFAULT_TIMEOUT_S))

    def _write_named(self, base: ArrayBase, version: ArrayVersion, /) -> None:
        self._remote_arrays.names.write(base, version, self._deadline(DEFAULT_TIMEOUT_S))

    def _copy_named(self, array: RemoteArray, /) -> RemoteArray:
        for _ in range(_ATTEMPTS - 1):
            with suppress(ArrayLostError):  # another client has written to it meanwhile, or it is gone
                return self.call("copy", array, keep=True).array
        return self.call("copy", array, keep=True).array

    def _deadline(self, timeout: float | None) -> Deadline:
        return deadline_after(timeout, self._info.limits.max_call_seconds)


def _use(reference: weakref.ref[Client], info: ServerInfo) -> None:
    if (client := reference()) is not None:
        client._use(info)


def ask_server_info(transport: Transport, deadline: Deadline) -> ServerInfo:
    """Returns a server's description of itself."""
    request = server_info_service_pb2.GetServerInfoRequest()
    answer = transport.unary(transport.stubs.server.GetServerInfo, request, deadline, retryable=False)
    transport.server_version = answer.versions.shardcall
    return server_info.from_proto(answer)
