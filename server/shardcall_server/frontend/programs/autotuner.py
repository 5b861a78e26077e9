"""Timing the strategies that ``auto`` may stand for, while nothing waits for the mesh."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait

import structlog

from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.programs.cache_entry import CachedProgram, CacheEntry
from shardcall_server.frontend.programs.strategies import Choice, Turns
from shardcall_server.frontend.programs.tuning_cache import TuningCache
from shardcall_server.frontend.workers.session import MeshSession, SessionEndedError
from shardcall_worker.v1 import link_pb2, measure_pb2

_MAX_RUNS, _TURN_S = 5, 0.02  # of one turn; a call that comes meanwhile waits for it
_COMPILE_S = 1.0  # the longest wait for the other candidates' compilation, unless the rule's choice took half of more
_QUIET_S = 0.05  # how long the mesh must have been idle to be used for what nobody waits for
_POLL_S = 0.1
_MAX_LATER = 1024
_END_S = 5.0
MESH_BUSY = "mesh busy"
_NO_TIME = "a run takes long beside --max-timing-s"
_MORE = 7  # how often the budget is had again where it was too little for three runs of each


class Trial:
    """The candidates of one call: compiled, and timed in turns.

    Args:
        session: the mesh.
        kernel: whose they are.
        candidates: the strategies, the rule's choice first.
        compiled: compiles a candidate.
        rule_s: what compiling the rule's choice took.
        budget_s: what the runs of all candidates may take together while calls wait.
        settle: told the choice once it is made, or None when calls should wait no longer; whether that is final; and
            why there is no choice, empty where that tells a caller nothing.
    """

    def __init__(
        self,
        session: MeshSession,
        kernel: str,
        candidates: tuple[str, ...],
        compiled: Callable[[str], Future[CacheEntry]],
        rule_s: float,
        budget_s: float,
        settle: Callable[[Choice | None, bool, str], None],
    ) -> None:
        self.session = session
        self._kernel = kernel
        self._candidates = candidates
        self._compiled = compiled
        self._patience_s = max(_COMPILE_S, 2 * rule_s)
        self._budget_s = budget_s
        self._settle = settle
        self._steps = self._measure()

    def advance(self) -> bool:
        """Goes on until the choice is made or cannot be, and returns True; or until a call wants the mesh."""
        log = structlog.get_logger().bind(kernel=self._kernel)
        try:
            why = next(self._steps)
        except StopIteration:
            return True
        except (CallError, SessionEndedError, _CandidateGoneError) as error:
            log.info("strategies are not timed", candidates=self._candidates, reason=str(error))
        except Exception:
            log.exception("strategies could not be timed", candidates=self._candidates)
        else:
            self._settle(None, False, why)
            return False
        self._end()
        self._settle(None, True, "")
        return True

    def _measure(self) -> Iterator[str]:
        """Yields where a call wants the mesh, or would wait too long: which of them it is."""
        turns, able = Turns(self._candidates, self._budget_s), dict[str, CachedProgram]()
        compiling = {name: self._compiled(name) for name in self._candidates}
        while wait(compiling.values(), self._patience_s).not_done:
            yield "the other strategies are being compiled"
        for strategy, compiled in compiling.items():
            try:
                able[strategy] = compiled.result().program
            except CallError as error:  # it does not fit, or the compiler refuses it
                self._raise_if_lost(error)
                turns.drop(strategy)
        more = iter(range(_MORE))
        while (name := turns.next()) is not None or (next(more, None) is not None and turns.extend(self._budget_s)):
            if name is None:  # the rest when the mesh is idle again, and nobody waits for it
                self._end()
                yield _NO_TIME
                continue
            while (answer := self._send(able[name])) is None:
                self._end()
                yield MESH_BUSY
            try:
                measured = answer.result().measured
            except CallError as error:
                self._raise_if_lost(error)
                turns.drop(name)
            else:
                turns.add(name, measured.run_seconds)
        self._end()
        choice = turns.choice()
        log = structlog.get_logger()
        if choice is None:
            log.info("strategies are not timed", kernel=self._kernel, candidates=self._candidates, reason=_NO_TIME)
        else:
            log.info("strategy chosen", kernel=self._kernel, strategy=choice.strategy, reason=choice.reason)
        self._settle(choice, True, _NO_TIME)

    def _send(self, candidate: CachedProgram) -> Future[link_pb2.WorkerMessage] | None:
        """Has the mesh run a candidate; None where something else is under way."""
        measure = measure_pb2.Measure(key_digest=candidate.key, max_runs=_MAX_RUNS, max_seconds=_TURN_S)
        with self.session.launch_lock:
            if candidate.evicted:
                raise _CandidateGoneError("other programs took its place")
            return self.session.command_if_idle(link_pb2.FrontEndMessage(measure=measure))

    def _raise_if_lost(self, error: CallError) -> None:
        """Raises an error with which the mesh has ended: it says nothing of which strategy is quickest."""
        if error.reason is Reason.MESH_RESTARTED or self.session.ended:
            raise error

    def _end(self) -> None:
        self.session.notify(link_pb2.FrontEndMessage(discard_trial_blocks=measure_pb2.DiscardTrialBlocks()))


class Autotuner:
    """Makes one measurement after the other, on a thread of its own.

    Args:
        tuning_cache: what was decided before.
        budget_s: what the runs of one measurement may take.

    Attributes:
        timed: how many choices were made so.
    """

    def __init__(self, tuning_cache: TuningCache, budget_s: float) -> None:
        self.tuning_cache = tuning_cache
        self.budget_s = budget_s
        self.timed = 0
        self._changed = threading.Condition()
        self._at_work = False
        self._now: Trial | None = None
        self._later: deque[Trial] = deque()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="measure", daemon=True)
        self._thread.start()

    def take_now(self, measurement: Trial) -> bool:
        """Begins a measurement that calls wait for, unless the mesh is at work or others are being timed."""
        with self._changed:
            if self._at_work or self._now is not None or not measurement.session.idle:
                return False
            self._now = measurement
            self._changed.notify()
            return True

    def take_later(self, measurement: Trial) -> bool:
        """Makes a measurement when the mesh is idle, unless too many are waiting for that."""
        with self._changed:
            if len(self._later) >= _MAX_LATER:
                return False
            self._later.append(measurement)
            self._changed.notify()
            return True

    def close(self) -> None:
        """Ends the thread after what it is doing; the mesh has ended before."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(_END_S)

    def _run(self) -> None:
        while (measurement := self._next()) is not None:
            done = measurement.advance()
            with self._changed:
                self._at_work = False
                if not done:
                    self._later.append(measurement)

    def _next(self) -> Trial | None:
        with self._changed:
            while not self._ended:
                chosen, self._now = self._now, None
                if chosen is None and self._later and self._may_begin(self._later[0]):
                    chosen = self._later.popleft()
                if chosen is not None:
                    self._at_work = True
                    return chosen
                self._changed.wait(_POLL_S if self._later else None)
        return None

    def _may_begin(self, measurement: Trial) -> bool:
        return measurement.session.ended or measurement.session.idle_s >= _QUIET_S


class _CandidateGoneError(Exception):
    """The mesh was told to forget a candidate while it was being timed."""
