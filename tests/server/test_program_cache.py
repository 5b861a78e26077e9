"""The program cache and its table against a mesh that answers at once, in any order, or not at all."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest
from server.conftest import refusal, refused
from server.fake_calls import FakeServerCall

from shardcall.v1 import array_pb2, kernel_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.locks import rlock
from shardcall_server.frontend.dispatch import execution as module
from shardcall_server.frontend.dispatch.compiled_call import CallTemplate
from shardcall_server.frontend.dispatch.execution import Execution
from shardcall_server.frontend.memory.call_buffers import OperandSource
from shardcall_server.frontend.programs import keys
from shardcall_server.frontend.programs.cache_entry import HIT, CachedProgram, CacheEntry
from shardcall_server.frontend.programs.compilation_queue import MAX_COMPILED, MAX_PER_CONNECTION, MAX_PER_OWNER
from shardcall_server.frontend.programs.keys import AbstractCall, CallKey, ProgramKey
from shardcall_server.frontend.programs.program_cache import ProgramCache
from shardcall_server.frontend.programs.program_table import ProgramLimits, ProgramTable
from shardcall_server.frontend.workers.session import LAUNCH_ORDER, SessionEndedError
from shardcall_server.mesh.commands import COMPILE_THREADS
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


def cache(session: Session, programs: int = 10, nbytes: int = 100_000) -> ProgramCache:
    return ProgramCache(session, ProgramLimits(programs, nbytes, 1 << 20))


def test_an_answer_that_comes_before_sending_returns_is_kept():
    session = Session(lambda message: prepared("k"))
    programs = cache(session)
    program = programs.get_or_compile(call("auto")).result(0).program
    assert (program.key, program.is_slow) == ("k", True)  # before its first execution
    assert isinstance(programs.get_or_compile(call("auto")), CacheEntry)
    assert programs.get_or_compile(call("halo")).result(0).answer.outcome == kernel_pb2.CACHE_OUTCOME_HIT
    assert len(session.sent) == 2


def test_a_refusal_is_not_kept():
    session = Session(lambda message: failed(CallError(Reason.INVALID_PARAMETER, "no")))
    programs = cache(session)
    for _ in range(2):
        assert refusal(programs.get_or_compile(call("auto")).result, 0).message == "no"
    assert len(session.sent) == 2
    session.answer = Mock(side_effect=SessionEndedError)
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
    for limit, names, evicted in (({"programs": 3}, "abcad", ["b"]), ({"nbytes": 1000}, "abc", ["a"])):
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
    begun = programs.get_or_compile(call("d"), "one")
    assert isinstance(begun, Future)
    entry = begun.result(0)
    assert "operands[0]: d here" in entry.for_owner("one").answer.explanation
    of_other = entry.for_owner("other").answer
    assert (of_other.outcome, of_other.explanation) == (
        entry.answer.outcome,
        "another client had begun to compile the program",
    )


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


@pytest.fixture
def evicted() -> list[str]:
    return []


@pytest.fixture
def table(evicted) -> ProgramTable:
    return ProgramTable(ProgramLimits(2, 1000, 0), lambda program: evicted.append(program.key), threading.RLock())


def add(table: ProgramTable, key: str, *calls: str) -> CachedProgram:
    program = CachedProgram(ProgramKey(key), "diff", {}, (), 10)
    table.add(program)
    for call in calls:
        table.alias(CallKey(call.encode()), CacheEntry(program, kernel_pb2.Plan(), HIT))
    return program


def test_calls_find_the_program_that_they_were_aliased_to_last(table, evicted):
    first = add(table, "first", "x", "y")
    second = add(table, "second", "x")
    assert (table.get(CallKey(b"x")).program, table.get(CallKey(b"y")).program) == (second, first)
    table.alias(CallKey(b"y"), CacheEntry(second, kernel_pb2.Plan(), HIT))
    assert evicted == ["first"]  # no call finds it any more


def test_a_program_that_is_pinned_twice_stays_without_aliases_for_two_unpins(table, evicted):
    program = add(table, "pinned", "x")
    table.pin(program)
    table.pin(program)
    add(table, "other", "x")
    table.unpin(program)
    assert evicted == []
    table.unpin(program)
    assert (evicted, program.evicted, table.get_program(program.key)) == (["pinned"], True, None)


def test_the_bounds_hold_for_pinned_programs_too(table, evicted):
    program = add(table, "pinned", "x")
    table.pin(program)
    add(table, "b", "y")
    add(table, "c", "z")
    assert evicted == ["pinned"]
    assert table.get(CallKey(b"x")) is None
    table.unpin(program)
    assert evicted == ["pinned"]


def test_an_evicted_program_gets_no_aliases(table):
    program = add(table, "a", "x")
    add(table, "b")
    add(table, "c")
    table.alias(CallKey(b"y"), CacheEntry(program, kernel_pb2.Plan(), HIT))
    assert table.get(CallKey(b"y")) is None


def test_the_oldest_aliases_are_dropped():
    table = ProgramTable(ProgramLimits(2, 1000, 0, max_aliases=2), lambda program: None, threading.RLock())
    add(table, "a", "x", "y", "z")
    assert [table.get(CallKey(call)) is not None for call in (b"x", b"y", b"z")] == [False, True, True]


def test_the_plans_of_calls_count_as_memory_of_their_programs(table, evicted):
    add(table, "a", "x")
    program = add(table, "b", "y")
    for call, left in ((b"y", 500), (b"y", 500), (b"z", 600)):
        assert evicted == []
        table.alias(CallKey(call), CacheEntry(program, kernel_pb2.Plan(strategy_reason=left // 15 * "x"), HIT))
    assert evicted == ["a"]


class SlowSession(Session):
    """A mesh that answers when it is told to."""

    def __init__(self) -> None:
        self.answers: dict[str, Future] = {}
        super().__init__(self.begin)

    def begin(self, message):
        return self.answers.setdefault(message.prepare.call.strategy, Future())

    def refuse(self, message):
        raise RuntimeError("the link is gone")

    def finish(self, *names):
        for name in names:
            self.answers[name].set_result(prepared(name).result())

    @property
    def names(self):
        return [message.prepare.call.strategy for message in self.sent]


@pytest.fixture
def session():
    return SlowSession()


@pytest.fixture
def programs(session):
    return cache(session, programs=40)


def position(programs, future):
    return programs.compiler.position(future)[0]


def begin(programs, names, owner, connection="", weight=1):
    return {name: programs.get_or_compile(call(name), owner, connection, weight) for name in names}


def test_one_client_leaves_a_thread_of_the_mesh():
    assert COMPILE_THREADS == MAX_COMPILED == MAX_PER_OWNER + 1 > MAX_PER_CONNECTION


def test_a_compilation_names_the_earlier_sizes_of_its_client(session, programs):
    def begun(name, owner, *shape):
        types = [array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_FLOAT64, shape=shape)]
        sized = AbstractCall(kernel_pb2.KernelCall(kernel="diff", strategy=name), types)
        return programs.get_or_compile(sized, owner)

    for name, size in {"a": 2, "b": 3}.items():
        begun(name, "ann", size)
        operand = kernel_pb2.KeyPart(label="operands[0]", value=f"float64[{size}]")
        plan = kernel_pb2.Plan(kernel="diff", key_digest=name, key=[operand])
        message = link_pb2.Prepared(plan=plan, program_bytes=10)
        session.answers[name].set_result(link_pb2.WorkerMessage(prepared=message))
    futures = [begun("c", "ann", 4), begun("d", "bob", 4), begun("e", "ann", 4, 4)]
    assert begun("c", "bob", 4) is futures[0]  # he waits, too, and is not told of the sizes of others
    before = [programs.compiler.operands(future, "ann") for future in futures]
    sizes = ["float64[2]", "float64[3]"]
    assert before == [("float64[4]", sizes), ("float64[4]", sizes), ("float64[4,4]", [])]
    assert programs.compiler.operands(futures[0], "bob") == ("float64[4]", [])
    assert programs.compiler.operands(begun("f", "ann"), "ann") == ("float64[]", [])
    session.finish("c", "d", "e")
    assert programs.compiler.operands(futures[0], "ann") == ("", [])


def test_connections_of_a_client_alternate_and_clients_are_independent(session, programs):
    futures = begin(programs, [f"a{i}" for i in range(6)], "ann", "1")
    assert session.names == ["a0", "a1"]
    futures |= begin(programs, ["b0", "b1"], "ann", "2")
    assert session.names == ["a0", "a1", "b0"]
    begin(programs, ["c0"], "bob", "3")
    begin(programs, ["warm-up 0", "warm-up 1", "warm-up 2", "warm-up 3"], "")
    assert session.names[3:] == ["c0", "warm-up 0", "warm-up 1", "warm-up 2", "warm-up 3"]
    session.finish("a0")
    assert session.names[-1] == "a2"  # b has begun one
    session.finish("a1")
    assert session.names[-1] == "b1"
    session.finish("a2", "b0", "b1", "a3", "a4", "a5")
    assert all(future.result(0).program.key == name for name, future in futures.items())
    assert session.names[-3:] == ["a3", "a4", "a5"]


def test_positions_are_those_in_which_compilations_begin(session, programs):
    begun = begin(programs, ["a", "b"], "ada", "1")
    waiting = begin(programs, ["c", "d"], "ada", "1") | begin(programs, ["e", "f"], "ada", "2")
    others = begin(programs, ["g"], "bob", "3")
    assert [position(programs, future) for future in (*begun.values(), *others.values())] == [0, 0, 0]
    assert {name: position(programs, future) for name, future in waiting.items()} == {"c": 1, "d": 3, "e": 0, "f": 2}
    session.finish(*begun)
    assert position(programs, begun["a"]) == 0
    assert position(programs, waiting["c"]) == 0


def test_weights_of_clients_count_at_the_compiler(session, programs):
    begin(programs, ["x0", "x1"], "xan", "0")
    begin(programs, ["y0", "y1"], "yve", "0")
    waiting = {}
    for connection in "12":
        for number in range(2):
            waiting |= begin(programs, [f"a{connection}{number}"], "ann", connection, weight=2)
            waiting |= begin(programs, [f"b{connection}{number}"], "bob", connection)
    expected = ["a10", "a20", "b10", "a11", "a21", "b20", "b11", "b21"]
    positions = {name: position(programs, future) for name, future in waiting.items()}
    assert sorted(positions, key=positions.__getitem__) == expected
    assert sorted(positions.values()) == [*range(1, 9)]
    session.finish("x0", "x1", "y0", "y1", *expected)
    assert session.names[4:] == expected


def test_a_compilation_that_nobody_waits_for_is_dropped_before_it_begins(session, programs):
    futures = begin(programs, ["a0", "a1", "a2", "a3"], "ann", "1")
    assert programs.get_or_compile(call("a3"), "bob", "2") is futures["a3"]
    for name in ("a2", "a3"):
        programs.compiler.leave(futures[name])
    with refused(Reason.CANCELLED, "nobody waits"):
        futures["a2"].result(0)
    for name in ("a0", "a1", "a3"):  # begun, or waited for by another
        session.finish(name)
        assert futures[name].result(0).program.key == name
    programs.compiler.leave(futures["a3"])
    assert (session.names, session.ended) == (["a0", "a1", "a3"], [])
    assert programs.get_or_compile(call("a2"), "ann", "1") is not futures["a2"]


def test_a_compilation_that_nobody_waits_for_ends_when_another_begins(session, programs):
    (future,) = begin(programs, ["a0"], "ann", "1").values()
    programs.compiler.leave(future)
    assert programs.get_or_compile(call("a0"), "ann", "1") is future  # which repeats the call
    programs.compiler.leave(future)
    assert session.ended == []
    others = begin(programs, ["b0"], "bob", "2")
    assert session.ended == ["a0"]
    session.finish("a0")  # it was prepared before it was ended
    assert "nobody waits" in refusal(future.result, 0).message
    assert session.evicted == ["a0"]
    assert programs.get_or_compile(call("a0"), "ann", "1") is not future
    assert session.names == ["a0", "b0", "a0"]
    session.finish("b0")
    assert others["b0"].result(0).program.key == "b0"


def test_those_that_wait_end_with_the_mesh_or_with_a_failure(session, programs):
    futures = begin(programs, ["a0", "a1", "a2", "a3", "a4"], "ann", "1")

    def refuse(message):
        if message.prepare.call.strategy == "a4":
            return failed(CallError(Reason.INVALID_PARAMETER, "no"))
        return session.refuse(message)

    session.answer = refuse
    session.finish("a0")
    for name in ("a2", "a3"):
        with pytest.raises(RuntimeError, match="gone"):
            futures[name].result(0)
    assert "no" in refusal(futures["a4"].result, 0).message
    session.answer = session.refuse
    for _ in range(2 * MAX_PER_OWNER):
        with pytest.raises(RuntimeError, match="gone"):
            programs.get_or_compile(call("b0"), "bob", "2")
    session.answer = session.begin
    begin(programs, ["b0"], "bob", "2")
    assert session.names[-1] == "b0", "the failures leave the limit to others"
    session.finish("a1")
    again = begin(programs, ["a2", "a3", "a5"], "ann", "1")
    assert session.names[-2:] == ["a2", "a3"]
    for name in again:
        session.finish(name)
        assert again[name].result(0).program.key == name


def test_a_program_stays_if_it_was_asked_for_again_before_its_ended_compilation_has_answered(session, programs):
    futures = begin(programs, ["a0", "b0"], "ann", "1")
    programs.compiler.leave(futures["a0"])
    ended = session.answers.pop("a0")
    repeated = programs.get_or_compile(call("a0"), "ann", "2")
    ended.set_result(prepared("a0").result())
    session.finish("a0")
    assert repeated.result(0).program.key == "a0"
    assert (session.evicted, session.names) == ([], ["a0", "b0", "a0"])


@pytest.fixture
def waiting(session, programs):
    """Programs for which ann and bob wait: with a2 to a9 and with none; both have two under way."""
    futures = begin(programs, [f"a{i}" for i in range(10)], "ann", "1") | begin(programs, ["b0", "b1"], "bob", "2")
    assert session.names == ["a0", "a1", "b0", "b1"]
    return futures


def test_a_waiting_program_begins_as_that_of_the_client_that_is_served_first(session, programs, waiting):
    assert programs.get_or_compile(call("a9"), "cat", "3") is waiting["a9"]
    assert position(programs, waiting["a9"]) == 2
    session.finish("b0", "b1")
    assert session.names[4:] == ["a9"]  # ann's connection has its maximum under way
    session.finish("a9")
    assert waiting["a9"].result(0).program.key == "a9"
    session.finish("a0")
    assert session.names[5:] == ["a2"]
    assert programs.get_or_compile(call("a8"), "cat", "3") is waiting["a8"]
    assert session.names[6:] == ["a8"]  # at once, since cat is below its limit
    assert programs.get_or_compile(call("a8"), "dan", "4") is waiting["a8"]
    assert session.names[6:] == ["a8"]
    session.finish("a8")
    assert waiting["a8"].result(0).program.key == "a8"


def test_a_waiting_program_stays_where_it_begins_earlier(session, programs, waiting):
    begin(programs, [f"c{i}" for i in range(5)], "cat", "3")
    assert programs.get_or_compile(call("a2"), "dan", "4") is waiting["a2"]  # ann's connection is at its limit
    assert programs.get_or_compile(call("a2"), "cat", "3") is waiting["a2"]
    session.finish("b0", "b1")
    assert session.names[4:] == ["c0", "a2"]


def test_a_waiting_program_that_cannot_be_sent_fails_for_all_and_frees_the_compiler(session, programs, waiting):
    session.finish("b0")
    session.answer = session.refuse
    assert programs.get_or_compile(call("a9"), "cat", "3") is waiting["a9"]
    with pytest.raises(RuntimeError, match="gone"):
        waiting["a9"].result(0)
    session.answer = session.begin
    begin(programs, ["c0"], "cat", "3")
    assert session.names[-1] == "c0"
