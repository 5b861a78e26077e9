"""Items of a call stream: the caller's end of a streamed call, and checks of messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from google.protobuf.message import Message

from shardcall.v1 import call_stream_pb2
from shardcall_core.call_error import MAX_KERNEL_NAME, CallError, Reason, kernel_name_refusal
from shardcall_core.graphs.graph import MAX_BYTES
from shardcall_server.frontend.rpc.coroutines import Task
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.rpc.unknown_fields import checked_copy
from shardcall_server.frontend.services.streamed_call import PreparedSlot
from shardcall_server.link.wire import check_counts

_MAX_PREPARED_BYTES = MAX_BYTES + (64 << 10)  # a program, and everything else; the budget of the stream counts them

M = TypeVar("M", bound=Message)


class StreamItem:
    """A call of the stream, a read or a put, as the caller's end of its `ServerCall`.

    Attributes:
        number: its number.
        nbytes: the bytes of its operands.
        result_bytes: the bytes of its results that the stream has reserved.
        is_cancelled: whether the client has cancelled it, or the stream has ended.
        call: its state.
        task: its coroutine; None until it starts, and if it is refused before.
    """

    __slots__ = ("_peer", "call", "is_cancelled", "nbytes", "number", "result_bytes", "task")

    call: ServerCall

    def __init__(self, peer: str, number: int, nbytes: int) -> None:
        self.task: Task | None = None
        self._peer = peer
        self.number = number
        self.nbytes = nbytes
        self.result_bytes = 0
        self.is_cancelled = False

    def peer(self) -> str:
        """Returns the connection, as gRPC names it."""
        return self._peer

    def is_active(self) -> bool:
        """Returns whether the client waits for the answer."""
        return not self.is_cancelled

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Not used: the wait of a task is ended by `cancel`."""
        raise NotImplementedError("the items of call streams have no thread that could wait")

    def cancel(self) -> None:
        """Cancels the call."""
        self.is_cancelled = True
        if self.task is not None:
            self.task.interrupt()

    def ended(self, doing: str) -> CallError | None:
        """Returns the error of a call that was cancelled or whose deadline has passed; None while it may continue."""
        try:
            self.call.check(doing)
        except CallError as error:
            return error
        return None


def detached_copy(message: M) -> M:
    """Returns a copy; a part of a message keeps all of its memory."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def prepared_call(message: call_stream_pb2.PrepareCall) -> PreparedSlot:
    """Returns the assignment of a slot.

    Raises:
        CallError: the message is too large, has unknown fields, or its call is invalid.
    """
    if len(message.call.kernel) > MAX_KERNEL_NAME:
        raise kernel_name_refusal(message.call.kernel)
    if message.ByteSize() > _MAX_PREPARED_BYTES:
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"a prepared call has {message.ByteSize()} bytes; at most {_MAX_PREPARED_BYTES} are allowed",
            field="prepare",
        )
    check_counts(message.call, len(message.operands))
    return PreparedSlot(checked_copy(message))


def refuse_counts(message: call_stream_pb2.StreamedCall, prepared: PreparedSlot) -> NoReturn:
    """Refuses a call with a wrong number of operands or too many result handles.

    Raises:
        CallError: MALFORMED_REQUEST.
    """
    if len(message.operands) != len(prepared.types):
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"{len(message.operands)} operands came for slot {message.slot}, whose call has {len(prepared.types)}; "
            "send one for each type, an empty one for an omitted operand",
            field="operands",
        )
    raise CallError(
        Reason.MALFORMED_REQUEST,
        f"{len(message.result_handles)} result handles came; send one for each result",
        field="result_handles",
    )
