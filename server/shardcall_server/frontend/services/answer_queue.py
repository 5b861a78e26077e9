"""The answers of a call stream, in frames."""

from __future__ import annotations

from collections import OrderedDict
from queue import Empty, SimpleQueue
from typing import NamedTuple

from shardcall.v1 import call_stream_pb2, kernel_pb2
from shardcall_server.frontend.rpc.status import CallStatus
from shardcall_server.frontend.services.streamed_call import CallOutcome

_POLL_S = 0.5
_FRAME_BYTES = 1 << 20
_PLAN_SLOTS = 256
_MAX_PLAN_BYTES = 1 << 20  # of their messages; decoded, they take 15 times as much


class _Failure(NamedTuple):
    """The answer of a call that has failed, and the number of the call; None if that is not counted."""

    answer: call_stream_pb2.StreamedAnswer
    number: int | None


class AnswerQueue:
    """The answers that wait to be sent. Any thread adds answers, and one sends them."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[int, CallOutcome] | _Failure | Exception | None] = SimpleQueue()
        self._plans: OrderedDict[int, tuple[int, kernel_pb2.Plan]] = OrderedDict()
        self._plan_bytes = 0
        self._free_slots: list[int] = []  # below the highest one that a plan has had

    @property
    def is_empty(self) -> bool:
        """True if no answer waits."""
        return self._queue.empty()

    def add(self, number: int, outcome: CallOutcome) -> None:
        """Adds the answer of a call that has succeeded."""
        self._queue.put((number, outcome))

    def add_failure(self, number: int, status: CallStatus, *, is_counted: bool = True) -> None:
        """Adds the answer of a call that has failed.

        Args:
            number: the number of the call.
            status: its error.
            is_counted: whether the call counts against the window.
        """
        failure = call_stream_pb2.StreamedAnswer(
            number=number, status=status.serialized, timing=status.timing, retry_pushback_ms=status.retry_ms
        )
        self._queue.put(_Failure(failure, number if is_counted else None))

    def add_error(self, error: Exception) -> None:
        """Adds an error that ends the stream, after the answers before it."""
        self._queue.put(error)

    def wake(self) -> None:
        """Makes `gather` return."""
        self._queue.put(None)

    def gather(self, frame: call_stream_pb2.CallStreamResponse) -> list[int | None]:
        """Adds the answers that wait to a frame, or waits for one for a moment.

        Returns:
            The numbers of the answered calls; None for those that do not count against the window.

        Raises:
            Exception: the error that ends the stream.
        """
        numbers: list[int | None] = []
        nbytes = 0
        try:
            answer = self._queue.get(timeout=_POLL_S)
            while True:
                if isinstance(answer, Exception):
                    if not numbers:
                        raise answer
                    self._queue.put(answer)  # the answers before it are sent first
                    break
                if answer is not None:
                    if isinstance(answer, _Failure):
                        frame.answers.append(answer.answer)
                        numbers.append(answer.number)
                        nbytes += answer.answer.ByteSize()
                    else:
                        numbers.append(answer[0])
                        nbytes += self._add_answer(frame, *answer)
                    if nbytes > _FRAME_BYTES:
                        break
                answer = self._queue.get_nowait()
        except Empty:
            pass
        return numbers

    def _add_answer(self, frame: call_stream_pb2.CallStreamResponse, number: int, outcome: CallOutcome) -> int:
        """Adds the answer of a call to a frame; returns its size in bytes.

        The slots of plans are assigned in the order of sending.
        """
        response, plan, transfers = outcome
        answer = frame.answers.add(number=number, response=response.SerializeToString())
        if plan is None:
            return answer.ByteSize()
        assigned = self._plans.get(id(plan))
        if assigned is None:
            slot = self._slot_for(plan)
            self._plans[id(plan)] = slot, plan
            answer.plan.CopyFrom(plan)
        else:
            slot = assigned[0]
            self._plans.move_to_end(id(plan))
        answer.plan_slot = slot
        if transfers is not None and transfers.transfers:
            answer.transfers.extend(transfers.transfers)
        return answer.ByteSize()

    def _slot_for(self, plan: kernel_pb2.Plan) -> int:
        """Returns a free slot; of too many or too large plans, those unused for longest lose theirs."""
        self._plan_bytes += plan.ByteSize()
        while self._plans and (len(self._plans) == _PLAN_SLOTS or self._plan_bytes > _MAX_PLAN_BYTES):
            _, (slot, oldest) = self._plans.popitem(last=False)
            self._plan_bytes -= oldest.ByteSize()
            self._free_slots.append(slot)
        return self._free_slots.pop() if self._free_slots else len(self._plans)
