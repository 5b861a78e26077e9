"""The thread that runs trials while nothing else needs the mesh."""

from __future__ import annotations

from collections import deque

from shardcall_core.locks import check_held
from shardcall_server.frontend.autotune.trial import Trial
from shardcall_server.frontend.autotune.tuning_cache import TuningCache
from shardcall_server.frontend.autotune.tuning_result import TuningResult
from shardcall_server.frontend.programs.keys import TuningKey
from shardcall_server.frontend.programs.task_thread import TaskThread
from shardcall_server.frontend.workers.session import QUIET_S

_POLL_S = 0.1
_MAX_SCHEDULED = 1024


class Autotuner(TaskThread[Trial]):
    """Runs trials one after the other.

    Args:
        tuning_cache: earlier results.
        budget_s: the time for the runs of one trial.

    Attributes:
        timed: the number of trials with a result.
    """

    def __init__(self, tuning_cache: TuningCache, budget_s: float) -> None:
        super().__init__("autotuner", _POLL_S)
        self.tuning_cache = tuning_cache
        self.budget_s = budget_s
        self.timed = 0
        self._scheduled: deque[Trial] = deque()
        self._thread.start()

    def schedule(self, trial: Trial) -> bool:
        """Runs a trial when the mesh is idle, unless too many wait for that."""
        with self._changed:
            if len(self._scheduled) >= _MAX_SCHEDULED:
                return False
            self._scheduled.append(trial)
            self._changed.notify()
            return True

    def record(self, key: TuningKey, result: TuningResult) -> None:
        """Keeps the result of a trial."""
        self.tuning_cache.put(key, result)
        self.timed += 1

    def _perform(self, task: Trial) -> None:
        if not task.advance():
            with self._changed:
                self._scheduled.append(task)

    def _has_tasks(self) -> bool:
        check_held(self._lock)
        return bool(self._scheduled)

    def _pop(self) -> Trial | None:
        check_held(self._lock)
        return self._scheduled.popleft() if self._scheduled and _may_begin(self._scheduled[0]) else None


def _may_begin(trial: Trial) -> bool:
    return trial.session.ended or trial.session.idle_s >= QUIET_S
