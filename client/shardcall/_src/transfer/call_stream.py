"""The call stream of a client: one long-lived RPC for many small calls."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import grpc

from shardcall._src.rpc import cancellation
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.status import ItemStatus
from shardcall._src.rpc.threads import check_not_exiting, start_thread
from shardcall._src.rpc.transport import Transport
from shardcall._src.transfer.download import Answer
from shardcall._src.transfer.stream_connection import Deletion, StreamConnection
from shardcall._src.transfer.stream_items import add_operands, bytes_of
from shardcall._src.transfer.stream_reader import serve
from shardcall._src.transfer.stream_request import SendWaiter, StreamRequest, fail_calls, window_full
from shardcall._src.transfer.upload import Value
from shardcall.v1 import array_service_pb2, call_stream_pb2, kernel_pb2
from shardcall_core.locks import lock
from shardcall_core.types import arrays
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.errors import CallCancelledError, ClientClosedError, MeshRestartedError, ShardcallError
from shardcall_core.types.server_info import Limits
from shardcall_core.wire.forks import begin_anew_in_children, end_rpcs_at_forks, forked_quietly
from shardcall_core.wire.metadata import new_request_id, trace

_NOT_SUPPORTED = "NOT_SUPPORTED"
_STREAM_REQUIRED = "STREAM_REQUIRED"
_DRAINING = "SERVER_DRAINING"
_REFUSALS = ("QUOTA_EXCEEDED", "SERVER_BUSY", "SCOPE_MISSING")  # arrays are read without the scope of calls, too
_REFUSED_S = 10.0  # without a stream after the server refused one
_CLOSE_TIMEOUT_S = 2.0
_MIN_TIMEOUT_S = 1e-3  # the server refuses 0
_MAX_WAIT_S = 0.5


# A small call over a stream takes 2.1 to 2.3 times a bare unary echo, a unary RPC 2.7 to 4.1 times. Streams of 32
# callers reach 0.76 to 0.86 of the echo's calls per second, unary RPCs 0.27.
class CallStream:
    """A stream of calls, reads, puts and deletions, safe to use from several threads at once.

    The RPC begins with the first call. A thread reads its answers, and opens the next RPC after a lost connection: it
    sends the calls without an answer again, in their order, by the rules of `Retries`. A forked child opens a stream of
    its own.

    Args:
        transport: the connection to the server.
        limits: the server's limits.
    """

    def __init__(self, transport: Transport, limits: Limits) -> None:
        self._transport = transport
        self.use(limits)
        self.meters = transport.meters
        self._inherited: list[object] = []
        self._closing = threading.Event()  # set by `close`
        self.begin_anew()
        begin_anew_in_children(self)
        end_rpcs_at_forks(self)

    def use(self, limits: Limits) -> None:
        """Keeps other limits from now on, those of another server; one without streams refuses the next RPC itself."""
        self._max_calls = limits.max_streamed_calls or 1
        self._max_bytes = limits.max_streamed_bytes
        self._max_slots = limits.max_prepared_calls or 1

    def begin_anew(self) -> None:
        """Resets the stream in a forked child, without the calls of its parent."""
        lost = [call for connection in getattr(self, "_connections", ()) for call in connection.unanswered.values()]
        # Destroying an RPC of the parent could wait for threads that the child lacks.
        self._inherited.append(getattr(self, "_connections", None))
        # Guards all of these and the connections; no call is notified under it.
        self._lock = lock("the lock of the call stream")
        self._refusal_expiry = 0.0 if forked_quietly() else math.inf  # gRPC may end a process whose fork was not
        self._current: StreamConnection | None = None
        self._connections: list[StreamConnection] = []  # with a thread that reads them
        self._waiting: deque[SendWaiter] = deque()
        self._deletions: list[Deletion] = []  # for the next RPC
        is_closed, self._closing = self._closing.is_set(), threading.Event()
        if is_closed:
            self._closing.set()
        for call in fail_calls(lost, CallCancelledError("the call belongs to the process that forked this one")):
            call.drop_callbacks()  # whose locks the parent's threads may have held

    def end_rpcs(self, timeout_s: float) -> None:
        """Ends the RPCs after the answers of their calls; calls that are sent from now on take another one."""
        if self._lock.acquire(timeout=timeout_s):  # this thread may hold it
            try:
                for connection in self._connections:
                    connection.retire()
            finally:
                self._lock.release()

    def __del__(self) -> None:
        for connection in getattr(self, "_connections", ()):
            connection.outgoing.put(None)

    @property
    def is_refused(self) -> bool:
        """True for some time after the server refused the stream: calls must be sent by other methods."""
        return bool(self._refusal_expiry) and time.monotonic() < self._refusal_expiry

    def wait_accepted(self, deadline: Deadline) -> bool:
        """Opens the stream, unless it is open, and waits for its first frame; returns False if the server refuses it.

        Args:
            deadline: the end of the wait.

        Raises:
            CallCancelledError: if the wait was cancelled.
            ClientClosedError: if Python exits.
        """
        current = self._current
        if current is None or not current.begun.is_set():
            check_not_exiting()
            with self._lock:
                if self.is_refused or self._closing.is_set():
                    return not self.is_refused
                current = self._current or self._open()
            while not current.begun.wait(min(deadline.remaining_s(), _MAX_WAIT_S)) and not deadline.is_exceeded():
                cancellation.check()
        return not self.is_refused

    def send(
        self,
        call: kernel_pb2.KernelCall,
        operands: Sequence[Value],
        deadline: Deadline,
        *,
        lease_id: bytes = b"",
        result_handles: Sequence[bytes] = (),
        refuse_transfers: bool = False,
        request_id: str = "",
        sending: Callable[[StreamRequest], None] | None = None,
    ) -> StreamRequest:
        """Sends a call; waits only while too many calls or bytes are unanswered.

        Args:
            call: the call without its arrays.
            operands: arrays of any memory layout.
            deadline: the deadline of the call.
            lease_id: the lease of results that stay on the mesh; empty for results that come back.
            result_handles: the handles of results that stay on the mesh, new random ones; empty for the server's.
            refuse_transfers: refuse the call if it would move an operand on the mesh.
            request_id: the request id; empty for a new one.
            sending: called with the call before it is sent.

        Raises:
            DeadlineExceededError: if too many calls were unanswered until the deadline.
            ClientClosedError: after `close`, and if Python exits.
        """
        check_not_exiting()
        # Filled in place: protobuf copies a message that is passed to a constructor (2.9 µs instead of 1.6 for an
        # answer).
        request = call_stream_pb2.CallStreamRequest()
        item = request.items.add().call
        if result_handles:
            item.result_handles.extend(result_handles)
        operand_types, operand_bytes = add_operands(item, operands)
        prepared_key = (call.SerializeToString(deterministic=True), operand_types, lease_id, refuse_transfers)
        sent = StreamRequest(self, request, item, prepared_key, operand_bytes, call.kernel, deadline)
        self._send(sent, request_id, sending)
        return sent

    def read(self, handle: bytes, deadline: Deadline, *, request_id: str = "") -> StreamRequest:
        """Sends the read of an array, after the calls that were sent before; waits only as `send` does.

        Raises:
            ShardcallError: as of `send`.
        """
        check_not_exiting()
        request = call_stream_pb2.CallStreamRequest()
        item = request.items.add().read
        item.handle = handle
        sent = StreamRequest(self, request, item, None, 0, "", deadline)
        self._send(sent, request_id, None)
        return sent

    def put(
        self, array: NDArray, header: array_service_pb2.PutArrayHeader, handle: bytes, deadline: Deadline
    ) -> StreamRequest:
        """Sends an array to be put on the mesh; waits only as `send` does.

        Args:
            array: an array of any memory layout.
            header: its mesh, its spec and its lease.
            handle: its handle, a new random one.
            deadline: the deadline of the put.

        Raises:
            ShardcallError: as of `send`.
        """
        check_not_exiting()
        request = call_stream_pb2.CallStreamRequest()
        item = request.items.add().put
        item.handle, item.lease_id, item.inline = handle, header.lease_id, bytes_of(array)
        item.type.CopyFrom(arrays.to_proto(array))
        if header.HasField("mesh"):
            item.mesh.CopyFrom(header.mesh)
        item.spec.CopyFrom(header.spec)
        sent = StreamRequest(self, request, item, None, array.nbytes, "", deadline)
        self._send(sent, "", None)
        return sent

    def _send(self, call: StreamRequest, request_id: str, sending: Callable[[StreamRequest], None] | None) -> None:
        item = call.item
        item.timeout_seconds = max(call.deadline.remaining_s(), _MIN_TIMEOUT_S)
        item.request_id = request_id or new_request_id()
        for key, value in trace():
            setattr(item, key, value)
        try:
            if sending is not None:
                sending(call)
            with self._lock:
                current = self._current
                # `_with_capacity` for the usual case
                if current is not None and not (
                    self._waiting
                    or current.draining
                    or len(current.unanswered) >= self._max_calls
                    or current.operand_bytes + call.operand_bytes > self._max_bytes
                ):
                    current.add(call)
                    return
            self._send_when_possible(call)
        except BaseException:
            call.cancel()  # it may have been sent
            raise

    def answer(self, send: Callable[[], StreamRequest], deadline: Deadline, *, rerun: bool = False) -> Answer | str:
        """Sends a call, a read or a put, and again by the rules of `Retries`; returns its answer.

        Args:
            send: sends it.
            deadline: the end of the wait.
            rerun: True if it may run again after a restart of the mesh: no operand was on the mesh.

        Returns:
            The answer; the reason for which the call must be sent by another method.

        Raises:
            ShardcallError: of the class that fits.
        """
        repeated = 0
        while True:
            sent = send()
            try:
                return sent.result(deadline)
            except ShardcallError as error:
                # An older server may have no puts here.
                is_new = error.reason == _NOT_SUPPORTED and isinstance(sent.item, call_stream_pb2.PutStreamedArray)
                if sent.refused or is_new or error.reason == _STREAM_REQUIRED:
                    return error.reason
                if not sent.answered:
                    raise
                if self.renew_token(error, deadline):
                    continue
                wait_s = self._transport.retries.wait_s(error, repeated + sent.repeated, rerun=rerun)
                if wait_s is None or wait_s >= deadline.remaining_s():
                    raise
                rerun = rerun and not isinstance(error, MeshRestartedError)
            cancellation.pause(wait_s)
            repeated += 1

    def delete(self, handles: Sequence[bytes], *, with_named: bool = False, replaced_by: bytes = b"") -> None:
        """Deletes arrays after the calls that were sent before have been launched; does not wait.

        Those with names are left out unless ``with_named`` is True. If ``replaced_by`` is a result of a call, they are
        deleted once that has succeeded, and stay if it fails.

        Finalizers must not call it: this thread may hold the stream's lock.

        Raises:
            ClientClosedError: if Python exits.
        """
        check_not_exiting()
        deletion = Deletion(handles, with_named, replaced_by)
        with self._lock:
            if self._closing.is_set():
                return
            current = self._current
            if current is None or (current.draining and not current.unanswered):
                if self.is_refused:
                    self._deletions.append(deletion)
                    return
                current = self._open()
            current.delete(deletion)

    def cancel(self, call: StreamRequest, failure: grpc.RpcError | CallCancelledError) -> None:
        """Cancels a call that is not done, which then has this failure."""
        with self._lock:
            if call.done:
                return
            call.failure, call.done = failure, True
            # The server still counts the call until it has answered it, and so does this client.
            for connection in self._connections:
                if connection.unanswered.get(call.number) is call:
                    connection.cancel(call.number)
        call.notify()

    def error(
        self, call: StreamRequest, failure: grpc.RpcError | CallCancelledError, deadline: Deadline
    ) -> ShardcallError:
        """Returns the error of a failed call."""
        if isinstance(failure, CallCancelledError):
            return CallCancelledError(failure.message, status=grpc.StatusCode.CANCELLED, request_id=call.request_id)
        return self._transport.failure(failure, deadline, call.kernel, call.request_id)

    def add_versions(self, error: ShardcallError) -> None:
        """Adds the versions of server and client to an error that their difference may explain."""
        self._transport.add_versions(error)

    def renew_token(self, error: ShardcallError, deadline: Deadline) -> bool:
        """After an error that refuses the token: returns True if there is another one, for the next RPC."""
        with self._lock:
            current = self._current
        if current is None or not self._transport.renew_token(error, current.shown, deadline.remaining_s()):
            return False
        with self._lock:
            current.retire()
        return True

    def close(self) -> None:
        """Cancels the calls in flight and ends the RPC; deletions before it are sent."""
        self._closing.set()
        deleting = self.fail(CallCancelledError("the call was cancelled: Channel closed!"))
        deadline = Deadline(_CLOSE_TIMEOUT_S)
        for connection in deleting:  # the server ends the RPC after it has read them
            connection.ended.wait(deadline.remaining_s())

    def fail(self, failure: grpc.RpcError | CallCancelledError) -> list[StreamConnection]:
        """Fails all calls and ends the RPC; returns the RPCs with deletions that the server may not have received."""
        with self._lock:
            self._current, connections, self._connections = None, self._connections, []
            calls = [call for connection in connections for call in connection.unanswered.values()]
            failed = fail_calls(calls, failure)
            for connection in connections:
                connection.begun.set()
                connection.outgoing.put(None)
            for waiter in self._waiting:
                waiter.event.set()
        for call in failed:
            call.notify()
        return [connection for connection in connections if connection.deletions]

    def _send_when_possible(self, call: StreamRequest) -> None:
        waiter = SendWaiter()
        try:
            with self._lock:
                self._waiting.append(waiter)
            cancellation.watch(waiter)
            while True:
                with self._lock:
                    if self._closing.is_set():
                        raise ClientClosedError("this client is closed; make another with shardcall.connect")
                    if self._first_waiting() is waiter and (current := self._with_capacity(call.operand_bytes)):
                        current.add(call)
                        return
                    waiter.event.clear()
                cancellation.check()
                # An interrupted call may have left without waking this one.
                if not waiter.event.wait(min(call.deadline.remaining_s(), _MAX_WAIT_S)) and call.deadline.is_exceeded():
                    raise window_full(call.deadline, self._max_calls, self._max_bytes)
        finally:
            waiter.abandoned = True  # a KeyboardInterrupt may end the wait for the lock
            with self._lock:
                self._wake()

    def _with_capacity(self, operand_bytes: int) -> StreamConnection | None:
        """Returns the RPC for a new call, which is opened if there is none; None while it has no capacity."""
        current = self._current
        if current is not None and current.draining:
            # Only calls of the same RPC can use results that are not answered.
            if any(call.has_named_results for call in current.unanswered.values()):
                return None
            current = None
        if current is None:
            return self._open()
        full = len(current.unanswered) >= self._max_calls or (
            current.unanswered and current.operand_bytes + operand_bytes > self._max_bytes
        )
        return None if full else current

    def _open(self) -> StreamConnection:
        """Opens another RPC for new calls."""
        current = StreamConnection(self._max_slots, self._lock)
        try:
            start_thread("shardcall-call-stream", serve, (weakref.ref(self), current))
        except BaseException:
            current.outgoing.put(None)
            raise
        self._use(current)
        return current

    def _use(self, current: StreamConnection) -> None:
        self._connections.append(current)
        self._current = current
        deletions, self._deletions = self._deletions, []
        for deletion in deletions:
            current.delete(deletion)

    def _first_waiting(self) -> SendWaiter | None:
        while self._waiting and self._waiting[0].abandoned:
            self._waiting.popleft()
        return self._waiting[0] if self._waiting else None

    def _wake(self) -> None:
        if (waiter := self._first_waiting()) is not None:
            waiter.event.set()

    def receive(self, connection: StreamConnection, data: bytes) -> None:
        """Settles the calls that a frame answers."""
        frame = call_stream_pb2.CallStreamResponse.FromString(data)
        if not connection.begun.is_set():
            connection.begun.set()
        with self._lock:
            settled = connection.receive(frame)
            if self._waiting:
                self._wake()
        for call in settled:
            call.notify()

    def begin(self, connection: StreamConnection) -> Iterator[bytes]:
        """Begins an RPC; returns its answers."""

        def left_s() -> float:
            with self._lock:
                return connection.left_s

        with self._transport.servers.attempt() as connection.server:
            connection.shown = self._transport.show_token()  # before it is refused: it may be renewed then
            return self._transport.call_stream(connection.frames(), connection.shown, left_s)

    def recover(self, connection: StreamConnection, status: ItemStatus) -> StreamConnection | None:
        """Sends the unanswered calls of an RPC that has ended again, or fails them.

        Returns:
            The RPC to begin now; None if there are no calls to send, or another RPC sends them.
        """
        connection.outgoing.put(None)  # for gRPC's thread
        with self._transport.servers.attempt(connection.server):
            failure = self._transport.failure(status, Deadline(_REFUSED_S))
            renewed = self._transport.renew_token(failure, connection.shown, _REFUSED_S)
        is_drain = failure.reason == _DRAINING
        with self._lock:
            stays = is_drain and all(call.is_read for call in connection.unanswered.values())  # where the arrays are
        if not (connection.draining or stays):  # the end of one that drains means nothing: the client may have ended it
            is_again = not connection.begun.is_set()
            self._transport.leave_server(failure, connection.server, is_again=is_again)
        refused = failure.status is grpc.StatusCode.UNIMPLEMENTED or failure.reason in _REFUSALS
        lost: list[StreamRequest] = []
        wait_s = 0.0
        with self._lock:
            if self._current is connection:
                self._current = None
            if refused:
                unserved = failure.status is grpc.StatusCode.UNIMPLEMENTED
                self._refusal_expiry = math.inf if unserved else time.monotonic() + _REFUSED_S
            repeated: list[StreamRequest] = []
            for call in connection.unanswered.values():
                is_refused = refused or (is_drain and call.is_read)  # such a server answers GetArray
                delay_s = 0.0 if renewed else self._retry_delay_s(failure, call, refused=is_refused)
                if call.done:
                    continue
                if delay_s is None:
                    call.refused = is_refused
                    lost.append(call)
                else:
                    call.repeated += not renewed
                    repeated.append(call)
                    wait_s = max(wait_s, delay_s)
            following = self._repeat(repeated, connection.deletions)
            failed = fail_calls(lost, status)
            if connection in self._connections:
                self._connections.remove(connection)
            self._wake()
        connection.begun.set()
        connection.ended.set()
        for call in failed:
            call.notify()
        if following is not None:
            self._closing.wait(wait_s)
        return following

    def _retry_delay_s(self, error: ShardcallError, call: StreamRequest, *, refused: bool) -> float | None:
        if refused or self._closing.is_set():
            return None
        delay_s = self._transport.retries.wait_s(error, call.repeated)
        return None if delay_s is None or delay_s >= call.deadline.remaining_s() else delay_s

    def _repeat(self, calls: list[StreamRequest], deletions: deque[tuple[int, Deletion]]) -> StreamConnection | None:
        """Sends calls and deletions again, in order; returns the RPC to begin, if another one does not take them."""
        current, following = self._current, None
        if current is None or current.draining:
            if not calls:
                self._deletions += [deletion for _, deletion in deletions]
                return None
            current = following = StreamConnection(self._max_slots, self._lock)
            self._use(current)
        for call in calls:
            while deletions and deletions[0][0] <= call.number:
                current.delete(deletions.popleft()[1])
            call.item.timeout_seconds = max(call.deadline.remaining_s(), _MIN_TIMEOUT_S)
            current.add(call)
        for _, deletion in deletions:
            current.delete(deletion)
        return following
