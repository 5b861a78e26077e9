"""The program cache against a mesh that answers at once, in any order, or not at all."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest
from server.fake_calls import FakeServerCall
from server.refusals import refusal

from shardcall.v1 import array_pb2, kernel_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.locks import rlock
from shardcall_server.frontend.dispatch import execution as module
from shardcall_server.frontend.dispatch.compiled_call import CallTemplate
from shardcall_server.frontend.dispatch.execution import Execution
from shardcall_server.frontend.memory.call_buffers import OperandSource
from shardcall_server.frontend.programs import keys
from shardcall_server.frontend.programs.cache_entry import CacheEntry
from shardcall_server.frontend.programs.keys import AbstractCall
from shardcall_server.frontend.programs.program_cache import ProgramCache
from shardcall_server.frontend.programs.program_table import ProgramLimits
from shardcall_server.frontend.workers.session import LAUNCH_ORDER, SessionEndedError
from shardcall_server.settings import Settings
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


def named(message: link_pb2.FrontEndMessage) -> Future[link_pb2.WorkerMessage]:
    """The answer to a call whose strategy is the key of its program."""
    return prepared(message.prepare.call.strategy)


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
        assert refusal(programs.get_or_compile(call("auto")).result, 0).message == "no"
    assert len(session.sent) == 2

    def ended(message):
        raise SessionEndedError

    session.answer = ended
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


def test_the_oldest_use_goes_first_by_count_and_by_bytes_and_those_of_a_client_with_many():
    for limit, names, evicted in (({"programs": 3}, "abcad", ["b"]), ({"nbytes": 25}, "abc", ["a"])):
        session = Session(named)
        programs = cache(session, **limit)
        for name in names:
            programs.get_or_compile(call(name))
        assert session.evicted == evicted
    session = Session(named)
    programs = cache(session, programs=4)
    programs.get_or_compile(call("kept"), "quiet")
    for name in "abcdef":
        programs.get_or_compile(call(name), "greedy")
    assert session.evicted == ["a", "b", "c"]


def test_a_miss_reveals_nothing_of_what_others_call():
    def answer(message: link_pb2.FrontEndMessage) -> Future[link_pb2.WorkerMessage]:
        future = named(message)
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
    session = Session(named)
    programs = cache(session, programs=1)
    programs.get_or_compile(call("a"))
    session.answer = lambda message: pending
    future = programs.get_or_compile(call("synonym of a"))
    session.answer = named
    programs.get_or_compile(call("b"))
    assert session.evicted == ["a"]
    session.answer = lambda message: prepared("a")
    pending.set_result(prepared("a").result())  # the mesh answered before it read the eviction
    assert future.result(0).program.key == "a"
    assert [m.prepare.call.strategy for m in session.sent] == ["a", "synonym of a", "b", "synonym of a"]


@pytest.mark.parametrize(("refused", "sent"), [((), ["", "halo"]), (("halo",), ["", "halo", "gspmd"])])
def test_a_cold_call_is_keyed_once_and_a_cached_one_never(monkeypatch, refused, sent):
    """It is sent again only with a candidate to compile."""
    completed, keyed = Mock(wraps=module.AbstractCall), Mock(wraps=keys.hashlib.sha256)
    monkeypatch.setattr(module, "AbstractCall", completed)
    monkeypatch.setattr(keys, "hashlib", SimpleNamespace(sha256=keyed))
    strategies = []

    def answer(message: link_pb2.FrontEndMessage) -> Future[link_pb2.WorkerMessage]:
        strategies.append(strategy := message.prepare.strategy)
        if strategy in refused:
            return failed(CallError(Reason.OUT_OF_DEVICE_MEMORY, "too large"))
        candidates = link_pb2.Candidates(tuning_digest="0" * 64, strategies=["halo", "gspmd"])
        return prepared(strategy) if strategy else done(candidates=candidates)

    session = Session(answer)
    mesh = SimpleNamespace(programs=cache(session), kernels={}, ready=link_pb2.Ready(), session=session)
    call = FakeServerCall(set_program=lambda *arguments: None)

    async def mesh_of(call):
        return mesh

    known_answers: Any = SimpleNamespace(check=lambda program: None)
    execution = Execution(cast(Any, SimpleNamespace(mesh=mesh_of)), cast(Any, None), known_answers, Settings())
    operand = OperandSource(ArrayType((8,), np.dtype(np.float64)))
    for _ in range(2):
        stage = execution.prepare(call, CallTemplate(kernel_pb2.KernelCall(kernel="diff")), [operand])  # type: ignore[arg-type]
        assert call.run(stage).entry.program.key == sent[-1]
    assert (completed.call_count, keyed.call_count) == (1, 1)
    assert strategies == sent
