"""The frames of answers of a call stream: their errors, and the slots of their plans."""

import pytest

from shardcall.v1 import call_stream_pb2, kernel_pb2, kernel_service_pb2
from shardcall_server.frontend.services.answer_queue import AnswerQueue
from shardcall_server.frontend.services.streamed_call import CallOutcome


def ran(plan: kernel_pb2.Plan, transfers: kernel_pb2.Plan | None = None) -> CallOutcome:
    """The outcome of a call of a program with this plan."""
    return kernel_service_pb2.ExecuteResponse(), plan, transfers or kernel_pb2.Plan()


def answers(queue: AnswerQueue, *plans: kernel_pb2.Plan) -> list[call_stream_pb2.StreamedAnswer]:
    for number, plan in enumerate(plans):
        queue.add(number, ran(plan))
    frame = call_stream_pb2.CallStreamResponse()
    assert queue.gather(frame) == list(range(len(plans)))
    assert queue.is_empty
    return list(frame.answers)


def test_a_plan_is_sent_once_and_of_more_than_there_are_slots_the_one_unused_for_longest_loses_its_slot():
    queue = AnswerQueue()
    plans = [kernel_pb2.Plan(kernel=str(i)) for i in range(257)]
    assert [answer.plan_slot for answer in answers(queue, *plans[:256])] == list(range(256))
    got = answers(queue, plans[0], plans[256], plans[1], plans[256])
    assert [(answer.plan_slot, answer.plan.kernel) for answer in got] == [(0, ""), (1, "256"), (2, "1"), (1, "")]


def test_answers_have_the_transfers_of_their_call_and_an_error_comes_after_those_before_it():
    queue, plan = AnswerQueue(), kernel_pb2.Plan(kernel="diff")
    queue.add(7, ran(plan, kernel_pb2.Plan(transfers=[kernel_pb2.Transfer()])))
    queue.add_error(RuntimeError("the end"))
    frame = call_stream_pb2.CallStreamResponse()
    assert queue.gather(frame) == [7]
    (answer,) = frame.answers
    assert len(answer.transfers) == 1
    assert not answer.plan.transfers
    with pytest.raises(RuntimeError, match="the end"):
        queue.gather(frame)
