"""Calls that leave the strategy to the server: what they get at once, and what timing makes of it."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from shardcall.v1 import kernel_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.programs.autotuner import MESH_BUSY, Autotuner, Trial
from shardcall_server.frontend.programs.cache_entry import CacheEntry
from shardcall_server.frontend.programs.strategies import Choice
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_worker.v1 import link_pb2

_MIN_TIMED_BYTES = 64 << 10  # a smaller call's way to the mesh takes longer than any strategy
_MAX_GIVEN_UP = 4096
_CANNOT_BE_HAD = {Reason.OUT_OF_DEVICE_MEMORY: "does not fit in memory", Reason.COMPILE_FAILED: "cannot be compiled"}


@dataclass(eq=False)
class Preparation:
    """A compilation that calls wait for.

    Attributes:
        command: what is sent to the mesh.
        owner: whose call began it; empty for the server itself.
        found: what the calls wait for.
        evicted: keys evicted since the command was sent.
        candidates: what ``auto`` may stand for; None where the call names a strategy, or there is no other.
        choice: what it stands for by earlier timing; None where it was not timed.
        others: candidates to be had if the present one cannot be.
        refusals: the candidates that could not be had, and why.
        began: when it was asked for, on the monotonic clock.
    """

    command: link_pb2.Prepare
    owner: str = ""
    found: Future[CacheEntry] = field(default_factory=Future)
    evicted: set[str] = field(default_factory=set)
    candidates: link_pb2.Candidates | None = None
    choice: Choice | None = None
    others: list[str] = field(default_factory=list)
    refusals: list[tuple[str, CallError]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def choose_from(self, candidates: link_pb2.Candidates, choice: Choice | None) -> None:
        """Makes the command ask for what was chosen, or else for the first candidate."""
        self.candidates, self.choice = candidates, choice
        first = choice.strategy if choice else candidates.strategies[0]
        self.command.strategy, self.others = first, [name for name in candidates.strategies if name != first]

    def refused(self, error: CallError) -> None:
        """Makes the command ask for the next candidate.

        Raises:
            CallError: there is none, or it would be refused too.
        """
        if error.reason not in _CANNOT_BE_HAD:
            raise error
        self.refusals.append((self.command.strategy, error))
        if not self.others:
            raise self.refusals[0][1]
        self.command.strategy = self.others.pop(0)

    def give_reason(self, plan: kernel_pb2.Plan) -> None:
        """Says in a plan why its strategy is what it is, where that is not the kernel's rule."""
        if self.choice is not None and not self.refusals:
            give_reason(plan, self.choice)
        elif self.refusals:
            plan.strategy_reason = ", and ".join(f"{name} {_CANNOT_BE_HAD[e.reason]}" for name, e in self.refusals)


class Programs(Protocol):
    """The programs of one session; its `order` is held by who calls this."""

    def look_up(self, digest: bytes, prepare: link_pb2.Prepare) -> CacheEntry | Future[CacheEntry]:
        """The program of a command, or the future of it."""

    def known(self, digest: bytes) -> CacheEntry | None:
        """The program that a call finds without asking the mesh."""

    def name(self, digest: bytes, found: CacheEntry) -> None:
        """Has a call find a program from now on."""

    def unname(self, digest: bytes) -> None:
        """Has a call find nothing from now on."""

    def go_on(self, digest: bytes) -> Future[CacheEntry] | None:
        """What the calls wait for that were held."""


@dataclass(eq=False)
class _Undecided:
    """A choice that timing has still to make.

    Attributes:
        strategies: the candidates.
        rule: the reason for the rule's choice.
        held: whether calls wait for it.
        waiting: those that do, and what the rule chose for each.
        calls: all that it is for.
    """

    strategies: tuple[str, ...]
    rule: str
    held: bool = True
    waiting: dict[bytes, CacheEntry] = field(default_factory=dict)
    calls: set[bytes] = field(default_factory=set)


