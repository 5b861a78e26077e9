"""Trials: the candidates of a call, compiled and timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass

import structlog

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.autotune.rounds import Rounds
from shardcall_server.frontend.autotune.tuning_result import TuningResult
from shardcall_server.frontend.programs.cache_entry import CachedProgram, CacheEntry
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.workers.session import MeshSession, SessionEndedError
from shardcall_worker.v1 import link_pb2, measure_pb2

_MAX_RUNS, _ROUND_S = 5, 0.02  # of one candidate in one round; a call that comes meanwhile waits for it
_COMPILE_S = 1.0  # the longest wait for candidates before other trials continue
# Of the budget, if it was too little for three runs of each candidate. When strategies that take 100 ms were judged by
# single runs, "auto" lost 4 of the 60 cases of the benchmark; with the extensions it loses 0 to 2.
_MAX_EXTENSIONS = 7
_NO_TIME = "a run takes long beside --max-timing-s"


@dataclass(frozen=True)
class TrialConfig:
    """Candidates and time of a trial.

    Attributes:
        kernel: the kernel's name.
        candidates: the strategies, the rule's choice first.
        budget_s: the time for the runs of all candidates together, without a pause.
    """

    kernel: str
    candidates: tuple[str, ...]
    budget_s: float


class Trial:
    """Compiles and times the candidates of a call, whenever the mesh has nothing else to do.

    Args:
        config: the candidates and their time.
        on_result: called at the end with the result, or None; and with the reason for None, empty if it is of
            no use to a caller.
    """

    def __init__(
        self,
        session: MeshSession,
        config: TrialConfig,
        compile_candidate: Callable[[str], Future[CacheEntry]],
        on_result: Callable[[TuningResult | None, str], None],
    ) -> None:
        self.session = session
        self._config = config
        self._compile = compile_candidate
        self._on_result = on_result
        self._steps = self._run()

    def advance(self) -> bool:
        """Continues until the end or until a call needs the mesh; returns whether the trial has ended."""
        log = structlog.get_logger().bind(kernel=self._config.kernel, candidates=self._config.candidates)
        try:
            next(self._steps)
        except StopIteration:
            return True
        except (CallError, SessionEndedError, _CandidateEvictedError) as error:
            log.info("strategies are not timed", reason=str(error))
        except Exception:
            log.exception("strategies could not be timed")
        else:
            return False
        self._discard_blocks()
        self._on_result(None, "")
        return True

    def _run(self) -> Iterator[None]:
        """Yields at each pause: a call needs the mesh, or candidates are being compiled."""
        config = self._config
        rounds, programs = Rounds(config.candidates, config.budget_s), dict[str, CachedProgram]()
        compiling = {name: self._compile(name) for name in config.candidates}
        while wait(compiling.values(), _COMPILE_S).not_done:
            yield
        for strategy, compiled in compiling.items():
            try:
                programs[strategy] = compiled.result().program
            except CallError as error:  # it does not fit, or the compiler refuses it
                self._raise_if_mesh_ended(error)
                rounds.drop(strategy)
        extensions = iter(range(_MAX_EXTENSIONS))
        while (name := rounds.next()) is not None or (
            next(extensions, None) is not None and rounds.extend(config.budget_s)
        ):
            if name is None:  # the rest follows when the mesh is idle again
                self._discard_blocks()
                yield
                continue
            while (answer := self._send(programs[name])) is None:
                self._discard_blocks()
                yield
            try:
                measured = answer.result().measured
            except CallError as error:
                self._raise_if_mesh_ended(error)
                rounds.drop(name, is_passing=error.reason is Reason.OUT_OF_DEVICE_MEMORY)
            else:
                rounds.add(name, measured.run_seconds)
        self._discard_blocks()
        result = rounds.result()
        log = structlog.get_logger().bind(kernel=config.kernel)
        if result is None:
            log.info("strategies are not timed", candidates=config.candidates, reason=_NO_TIME)
        else:
            log.info("strategy chosen", strategy=result.strategy, reason=result.reason)
        self._on_result(result, _NO_TIME)

    def _send(self, candidate: CachedProgram) -> Promise[link_pb2.WorkerMessage] | None:
        """Makes the mesh run a candidate; returns None if another command is under way."""
        measure = measure_pb2.Measure(key_digest=candidate.key, max_runs=_MAX_RUNS, max_seconds=_ROUND_S)
        with self.session.launch_lock:
            if candidate.evicted:
                raise _CandidateEvictedError("other programs replaced a candidate in the cache")
            return self.session.command_if_idle(link_pb2.FrontEndMessage(measure=measure))

    def _raise_if_mesh_ended(self, error: CallError) -> None:
        """Raises an error with which the mesh has ended: it says nothing about the strategy's speed."""
        if error.reason is Reason.MESH_RESTARTED or self.session.ended:
            raise error

    def _discard_blocks(self) -> None:
        self.session.notify(link_pb2.FrontEndMessage(discard_trial_blocks=measure_pb2.DiscardTrialBlocks()))


class _CandidateEvictedError(Exception):
    """A candidate was evicted while it was being timed."""
