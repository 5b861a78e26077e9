"""The order of clients and connections at the compiler, and compilations that nobody waits for."""

from concurrent.futures import Future

import pytest
from server.refusals import refusal, refused
from server.test_program_cache import Session, cache, call, failed, prepared

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.programs.compilation_queue import MAX_COMPILED, MAX_PER_CONNECTION, MAX_PER_OWNER
from shardcall_server.mesh.commands import COMPILE_THREADS


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
    positions = {name: position(programs, future) for name, future in waiting.items()}
    assert positions == {"c": 1, "d": 3, "e": 0, "f": 2}
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


def test_clients_at_their_limit_are_skipped(session, programs):
    begin(programs, ["a0", "a1", "a2"], "ann", "1")  # two begin
    begin(programs, ["a3", "a4"], "ann", "2")  # one begins
    begin(programs, ["b0", "b1"], "bob", "3")  # one begins
    assert session.names == ["a0", "a1", "a3", "b0"]
    session.finish("b0")
    assert session.names[4:] == ["b1"]
    session.finish("b1")
    assert len(session.names) == 5
    session.finish("a3")
    assert session.names[5:] == ["a4"]  # connection 1 has its maximum under way


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
    assert session.names == ["a0", "a1", "a3"]
    assert session.ended == []
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
    assert session.evicted == []
    assert session.names == ["a0", "b0", "a0"]


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