class Decisions:
    """The choices of one session that timing has made or has still to make.

    The first call whose strategies are worth timing waits for it if the mesh is idle. Otherwise it goes by the
    kernel's rule, and finds what timing chose when the mesh has been idle.

    Args:
        programs: the session's.
        session: the mesh.
        autotuner: times.
    """

    def __init__(self, programs: Programs, session: MeshSession, autotuner: Autotuner) -> None:
        self._programs = programs
        self._session = session
        self._autotuner = autotuner
        self._undecided: dict[str, _Undecided] = {}
        self._given_up: set[str] = set()

    def recall(self, candidates: link_pb2.Candidates) -> Choice | None:
        """What was chosen among some candidates before."""
        return self._autotuner.tuning_cache.find(candidates.tuning_digest, tuple(candidates.strategies))

    def hold(self, call: bytes, preparation: Preparation, found: CacheEntry) -> bool:
        """Whether a call waits until its strategies are timed, and `Programs.go_on` is asked for what it waits for.

        Args:
            call: its digest.
            preparation: what it waits for.
            found: the rule's choice, compiled.
        """
        candidates = preparation.candidates
        if candidates is None or preparation.choice or preparation.refusals or candidates.call_bytes < _MIN_TIMED_BYTES:
            return False
        if candidates.tuning_digest in self._given_up:
            return False
        undecided = self._undecided.get(candidates.tuning_digest)
        if undecided is None:
            undecided = _Undecided(tuple(candidates.strategies), found.plan.strategy_reason)
            measurement = self._measurement(candidates.tuning_digest, undecided, preparation)
            undecided.held = self._autotuner.take_now(measurement)
            if undecided.held or self._autotuner.take_later(measurement):
                self._undecided[candidates.tuning_digest] = undecided
        undecided.calls.add(call)
        if undecided.held:
            undecided.waiting[call] = found
        else:
            found.plan.strategy_reason = _not_compared(undecided.rule, MESH_BUSY)
        return undecided.held

    def _measurement(self, digest: str, undecided: _Undecided, preparation: Preparation) -> Trial:
        def compiled(strategy: str) -> Future[CacheEntry]:
            command = link_pb2.Prepare()
            command.CopyFrom(preparation.command)
            command.strategy = strategy
            found = self._programs.look_up(_candidate(digest, strategy), command)
            return found if isinstance(found, Future) else _done(found)

        def settle(choice: Choice | None, final: bool, why: str) -> None:
            if choice is not None:
                self._autotuner.tuning_cache.keep(digest, choice)
                self._autotuner.timed += 1
            self._settle(digest, undecided, choice, why, final=final)

        kernel, took_s = preparation.command.call.kernel, time.monotonic() - preparation.began
        return Trial(self._session, kernel, undecided.strategies, compiled, took_s, self._autotuner.budget_s, settle)

    def _settle(self, digest: str, undecided: _Undecided, choice: Choice | None, why: str, *, final: bool) -> None:
        """Gives every call what was chosen; with nothing chosen, calls go by the rule and are told why."""
        told: list[tuple[Future[CacheEntry], CacheEntry]] = []
        with self._session.launch_lock:
            chosen = self._programs.known(_candidate(digest, choice.strategy)) if choice else None
            for call in undecided.calls:
                found = undecided.waiting.get(call) or self._programs.known(call)
                if found is None:  # evicted since
                    continue
                if chosen is not None and choice is not None:
                    found = _chosen(chosen, choice, found)
                else:
                    found = _by_rule(found, undecided.rule, why)
                self._programs.name(call, found)
                if call in undecided.waiting and (waited := self._programs.go_on(call)) is not None:
                    told.append((waited, found))
            undecided.held, undecided.waiting = False, {}
            if final:
                del self._undecided[digest]
                if choice is None and len(self._given_up) < _MAX_GIVEN_UP:  # it would end so again
                    self._given_up.add(digest)
                for strategy in undecided.strategies:
                    self._programs.unname(_candidate(digest, strategy))
        for waited, found in told:
            waited.set_result(found)


def give_reason(plan: kernel_pb2.Plan, choice: Choice) -> None:
    """Says in a plan that timing chose its strategy, and how."""
    plan.strategy_reason = choice.reason
    del plan.strategy_timings[:]
    for timing in choice.timings:
        plan.strategy_timings.add(strategy=timing.strategy, seconds=timing.seconds, run_count=timing.run_count)


def _chosen(program: CacheEntry, choice: Choice, instead: CacheEntry) -> CacheEntry:
    plan = kernel_pb2.Plan()
    plan.CopyFrom(program.plan)
    give_reason(plan, choice)
    return CacheEntry(program.program, plan, instead.answer)


def _by_rule(found: CacheEntry, rule: str, why: str) -> CacheEntry:
    plan = kernel_pb2.Plan()
    plan.CopyFrom(found.plan)
    plan.strategy_reason = _not_compared(rule, why)
    return CacheEntry(found.program, plan, found.answer)


def _not_compared(rule: str, why: str) -> str:
    return f"{rule}; not compared: {why}" if why else rule


def _candidate(digest: str, strategy: str) -> bytes:
    """What a candidate's program is found by while it is timed."""
    return f"{strategy} {digest}".encode()


def _done(found: CacheEntry) -> Future[CacheEntry]:
    done: Future[CacheEntry] = Future()
    done.set_result(found)
    return done
