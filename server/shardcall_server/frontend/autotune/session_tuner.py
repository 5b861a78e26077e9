"""Tuning of one session's calls with the strategy "auto"."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from shardcall.v1 import kernel_pb2
from shardcall_core.locks import check_held
from shardcall_server.frontend.autotune.autotuner import Autotuner
from shardcall_server.frontend.autotune.trial import Trial, TrialConfig
from shardcall_server.frontend.autotune.tuning_result import TuningResult
from shardcall_server.frontend.programs.cache_entry import CacheEntry
from shardcall_server.frontend.programs.keys import CallKey, TuningKey
from shardcall_server.frontend.programs.program_compiler import Compilation, ProgramCompiler, StrategyPolicy
from shardcall_server.frontend.workers.session import QUIET_S
from shardcall_worker.v1 import link_pb2

_MIN_TIMED_BYTES = 64 << 10  # a smaller call takes longer to reach the mesh than with any strategy
_MAX_ABANDONED = 4096
_MAX_CALLS = 1024  # that get the result of a trial; others follow the rule until they are compiled again
_NOT_YET = f"the mesh has not been idle for {QUIET_S:g} s"


@dataclass(eq=False)
class _PendingTuning:
    """The calls of one tuning key, until its trial ends.

    Attributes:
        compilation: that of the first of them.
        rule: the entry of the strategy that the kernel's rule chose.
        calls: the calls, or the first of them.
        candidates: the candidates' entries, whose programs are pinned, by strategy.
    """

    compilation: Compilation
    rule: CacheEntry
    calls: set[CallKey] = field(default_factory=set)
    candidates: dict[str, Future[CacheEntry]] = field(default_factory=dict)


class SessionTuner(StrategyPolicy):
    """Starts trials for one session's calls, and gives the calls their results.

    A call whose strategies are worth timing follows the kernel's rule until the mesh has been idle for as long as the
    trial takes; later calls get the result.
    """

    def __init__(self, compiler: ProgramCompiler, autotuner: Autotuner) -> None:
        self._compiler = compiler
        self._table = compiler.table
        self._autotuner = autotuner
        self._pending: dict[TuningKey, _PendingTuning] = {}
        self._abandoned: set[TuningKey] = set()

    def select(self, candidates: link_pb2.Candidates) -> str:
        """Returns the result of an earlier trial, or else the rule's choice."""
        result = self._earlier_result(candidates)
        return result.strategy if result else super().select(candidates)

    def admit(self, compilation: Compilation, entry: CacheEntry) -> CacheEntry:
        """Returns the entry by an earlier trial or by the kernel's rule."""
        check_held(self._compiler.session.launch_lock)
        candidates = compilation.candidates
        assert candidates is not None
        assert compilation.key is not None
        result = self._earlier_result(candidates)
        if result is not None and result.strategy == compilation.command.strategy:
            return _tuned(entry, result)
        key = TuningKey(candidates.tuning_digest)
        if candidates.call_bytes < _MIN_TIMED_BYTES or key in self._abandoned:
            return entry
        pending = self._pending.get(key)
        if pending is None:
            pending = _PendingTuning(compilation, entry)
            if self._autotuner.schedule(self._trial(key, pending)):
                self._pending[key] = pending
        if len(pending.calls) < _MAX_CALLS:
            pending.calls.add(compilation.key)
        return _by_rule(entry, pending, _NOT_YET)

    def _earlier_result(self, candidates: link_pb2.Candidates) -> TuningResult | None:
        key = TuningKey(candidates.tuning_digest)
        return self._autotuner.tuning_cache.get(key, tuple(candidates.strategies))

    def _trial(self, key: TuningKey, pending: _PendingTuning) -> Trial:
        def on_result(result: TuningResult | None, reason: str) -> None:
            if result is not None and not result.is_passing:
                self._autotuner.record(key, result)
            self._settle(key, pending, result, reason)

        compilation = pending.compilation
        assert compilation.candidates is not None
        config = TrialConfig(
            compilation.command.call.kernel,
            tuple(compilation.candidates.strategies),
            self._autotuner.budget_s,
        )
        return Trial(self._compiler.session, config, partial(self._compile, pending), on_result)

    def _compile(self, pending: _PendingTuning, strategy: str) -> Future[CacheEntry]:
        """Compiles a candidate, and pins its program until the trial ends."""
        compilation, rule = pending.compilation, pending.rule
        with self._compiler.session.launch_lock:
            is_there = strategy == compilation.command.strategy and not rule.program.evicted
            if is_there:
                self._table.pin(rule.program)
        if is_there:
            future: Future[CacheEntry] = Future()
            future.set_result(rule)
        else:
            future = self._compiler.compile_candidate(compilation, strategy)
        pending.candidates[strategy] = future
        return future

    def _settle(self, key: TuningKey, pending: _PendingTuning, result: TuningResult | None, reason: str) -> None:
        """Gives every call the strategy of the result; without one, that of the rule, and the reason."""
        with self._compiler.session.launch_lock:
            chosen = _entry_of(pending, result)
            for call in pending.calls:
                if (entry := self._table.peek(call)) is None:  # evicted since
                    continue
                if chosen is not None and result is not None:
                    entry = _tuned(chosen, result, entry.answer)
                else:
                    entry = _by_rule(entry, pending, reason)
                self._table.alias(call, entry)
            del self._pending[key]
            if result is None and len(self._abandoned) < _MAX_ABANDONED:  # another trial would not have one either
                self._abandoned.add(key)
            for compiled in pending.candidates.values():
                compiled.add_done_callback(self._unpin)

    def _unpin(self, compiled: Future[CacheEntry]) -> None:
        if compiled.exception() is None:
            with self._compiler.session.launch_lock:
                self._table.unpin(compiled.result().program)


def _entry_of(pending: _PendingTuning, result: TuningResult | None) -> CacheEntry | None:
    """Returns the entry of a result's strategy, unless its program was refused or evicted."""
    compiled = pending.candidates.get(result.strategy) if result else None
    if compiled is None or not compiled.done() or compiled.exception() is not None:
        return None
    return None if compiled.result().program.evicted else compiled.result()


def _tuned(entry: CacheEntry, result: TuningResult, answer: kernel_pb2.CacheAnswer | None = None) -> CacheEntry:
    """Returns an entry whose plan gives the result of a trial as the reason for its strategy."""
    timings = [
        kernel_pb2.StrategyTiming(strategy=timing.strategy, seconds=timing.seconds, run_count=timing.run_count)
        for timing in result.timings
    ]
    return _explained(entry, result.reason, timings, answer or entry.answer)


def _by_rule(entry: CacheEntry, pending: _PendingTuning, reason: str) -> CacheEntry:
    """Returns an entry whose plan gives the rule as the reason for its strategy, and why no trial chose it."""
    rule = pending.rule.plan.strategy_reason
    return _explained(entry, f"{rule}; not compared: {reason}" if reason else rule, (), entry.answer)


def _explained(
    entry: CacheEntry,
    reason: str,
    timings: Sequence[kernel_pb2.StrategyTiming],
    answer: kernel_pb2.CacheAnswer,
) -> CacheEntry:
    plan = kernel_pb2.Plan()
    plan.CopyFrom(entry.plan)
    plan.strategy_reason = reason
    del plan.strategy_timings[:]
    plan.strategy_timings.extend(timings)
    return CacheEntry(entry.program, plan, answer)
