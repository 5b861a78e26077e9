"""Calls whose strategies are timed, against a mesh that answers at once with the time of each."""

from collections.abc import Iterator
from concurrent.futures import Future
from queue import Queue

import pytest
from end_to_end.processes import wait_for
from server.conftest import refusal
from server.test_program_cache import OPERANDS, Session, done, failed

from server import test_program_cache
from shardcall.v1 import kernel_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.autotune import session_tuner
from shardcall_server.frontend.autotune.autotuner import Autotuner
from shardcall_server.frontend.autotune.session_tuner import SessionTuner
from shardcall_server.frontend.autotune.tuning_cache import TuningCache
from shardcall_server.frontend.programs.cache_entry import CacheEntry
from shardcall_server.frontend.programs.keys import AbstractCall, RequestKey
from shardcall_server.frontend.programs.program_cache import ProgramCache
from shardcall_server.frontend.workers.session import SessionEndedError
from shardcall_worker.v1 import link_pb2, measure_pb2

DIGEST = "0123456789abcdef" * 4
NOT_YET = "; not compared: the mesh has not been idle for 1 s"
WAIT_S = 30
THREE = {"a": 0.03, "b": 0.01, "c": 0.02}
TOO_LARGE, BROKEN, ENDED = Reason.OUT_OF_DEVICE_MEMORY, Reason.COMPILE_FAILED, Reason.MESH_RESTARTED
NONE_BUT_C = {"refused": {"a": TOO_LARGE, "b": BROKEN}}
ONLY_C = "a does not fit in memory, and b cannot be compiled"


class Mesh(Session):
    """A mesh that answers at once with the time of each strategy, and is busy or slow when a test needs it to be.

    Attributes:
        takes_s: the candidates, the rule's choice "a" first, and how long a run of each takes; "b" is the quickest.
        refused: candidates that cannot be compiled, and why.
        failing: candidates that cannot be run, and why.
        idle: whether it has nothing to do.
        slow: whether it takes its time to time a strategy.
    """

    def __init__(self, **takes_s: float) -> None:
        super().__init__(self.begin)
        self.takes_s = takes_s or {"a": 0.02, "b": 0.01}
        self.refused: dict[str, Reason] = {}
        self.failing: dict[str, Reason] = {}
        self.call_bytes = 1 << 20
        self.idle = True
        self.slow = False
        self.held: Queue[tuple[Future[link_pb2.WorkerMessage], str]] = Queue()
        self.is_gone = False
        self.prepared: list[str] = []
        self.measured: list[str] = []
        self.on_measure = lambda: None

    @property
    def idle_s(self) -> float:
        return 10.0 if self.idle else 0.0

    def command_if_idle(self, message: link_pb2.FrontEndMessage) -> Future[link_pb2.WorkerMessage] | None:
        self.on_measure()
        return self.command(message) if self.idle else None

    def release(self) -> None:
        """Answers the one command that was held."""
        answer, name = self.held.get(timeout=WAIT_S)
        self.slow = False
        answer.set_result(self.measure(name).result())

    def begin(self, message: link_pb2.FrontEndMessage) -> Future[link_pb2.WorkerMessage]:
        if self.is_gone:
            raise SessionEndedError
        if message.HasField("prepare"):
            return self.prepare(message.prepare)
        if not self.slow:
            return self.measure(message.measure.key_digest)
        answer: Future[link_pb2.WorkerMessage] = Future()
        self.held.put((answer, message.measure.key_digest))
        return answer

    def measure(self, name: str) -> Future[link_pb2.WorkerMessage]:
        self.measured.append(name)
        if name in self.failing:
            return failed(CallError(self.failing[name], f"{name} cannot run"))
        return done(measured=measure_pb2.Measured(run_seconds=[self.takes_s[name]] * 3))

    def prepare(self, asked: link_pb2.Prepare) -> Future[link_pb2.WorkerMessage]:
        name = asked.strategy
        if not name and asked.call.strategy == "auto":
            candidates = {"tuning_digest": DIGEST, "strategies": [*self.takes_s], "call_bytes": self.call_bytes}
            return done(candidates=candidates)
        name = name or asked.call.strategy
        self.prepared.append(name)
        if name in self.refused:
            return failed(CallError(self.refused[name], f"{name} is refused"))
        plan = kernel_pb2.Plan(kernel="diff", strategy=name, strategy_reason="the rule", key_digest=name)
        return done(prepared=link_pb2.Prepared(plan=plan, program_bytes=10))


