"""The choices that times decided, remembered from one start of the server to the next."""

from __future__ import annotations

import json
import math
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from shardcall._src.wire import private_files
from shardcall._src.wire.private_files import PrivateFileError
from shardcall_server.frontend.programs.strategies import Choice, Timing

_FILE_NAME = "strategies.json"
_FORMAT = 1
_MAX_CHOICES = 4096
_MAX_FILE_BYTES = 16 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")


class TuningCache:
    """What ``auto`` stands for, by the digest of the key with ``auto`` in it.

    A file in a directory that only this user may write to; servers that share it add to it. What is in a file that is
    damaged, or not this user's, is ignored: it costs timing anew.

    Args:
        directory: where the file is; made where it is missing. Empty for none: nothing outlasts the server.
    """

    def __init__(self, directory: str) -> None:
        self._file = Path(directory, _FILE_NAME) if directory else None
        self._lock = threading.Lock()
        self._tuning_cache: dict[str, Choice] = {}
        try:
            self._tuning_cache = self._read()
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            _warn("the strategies remembered are not used, and are timed anew", error)

    def find(self, digest: str, candidates: tuple[str, ...]) -> Choice | None:
        """What was decided; None where nothing was, or between other candidates."""
        with self._lock:
            choice = self._tuning_cache.get(digest)
        return choice if choice is not None and choice.candidates == candidates else None

    def keep(self, digest: str, choice: Choice) -> None:
        """Remembers a decision; the oldest are forgotten where there are many."""
        with self._lock:
            self._tuning_cache = {**self._tuning_cache, digest: choice}
            with suppress(OSError, ValueError):  # what others have added since; a damaged file is written over
                self._tuning_cache = {**self._read(), **self._tuning_cache}
            for oldest in list(self._tuning_cache)[: max(0, len(self._tuning_cache) - _MAX_CHOICES)]:
                del self._tuning_cache[oldest]
            if self._file is None:
                return
            try:
                private_files.write_file(self._file, json.dumps(_encode(self._tuning_cache)).encode())
            except (OSError, PrivateFileError) as error:
                _warn("the strategy chosen will not be remembered", error)

    def _read(self) -> dict[str, Choice]:
        if self._file is None:
            return {}
        text = private_files.read_file(self._file, _MAX_FILE_BYTES, is_secret=False)
        try:
            return _decode(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
            raise ValueError(f"{_FILE_NAME} is damaged or another program's: {error!r}") from None


def _encode(tuning_cache: dict[str, Choice]) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "choices": {
            digest: {
                "strategy": choice.strategy,
                "candidates": choice.candidates,
                "timings": [[t.strategy, t.seconds, t.run_count] for t in choice.timings],
            }
            for digest, choice in tuning_cache.items()
            if len(choice.timings) > 1  # the rest is worth another try
        },
    }


def _decode(stored: Any) -> dict[str, Choice]:
    if stored["format"] != _FORMAT:
        raise ValueError(f"its format is {stored['format']!r} and this server's is {_FORMAT}")
    return {_digest(digest): _decode_choice(choice) for digest, choice in stored["choices"].items()}


def _digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no digest")
    return text


def _decode_choice(stored: Any) -> Choice:
    candidates = tuple(map(str, stored["candidates"]))
    timings = tuple(Timing(str(name), float(seconds), int(count)) for name, seconds, count in stored["timings"])
    if not timings or not {t.strategy for t in timings} <= set(candidates) or timings[0].strategy != stored["strategy"]:
        raise ValueError("a choice is not among what was timed")
    if not all(0 < t.seconds < math.inf and t.run_count > 0 for t in timings):
        raise ValueError("a time is no time")
    return Choice(timings[0].strategy, candidates, timings)


def _warn(what: str, error: Exception) -> None:
    structlog.get_logger().warning(what, reason=str(error))
