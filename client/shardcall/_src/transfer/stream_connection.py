"""One RPC of a call stream."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import NamedTuple

from shardcall._src.rpc.status import answer_status
from shardcall._src.transfer.stream_items import PreparedKey, prepare
from shardcall._src.transfer.stream_request import StreamRequest
from shardcall.v1 import call_stream_pb2, kernel_pb2
from shardcall_core.locks import check_held

_FRAME_BYTES = 2**18
_MAX_FRAMES = 1024
_MAX_HANDLES = 1024
# A pause lets calls of several threads share a frame, which halves the thread switches of the front end: 32 callers in
# four processes make 1,640 calls a second instead of 1,340, with 2.8 to 3.6 calls in a frame instead of 1.6 to 1.9.
_PAUSE_S = 5e-5
_MAX_SHARED = 64  # calls that a pause waits for


class Deletion(NamedTuple):
    """Arrays to delete, as `DeleteStreamedArrays`."""

    handles: Sequence[bytes]
    with_named: bool
    replaced_by: bytes


class StreamConnection:
    """The items, calls and slots of one RPC of a call stream.

    Attributes:
        outgoing: the serialized frames to send; None after the last one.
        unanswered: the calls without an answer by number, in the order in which they were sent.
        operand_bytes: the bytes of their operands.
        deletions: the deletions that the server may not have received, each with the number of the next call.
        draining: True if the server accepts no new calls here.
        shown: the token of the RPC.
        server: the index of its server.
        begun: set after the first frame of the server, or the end of the RPC.
        ended: set after the end of the RPC.
        failure: what was raised while frames were sent, which ends the RPC; None if nothing was.

    Args:
        max_slots: the number of slots for prepared calls.
        lock: the stream's lock, which callers hold, except for `frames`, `outgoing` and the two events.
    """

    def __init__(self, max_slots: int, lock: threading.Lock) -> None:
        self._lock = lock
        self.outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self.unanswered: dict[int, StreamRequest] = {}
        self.operand_bytes = 0
        self.deletions: deque[tuple[int, Deletion]] = deque()
        self.draining = False
        self.shown = ""
        self.server = 0
        self.failure: Exception | None = None
        self.begun, self.ended = threading.Event(), threading.Event()
        self._max_slots = max_slots
        self._used_slots = 0
        self._slots: OrderedDict[PreparedKey, int] = OrderedDict()
        self._plans: dict[int, bytes] = {}
        self._next_number = 1
        self._returning = 0  # threads that have just been answered and may call again

    @property
    def left_s(self) -> float:
        """The longest time that an unanswered call has left, in seconds."""
        check_held(self._lock)
        return max((call.deadline.remaining_s() for call in self.unanswered.values() if not call.done), default=0.0)

    def add(self, call: StreamRequest) -> None:
        """Sends a call, a read or a put."""
        check_held(self._lock)
        # Ordered so that a KeyboardInterrupt at any point loses no more than a slot.
        item, key, slot, prepared = call.item, call.prepared_key, 0, b""
        if key is not None:
            if key in self._slots:
                slot = self._slots[key]
                self._slots.move_to_end(key)
            else:
                slot = self._free_slot()
                prepared = prepare(slot, key)
        if isinstance(item, call_stream_pb2.StreamedCall):
            item.slot = slot
        call.number = item.number = number = self._next_number
        frame = prepared + call.request.SerializeToString()
        self._next_number = number + 1
        self.operand_bytes += call.operand_bytes
        self.unanswered[number] = call
        if self._returning > 0:
            self._returning -= 1
        self.outgoing.put(frame)
        if key is not None and prepared:
            self._slots[key] = slot

    def _free_slot(self) -> int:
        if self._used_slots < self._max_slots:
            self._used_slots += 1
            return self._used_slots - 1
        return self._slots.popitem(last=False)[1] if self._slots else 0

    def cancel(self, number: int) -> None:
        """Sends the cancellation of a call."""
        check_held(self._lock)
        item = call_stream_pb2.CallStreamItem(cancel=call_stream_pb2.CancelCalls(numbers=[number]))
        self._send(item)

    def delete(self, deletion: Deletion) -> None:
        """Sends a deletion."""
        check_held(self._lock)
        for begin in range(0, len(deletion.handles), _MAX_HANDLES):
            part = deletion._replace(handles=deletion.handles[begin : begin + _MAX_HANDLES])
            self.deletions.append((self._next_number, part))
            message = call_stream_pb2.DeleteStreamedArrays(**part._asdict())
            self._send(call_stream_pb2.CallStreamItem(delete=message))

    def _send(self, item: call_stream_pb2.CallStreamItem) -> None:
        self.outgoing.put(call_stream_pb2.CallStreamRequest(items=[item]).SerializeToString())

    def receive(self, frame: call_stream_pb2.CallStreamResponse) -> list[StreamRequest]:
        """Returns the calls that a frame has answered, `done` now."""
        check_held(self._lock)
        settled = []
        for answer in frame.answers:
            if answer.HasField("plan"):
                self._plans[answer.plan_slot] = answer.plan.SerializeToString()
            number = answer.number
            while self.deletions and self.deletions[0][0] <= number:  # frames are read in order
                self.deletions.popleft()
            call = self.unanswered.pop(number, None)
            if call is None:
                continue
            self.operand_bytes -= call.operand_bytes
            if call.done:
                continue
            if answer.status:
                call.failure = answer_status(answer)
            else:
                call.response = answer.response
                call.plan = self._plans.get(answer.plan_slot, b"")
                if answer.transfers:  # which protobuf appends to those of the plan
                    call.plan += kernel_pb2.Plan(transfers=answer.transfers).SerializeToString()
            call.answered = call.done = True
            settled.append(call)
            self._returning += call.awaited
        if frame.draining or self.draining:
            self.retire()
        return settled

    def retire(self) -> None:
        """Takes no further calls, and ends the RPC after the last answer."""
        check_held(self._lock)
        self.draining = True
        if not self.unanswered:
            self.outgoing.put(None)

    def frames(self) -> Iterator[bytes]:
        """Yields the frames to send, several of them as one; blocks."""
        try:
            yield from self._frames()
        except Exception as error:  # which gRPC, whose thread it is, logs and replaces by another
            self.failure = error
            raise

    def _frames(self) -> Iterator[bytes]:
        outgoing = self.outgoing
        while (frame := outgoing.get()) is not None:
            if self._returning:
                self._wait_for_returning()
            # Concatenated messages are one message with the items of all.
            if outgoing.qsize():
                frames, size = [frame], len(frame)
                while size < _FRAME_BYTES and len(frames) < _MAX_FRAMES and outgoing.qsize():
                    following = outgoing.get()
                    if following is None:
                        yield b"".join(frames)
                        return
                    frames.append(following)
                    size += len(following)
                frame = b"".join(frames)
            yield frame

    def _wait_for_returning(self) -> None:
        """Waits while threads that have just been answered call again, so that their calls share a frame."""
        size = -1
        while self._returning > 0 and size < self.outgoing.qsize() < _MAX_SHARED:
            size = self.outgoing.qsize()
            time.sleep(_PAUSE_S)
        self._returning = 0
