"""Tuning results, kept from one start of the server to the next."""

from __future__ import annotations

import math
from typing import Any

from shardcall_server.frontend.autotune.tuning_result import StrategyTiming, TuningResult
from shardcall_server.frontend.programs.digest_file import DigestFile
from shardcall_server.frontend.programs.keys import TuningKey


class TuningCache(DigestFile[TuningKey, TuningResult]):
    """The strategies that "auto" stands for."""

    FILE_NAME = "tuning.json"
    FIELD = "results"
    NOT_READ = "the tuning results on disk are not used, and strategies are timed anew"
    NOT_WRITTEN = "the strategy chosen will not be kept on disk"

    def get(self, key: TuningKey, candidates: tuple[str, ...]) -> TuningResult | None:
        """Returns the result of a key, if it is one among these candidates."""
        result = self._values.get(key)
        return result if result is not None and result.candidates == candidates else None

    def _is_lasting(self, value: TuningResult) -> bool:
        return len(value.timings) > 1  # the rest is worth another trial

    def _encode(self, value: TuningResult) -> Any:
        return {
            "strategy": value.strategy,
            "candidates": value.candidates,
            "timings": [[t.strategy, t.seconds, t.run_count] for t in value.timings],
        }

    def _decode(self, content: Any) -> TuningResult:
        candidates = tuple(map(str, content["candidates"]))
        timings = tuple(
            StrategyTiming(str(name), float(seconds), int(count)) for name, seconds, count in content["timings"]
        )
        if not timings or not {t.strategy for t in timings} <= {*candidates}:
            raise ValueError("a strategy that was timed is not among the candidates")
        if timings[0].strategy != content["strategy"]:
            raise ValueError("the strategy chosen is not the first that was timed")
        if not all(0 < t.seconds < math.inf and t.run_count > 0 for t in timings):
            raise ValueError("a time is not positive and finite")
        return TuningResult(timings[0].strategy, candidates, timings)
