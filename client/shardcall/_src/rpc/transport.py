"""Sends every RPC: with a deadline, a token, retries and a request id."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from shardcall._src.display.meters import Meter, Meters
from shardcall._src.rpc import cancellation, status
from shardcall._src.rpc.call_slots import CallSlots
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.interrupts import InterruptHandler
from shardcall._src.rpc.retries import NO_RETRIES, Attempt, Messages, Retries, is_out_of_service
from shardcall._src.rpc.servers import ServerList
from shardcall._src.rpc.stubs import Stubs
from shardcall._src.rpc.threads import check_not_exiting, no_thread
from shardcall.v1 import array_service_pb2, profile_service_pb2, server_info_service_pb2
from shardcall_core.types import server_info
from shardcall_core.types.errors import ClientClosedError, MeshRestartedError, ServerUnavailableError, ShardcallError
from shardcall_core.types.server_info import ServerInfo
from shardcall_core.wire.chunk_codec import ArrayMessage, CallMessage
from shardcall_core.wire.forks import Rpc, begin_anew_in_children
from shardcall_core.wire.metadata import Metadata, authorization, new_request_id, rpc_metadata

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)
_Value = TypeVar("_Value")

_TOKEN_TIMEOUT_S = 10.0
_DESCRIPTION_TIMEOUT_S = 10.0


class Transport:
    """A channel to a server, or to one of several at a time; safe to use from several threads at once.

    A forked child opens a channel of its own: gRPC supports a fork only while no thread is in a call. So does a
    process in which gRPC could not start a thread: it takes the thread for running from then on, and calls, and closing
    the channel, wait for it without an end.

    Args:
        servers: the servers, also an attribute. Connections to them are closed with the transport.
        meters: the progress of calls.
        retries: the rules by which RPCs are sent again, also an attribute.
    """

    def __init__(self, servers: ServerList, meters: Meters, retries: Retries = NO_RETRIES) -> None:
        self.servers = servers
        self.meters = meters
        self._stubs = Stubs(servers.open_channel())
        self._abandoned: list[Stubs] = []
        self._lock = threading.Lock()  # held while another channel is opened, or another server's description used
        self._is_abandoned = False  # the channel of `_stubs`
        self.retries = retries
        self._call_slots = CallSlots()
        self._described = servers.current
        self._use: Callable[[ServerInfo], object] | None = None
        self._closed = False
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Resets the transport in a forked child."""
        self._lock = threading.Lock()  # a thread of the parent may hold the other
        # Another channel is not opened here: gRPC's own fork handler, which runs later, would close it.
        self._is_abandoned = not self._closed

    @property
    def address(self) -> str:
        """The address of the server, as the caller wrote it."""
        return self.servers.address

    @property
    def stubs(self) -> Stubs:
        """The RPC methods."""
        if self._is_abandoned:
            with self._lock:
                if self._is_abandoned:
                    self._abandoned.append(self._stubs)  # closing it could wait for threads that there are not
                    self._stubs, self._is_abandoned = Stubs(self.servers.open_channel()), False
        return self._stubs

    def use_descriptions(self, use: Callable[[ServerInfo], object]) -> None:
        """Has a function called with the description of a server before the first other RPC that goes there.

        Args:
            use: called on the thread of that RPC; the server is the current one meanwhile.
        """
        self._use = use

    def _describe(self, server: int, timeout_s: float, metadata: Metadata, interrupt: InterruptHandler) -> bool:
        """Asks a server, which the attempt of this thread is at, for its description, unless it is in use.

        Returns:
            whether it was asked.
        """
        if server == self._described or self._use is None:
            return False
        request, method = server_info_service_pb2.GetServerInfoRequest(), self.stubs.server.GetServerInfo
        answer = cancellation.call_unary(method, request, timeout_s, metadata, interrupt, self._beginning())
        with self._lock:
            if self.servers.is_next(server):  # else others have gone on, and the next server has been described
                self._use(server_info.from_proto(answer))
                self._described = server
        return True

    def _describe_for_stream(self, shown: str, left_s: Callable[[], float]) -> bool:
        """Describes the server of a call stream; returns False if that took too long and calls have time left."""
        timeout_s = max(left_s(), _DESCRIPTION_TIMEOUT_S)
        metadata = rpc_metadata(timeout_s, new_request_id(), shown)
        try:
            with InterruptHandler() as interrupt:
                self._describe(self.servers.current, timeout_s, metadata, interrupt)
        except grpc.RpcError as error:
            is_late = status.ItemStatus.of(error).code() is grpc.StatusCode.DEADLINE_EXCEEDED
            if is_late and left_s() > 0:
                return False
            raise
        return True

    def limit_calls(self, max_calls: int) -> None:
        """Limits the calls in flight; others wait in this process. 0 for no limit."""
        self._call_slots = CallSlots(max_calls)

    def close(self) -> None:
        """Closes the channel and cancels the calls in flight."""
        self._closed = True
        with InterruptHandler():
            self.stubs.close()

    def unary(
        self,
        method: grpc.UnaryUnaryMultiCallable[_Request, _Response],
        request: _Request,
        deadline: Deadline,
        *,
        kernel: str = "",
        shares: bool = False,
        retryable: bool = True,
        rerun: bool = False,
        request_id: str = "",
    ) -> _Response:
        """Makes one call with one message each way.

        Args:
            method: the method of a stub.
            kernel: the kernel whose names of operands and specs errors use.
            shares: True if the server may still use memory of the call when the connection is lost.
            retryable: False if it must not be sent again.
            rerun: True if it may run again after a restart of the mesh: no operand was on the mesh.
            request_id: the request id; empty for a new one.

        Raises:
            ShardcallError: for every failure.
        """

        def send(attempt: Attempt, interrupt: InterruptHandler) -> _Response:
            return cancellation.call_unary(
                method, request, attempt.timeout_s, attempt.metadata, interrupt, self._beginning()
            )

        needs_slot = method in self._stubs.slot_methods
        return self._send(
            send,
            deadline,
            kernel,
            shares=shares,
            retryable=retryable,
            rerun=rerun,
            needs_slot=needs_slot,
            request_id=request_id,
        )

    def execute_stream(
        self,
        requests: Callable[[Meter], Iterator[bytes]],
        read: Callable[[Iterator[CallMessage], Meter], _Value],
        deadline: Deadline,
        *,
        kernel: str,
        shares: bool = False,
        rerun: bool = False,
        request_id: str = "",
    ) -> _Value:
        """Makes a streamed call of a kernel.

        Args:
            requests: returns the messages to send; called again for each retry.
            read: returns the value of the messages received.
            kernel: as for `unary`.
            shares: as for `unary`.
            rerun: as for `unary`.
            request_id: the request id of a call whose wait is reported; empty for a new one.

        Raises:
            ShardcallError: for every failure.
        """
        execute = self.stubs.execute_stream
        return self._stream(
            lambda meter: (execute, requests(meter)),
            read,
            deadline,
            kernel,
            shares=shares,
            rerun=rerun,
            request_id=request_id,
        )

    def show_token(self) -> str:
        """Returns the token for a call stream."""
        return self.servers.token.show(_TOKEN_TIMEOUT_S)

    def call_stream(self, frames: Iterator[bytes], shown: str, left_s: Callable[[], float]) -> Iterator[bytes]:
        """Begins a call stream, which has no deadline; returns its answers.

        Args:
            shown: the token.
            left_s: returns the longest time that a call which waits for the stream has left, in seconds.

        Raises:
            ValueError: after `close`.
        """
        while not self._describe_for_stream(shown, left_s):
            pass  # a call that has more time has come meanwhile
        with Rpc() as rpc, self._beginning():
            answers = self.stubs.call_stream(frames, metadata=authorization(shown))
            rpc.watch(answers)
        return answers

    def get_array(
        self,
        request: array_service_pb2.GetArrayRequest,
        read: Callable[[Iterator[ArrayMessage], Meter], _Value],
        deadline: Deadline,
        *,
        shares: bool = False,
    ) -> _Value:
        """Copies an array from the mesh; arguments and errors as for `execute_stream`."""
        return self._stream(lambda _: (self.stubs.get_array, request), read, deadline, shares=shares)

    def put_array(
        self, requests: Callable[[Meter], Iterator[bytes]], deadline: Deadline, *, shares: bool = False
    ) -> array_service_pb2.PutArrayResponse:
        """Puts an array on the mesh; arguments and errors as for `execute_stream`."""
        put = self.stubs.put_array.future
        return self._stream(lambda meter: (put, requests(meter)), _only_response, deadline, shares=shares, rerun=True)

    def stop_profile(
        self, read: Callable[[Iterator[profile_service_pb2.StopProfileResponse]], _Value], deadline: Deadline
    ) -> _Value:
        """Stops the recording of a profile; arguments and errors as for `execute_stream`."""
        request = profile_service_pb2.StopProfileRequest()
        method = self.stubs.profiles.StopProfile
        return self._stream(
            lambda _: (method, request), lambda messages, _: read(messages), deadline, retryable=False, needs_slot=False
        )

    def _send(
        self,
        send: Callable[[Attempt, InterruptHandler], _Value],
        deadline: Deadline,
        kernel: str,
        *,
        shares: bool,
        retryable: bool,
        rerun: bool,
        needs_slot: bool,
        request_id: str = "",
    ) -> _Value:
        """Sends an RPC, and again by the rules of `Retries`, within the deadline.

        After a part of an answer it is sent again only if the mesh restarted and no result is in shared memory.
        """
        check_not_exiting()
        request_id, repeated = request_id or new_request_id(), 0
        while True:
            deadline.check()
            with self.servers.attempt() as server:
                try:
                    with (
                        self._call_slots.one(deadline) if needs_slot else nullcontext(),
                        InterruptHandler() as interrupt,
                    ):
                        shown = self.servers.token.show(deadline.remaining_s())
                        attempt = _attempt(deadline, request_id, shown)
                        with self._translated(deadline, kernel, request_id):
                            if self._describe(server, attempt.timeout_s, attempt.metadata, interrupt):
                                attempt = _attempt(deadline, request_id, shown)
                            return send(attempt, interrupt)
                except ShardcallError as error:
                    if self.renew_token(error, shown, deadline.remaining_s()):
                        continue  # the server was restarted, and has not read the request
                    wait_s = self.retries.wait_s(error, repeated, refused_only=shares, rerun=rerun)
                    restarted = isinstance(error, MeshRestartedError)
                    is_begun = attempt.answered and (shares or not restarted)
                    is_last = not retryable or wait_s is None or wait_s >= deadline.remaining_s() or is_begun
                    self.leave_server(error, server, is_again=is_last or repeated > 0)
                    if is_last:
                        raise
                    rerun = rerun and not restarted
            cancellation.pause(wait_s or 0.0)
            repeated += 1

    def _stream(
        self,
        prepare: Callable[[Meter], tuple[Callable[..., Any], Any]],
        read: Callable[[Any, Meter], _Value],
        deadline: Deadline,
        kernel: str = "",
        *,
        shares: bool = False,
        retryable: bool = True,
        rerun: bool = False,
        needs_slot: bool = True,
        request_id: str = "",
    ) -> _Value:
        def send(attempt: Attempt, interrupt: InterruptHandler) -> _Value:
            with self.meters.start(request_id, kernel) as meter, Rpc() as rpc:
                begin, request = prepare(meter)
                with self._beginning():
                    call = begin(request, timeout=attempt.timeout_s, metadata=attempt.metadata)
                rpc.watch(call)
                interrupt.watch(call)
                cancellation.watch(call)
                try:
                    return read(Messages(call, attempt), meter)
                except BaseException:
                    call.cancel()  # also stops gRPC's thread that reads the requests
                    raise

        return self._send(
            send,
            deadline,
            kernel,
            shares=shares,
            retryable=retryable,
            rerun=rerun,
            needs_slot=needs_slot,
            request_id=request_id,
        )

    @contextmanager
    def _beginning(self) -> Iterator[None]:
        """Makes later RPCs take another channel if gRPC cannot start a thread for the one that begins in the body."""
        try:
            yield
        except RuntimeError as error:
            self._is_abandoned = True
            # For ever: gRPC closes a channel that is collected, too.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._stubs))
            raise no_thread(error) from None

    @contextmanager
    def _translated(self, deadline: Deadline, kernel: str, request_id: str) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            # The error is also the call: its traceback is a cycle that would keep the operands alive.
            error.__traceback__ = None
            raise self.failure(error, deadline, kernel, request_id) from error
        except ValueError as error:
            if "closed" not in str(error).lower() or "channel" not in str(error).lower():
                raise
            raise ClientClosedError("this client is closed; make another with shardcall.connect") from None

    def renew_token(self, error: ShardcallError, shown: str, timeout_s: float) -> bool:
        """Returns True if there is another token after an error that refused the one shown."""
        if error.status is grpc.StatusCode.UNAVAILABLE and not error.reason:
            self.servers.token.forget()
        return error.reason == "TOKEN_REQUIRED" and self.servers.token.renew(shown, timeout_s)

    def leave_server(self, error: ShardcallError, server: int, *, is_again: bool) -> None:
        """Sends later RPCs to the next server, if there are several, after an error of one that drains or is gone.

        Args:
            is_again: whether the server was tried again: a connection may be lost once while the server is well.
        """
        if is_out_of_service(error) and (is_again or error.reason):
            self.servers.leave(server)

    def failure(
        self, error: grpc.RpcError, deadline: Deadline, kernel: str = "", request_id: str = ""
    ) -> ShardcallError:
        """Returns the error to raise for an error of gRPC."""
        timeout_s, elapsed_s = deadline.timeout_s, deadline.elapsed_s()
        failure = status.to_error(error, self.address, timeout_s, elapsed_s, kernel, request_id)
        if failure.reason == "TOKEN_REQUIRED":
            failure.message = f"{failure.message}; {self.servers.token.advice}"
        ours = self._closed or cancellation.is_cancelled() or not deadline.remaining_s()
        if failure.status is grpc.StatusCode.CANCELLED and not failure.reason and not ours:
            # A gRPC server that is stopping cancels new calls.
            return ServerUnavailableError(
                f"the server at {self.address} cancelled the call, as a server does that shuts down; repeat the call",
                metadata=failure.metadata,
                status=grpc.StatusCode.UNAVAILABLE,
            )
        return failure


def _attempt(deadline: Deadline, request_id: str, shown: str) -> Attempt:
    server_timeout_s, timeout_s = deadline.rpc_timeout()
    return Attempt(timeout_s, rpc_metadata(server_timeout_s, request_id, shown))


def _only_response(messages: Messages, _: Meter) -> array_service_pb2.PutArrayResponse:
    """Returns the only message of an answer; unlike ``result``, raises a call that was cancelled."""
    call = messages.call
    if call.code() is not grpc.StatusCode.OK:
        raise call
    response: array_service_pb2.PutArrayResponse = call.result()
    return response
