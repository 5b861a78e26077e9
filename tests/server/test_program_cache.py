"""The program cache against a mesh that answers at once, in any order, or not at all."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from shardcall.v1 import array_pb2, kernel_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.locks import rlock
from shardcall_server.frontend.programs.cache_entry import CacheEntry
from shardcall_server.frontend.programs.keys import AbstractCall
from shardcall_server.frontend.programs.program_cache import ProgramCache
from shardcall_server.frontend.programs.program_table import ProgramLimits
from shardcall_server.frontend.workers.session import LAUNCH_ORDER, SessionEndedError
from shardcall_worker.v1 import link_pb2

OPERANDS = [array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_FLOAT64, shape=[8])]


class Session:
    """Replaces the session, since no real mesh can answer before sending returns."""

    def __init__(self, answer) -> None:
        self.launch_lock = rlock("the launch lock", LAUNCH_ORDER)
        self.answer = answer
        self.sent: list[link_pb2.FrontEndMessage] = []
        self.evicted: list[str] = []
        self.ended: list[str] = []

    def command(self, message, owner=""):
        self.sent.append(message)
        message.call_id = len(self.sent)
        return self.answer(message)

    def notify(self, message):
        if message.HasField("evict"):
            self.evicted.append(message.evict.key_digest)
        else:
            self.ended.append(self.sent[message.end_compilation.prepare_call_id - 1].prepare.call.strategy)


def call(strategy: str) -> AbstractCall:
    return AbstractCall(kernel_pb2.KernelCall(kernel="diff", strategy=strategy), OPERANDS)


def done(**answer) -> Future[link_pb2.WorkerMessage]:
    future: Future[link_pb2.WorkerMessage] = Future()
    future.set_result(link_pb2.WorkerMessage(**answer))
    return future


def prepared(key: str, nbytes: int = 10) -> Future[link_pb2.WorkerMessage]:
    plan = kernel_pb2.Plan(kernel="diff", key_digest=key, key=[kernel_pb2.KeyPart(label="strategy", value=key)])
    return done(prepared=link_pb2.Prepared(plan=plan, program_bytes=nbytes))


def failed(error: Exception) -> Future[link_pb2.WorkerMessage]:
    future: Future[link_pb2.WorkerMessage] = Future()
    future.set_exception(error)
    return future


def cache(session: Session, programs: int = 10, nbytes: int = 1000) -> ProgramCache:
    return ProgramCache(session, ProgramLimits(programs, nbytes, 1 << 20))


def test_an_answer_that_comes_before_sending_returns_is_kept():
    session = Session(lambda message: prepared("k"))
    programs = cache(session)
    program = programs.get_or_compile(call("auto")).result(0).program
    assert (program.key, program.is_slow) == ("k", True)  # before its first execution
    assert isinstance(programs.get_or_compile(call("auto")), CacheEntry)
    synonym = programs.get_or_compile(call("halo")).result(0)
    assert synonym.answer.outcome == kernel_pb2.CACHE_OUTCOME_HIT
    assert len(session.sent) == 2


def test_a_refusal_is_not_kept():
    session = Session(lambda message: failed(CallError(Reason.INVALID_PARAMETER, "no")))
    programs = cache(session)
    for _ in range(2):
        with pytest.raises(CallError, match="no"):
            programs.get_or_compile(call("auto")).result(0)
    assert len(session.sent) == 2


def test_a_session_that_ended_is_reported_and_not_kept():
    def ended(message):
        raise SessionEndedError

    session = Session(ended)
    programs = cache(session)
    for _ in range(2):
        with pytest.raises(SessionEndedError):
            programs.get_or_compile(call("auto"))


def test_many_that_ask_while_it_compiles_wait_for_one_answer():
    answer: Future[link_pb2.WorkerMessage] = Future()
    session = Session(lambda message: answer)
    programs = cache(session)
    waiting = [programs.get_or_compile(call("auto")) for _ in range(20)]
    answer.set_result(prepared("k").result())
    assert {future.result(0).program.key for future in waiting} == {"k"}
    assert len(session.sent) == 1


def test_no_call_continues_under_the_launch_lock():
    first: Future[link_pb2.WorkerMessage] = Future()
    session = Session(lambda message: prepared("halo") if message.prepare.strategy else first)
    held = []
    waiting = cache(session).get_or_compile(call("auto"))
    waiting.add_done_callback(lambda _: held.append(session.launch_lock.is_held))
    first.set_result(link_pb2.WorkerMessage(candidates=link_pb2.Candidates(strategies=["halo"])))
    assert waiting.result(0).program.key == "halo"
    assert held == [False]


def test_the_oldest_use_goes_first_by_count_and_by_bytes():
    session = Session(lambda message: prepared(message.prepare.call.strategy, nbytes=100))
    programs = cache(session, programs=3)
    for name in ("a", "b", "c", "a", "d"):
        programs.get_or_compile(call(name))
    assert session.evicted == ["b"]
    by_bytes = Session(session.answer)
    programs = cache(by_bytes, nbytes=250)
    for name in ("a", "b", "c"):
        programs.get_or_compile(call(name))
    assert by_bytes.evicted == ["a"]


def test_a_client_of_many_programs_loses_programs_first():
    session = Session(lambda message: prepared(message.prepare.call.strategy))
    programs = cache(session, programs=4)
    programs.get_or_compile(call("kept"), "quiet")
    for number in range(6):
        programs.get_or_compile(call(f"greedy {number}"), "greedy")
    assert session.evicted == ["greedy 0", "greedy 1", "greedy 2"]


def test_a_miss_reveals_nothing_of_what_others_call():
    def answer(message: link_pb2.FrontEndMessage) -> Future[link_pb2.WorkerMessage]:
        future = prepared(message.prepare.call.strategy)
        future.result().prepared.plan.key.add(label="operands[0]", value=message.prepare.call.strategy)
        return future

    programs = cache(Session(answer))
    explanations = {}
    for name, owner in (("a", "one"), ("b", "other"), ("c", "one")):
        future = programs.get_or_compile(call(name), owner)
        assert isinstance(future, Future)
        explanations[name] = future.result(0).answer.explanation
    assert "no program" in explanations["b"]
    assert "operands[0]: c here, a there" in explanations["c"]


def test_a_program_evicted_while_another_call_asks_for_it_is_asked_for_again():
    pending: Future[link_pb2.WorkerMessage] = Future()
    session = Session(lambda message: prepared(message.prepare.call.strategy))
    programs = cache(session, programs=1)
    programs.get_or_compile(call("a"))
    session.answer = lambda message: pending
    future = programs.get_or_compile(call("synonym of a"))
    session.answer = lambda message: prepared(message.prepare.call.strategy)
    programs.get_or_compile(call("b"))
    assert session.evicted == ["a"]
    session.answer = lambda message: prepared("a")
    pending.set_result(prepared("a").result())  # the mesh answered before it read the eviction
    assert future.result(0).program.key == "a"
    assert [m.prepare.call.strategy for m in session.sent] == ["a", "synonym of a", "b", "synonym of a"]