@pytest.fixture
def autotuner() -> Iterator[Autotuner]:
    tuner = Autotuner(TuningCache(""), 60.0)
    yield tuner
    tuner.close()


def call(strategy: str = "auto", axis: int = 0) -> AbstractCall:
    parameters = {"axis": kernel_pb2.ParameterValue(int_value=axis)}
    return AbstractCall(kernel_pb2.KernelCall(kernel="diff", strategy=strategy, parameters=parameters), OPERANDS)


def find(programs: ProgramCache, strategy: str = "auto", axis: int = 0) -> CacheEntry:
    entry = programs.get_or_compile(call(strategy, axis))
    return entry if isinstance(entry, CacheEntry) else entry.result(WAIT_S)


def find_tuned(programs: ProgramCache) -> CacheEntry:
    """Finds a call's program after its trial, if there is one."""
    find(programs)
    wait_for(lambda: NOT_YET not in find(programs).plan.strategy_reason)
    return find(programs)


def cache(mesh: Mesh, autotuner: Autotuner, programs: int = 10, *, is_tuned: bool = True) -> ProgramCache:
    cache = test_program_cache.cache(mesh, programs)
    if is_tuned:
        cache.compiler.policy = SessionTuner(cache.compiler, autotuner)
    return cache


def test_the_first_call_waits_for_no_trial_and_later_ones_get_the_quickest(autotuner):
    mesh = Mesh(a=0.02, b=0.01, c=0.03)
    programs = cache(mesh, autotuner)
    mesh.slow = True
    first = find(programs)
    assert (first.program.key, first.plan.strategy_reason) == ("a", f"the rule{NOT_YET}")
    assert first.answer.outcome == kernel_pb2.CACHE_OUTCOME_MISS
    mesh.release()
    entry = find_tuned(programs)
    assert entry.program.key == entry.plan.strategy == "b"
    assert entry.plan.strategy_reason == "timed: b 10 ms, a 20 ms, c 30 ms; 2 times as fast as a"
    assert [(t.strategy, t.seconds) for t in entry.plan.strategy_timings] == [("b", 0.01), ("a", 0.02), ("c", 0.03)]
    assert mesh.measured[:6] == ["a", "b", "c"] * 2
    assert sorted(mesh.evicted) == ["a", "c"]
    again = find(programs)
    assert (again.program, again.plan) == (entry.program, entry.plan)
    assert again.answer.outcome == kernel_pb2.CACHE_OUTCOME_HIT


def test_it_is_decided_once_for_all_calls_and_all_sessions(autotuner):
    mesh, following = Mesh(), Mesh(a=0.01, b=0.02)
    programs = cache(mesh, autotuner)
    find_tuned(programs)
    timed = len(mesh.measured)
    assert find(programs, axis=1).program.key == "b"
    assert find(cache(following, autotuner)).plan.strategy_reason.startswith("timed: b 10 ms")
    assert (len(mesh.measured), following.measured, following.prepared) == (timed, [], ["b"])


def test_a_named_strategy_is_what_it_is_and_stays_cached_for_who_named_it(autotuner):
    mesh = Mesh(a=0.01, b=0.02)
    programs = cache(mesh, autotuner)
    named = find(programs, "b")
    assert (named.plan.strategy, list(named.plan.strategy_timings), mesh.measured) == ("b", [], [])
    assert find_tuned(programs).program.key == "a"
    assert mesh.evicted == []
    assert find(programs, "b").program is named.program


@pytest.mark.parametrize(
    ("takes_s", "state", "options", "strategy", "reason", "measured"),
    [
        pytest.param({}, {"call_bytes": 1 << 10}, {}, "a", "the rule", "", id="a small call"),
        pytest.param({}, {}, {"is_tuned": False}, "a", "the rule", "", id="no autotuner"),
        pytest.param({}, {}, {"programs": 1}, "a", "the rule", "", id="a cache too small for the candidates"),
        pytest.param(THREE, {"refused": {"b": TOO_LARGE}}, {}, "c", "timed: c 20 ms, a", "ac", id="one does not fit"),
        pytest.param(THREE, {"refused": {"b": BROKEN}}, {}, "c", "timed: c 20 ms, a", "ac", id="one does not compile"),
        pytest.param({}, {"failing": {"b": BROKEN}}, {}, "a", "", "ab", id="one cannot run"),
        pytest.param({}, {"failing": {"b": TOO_LARGE}}, {}, "a", "", None, id="the devices lack memory for one"),
        pytest.param(THREE, {"failing": {"b": TOO_LARGE}}, {}, "c", "timed: c 20", None, id="and not for two"),
        pytest.param(THREE, NONE_BUT_C, {}, "c", ONLY_C, "", id="the rule's does not fit"),
        pytest.param(THREE, NONE_BUT_C, {"is_tuned": False}, "c", ONLY_C, "", id="nor without an autotuner"),
        pytest.param(THREE, {"refused": {"b": ENDED}}, {}, "a", "the rule", None, id="the mesh ends at a compilation"),
        pytest.param(THREE, {"failing": {"b": ENDED}}, {}, "a", "the rule", None, id="the mesh ends at a run"),
    ],
)
def test_the_strategy_after_a_trial(autotuner, takes_s, state, options, strategy, reason, measured):
    mesh = Mesh(**takes_s)
    vars(mesh).update(state)
    plan = find_tuned(cache(mesh, autotuner, **options)).plan
    assert plan.strategy == strategy
    assert plan.strategy_reason.startswith(reason)
    if measured is None:  # what passes says nothing of the strategies on another mesh
        assert find_tuned(cache(Mesh(**takes_s), autotuner)).plan.strategy == "b"
    else:
        assert set(mesh.measured) == set(measured)


def test_on_a_busy_mesh_the_rule_decides_and_timing_follows_when_it_is_idle(autotuner):
    mesh = Mesh()
    mesh.idle = False
    programs = cache(mesh, autotuner)
    request = RequestKey(b"request", (), False)
    first = find(programs)
    programs.alias(request, call())
    assert (first.plan.strategy, first.plan.strategy_reason) == ("a", f"the rule{NOT_YET}")
    other = find(programs, axis=1)
    assert other.program is first.program
    assert other.plan.strategy_reason == f"the rule{NOT_YET}"
    assert mesh.measured == []
    mesh.idle = True
    wait_for(lambda: mesh.evicted)  # the rule's choice, as no call finds it any more
    recent = programs.get(request)
    assert recent is not None
    assert recent[1].plan.strategy == "b"
    assert [find(programs, axis=axis).program.key for axis in (0, 1)] == ["b", "b"]
    assert mesh.evicted == ["a"]


def test_of_many_calls_behind_one_trial_the_first_get_its_result(autotuner, monkeypatch):
    monkeypatch.setattr(session_tuner, "_MAX_CALLS", 1)
    mesh = Mesh()
    mesh.idle = False
    programs = cache(mesh, autotuner)
    assert {find(programs, axis=axis).program.key for axis in (0, 1)} == {"a"}
    mesh.idle = True
    wait_for(lambda: find(programs).program.key == "b")
    assert find(programs, axis=1).program.key == "a"


def test_a_trial_pauses_while_calls_need_the_mesh(autotuner):
    mesh = Mesh()

    def a_call_comes() -> None:
        if len(mesh.measured) == 3:
            mesh.idle, mesh.on_measure = False, lambda: None

    mesh.on_measure = a_call_comes
    programs = cache(mesh, autotuner)
    find(programs)
    wait_for(lambda: not mesh.idle)
    plan = find(programs).plan
    assert (plan.strategy, plan.strategy_reason) == ("a", f"the rule{NOT_YET}")
    assert mesh.measured == ["a", "b", "a"]
    mesh.idle = True
    wait_for(lambda: mesh.evicted)
    assert find(programs).plan.strategy == "b"


def test_where_none_fits_the_error_is_that_of_the_rules_strategy(autotuner):
    mesh = Mesh(a=0.01, b=0.02)
    mesh.refused = {"a": TOO_LARGE, "b": BROKEN}
    assert "a is refused" in refusal(find, cache(mesh, autotuner)).message


def test_the_rule_decides_if_the_mesh_ends_while_strategies_are_timed(autotuner):
    mesh = Mesh()
    mesh.on_measure = lambda: setattr(mesh, "is_gone", True)
    assert find_tuned(cache(mesh, autotuner)).plan.strategy == "a"
    assert find_tuned(cache(Mesh(), autotuner)).plan.strategy == "b"


def test_several_calls_have_one_trial(autotuner):
    mesh = Mesh()
    programs = cache(mesh, autotuner)
    mesh.slow = True
    assert [find(programs, axis=axis).plan.strategy for axis in (0, 0, 1, 2, 3, 4)] == ["a"] * 6
    mesh.release()
    wait_for(lambda: mesh.evicted)
    assert [find(programs, axis=axis).plan.strategy for axis in range(5)] == ["b"] * 5
    assert mesh.prepared.count("b") == 1
