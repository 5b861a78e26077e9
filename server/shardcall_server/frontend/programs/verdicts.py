"""The verdicts of known-answer tests, kept from one start of the server to the next."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from shardcall._src.wire import private_files
from shardcall._src.wire.private_files import PrivateFileError

FILE_NAME = "known_answers.json"
_FORMAT = 1
_MAX_VERDICTS = 4096
_MAX_FILE_BYTES = 16 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Verdict:
    """What a known-answer test has shown.

    Attributes:
        known_answer: the test's name.
        failures: what was wrong, by kernel; empty where nothing was.
        untested: the kernels whose results were not compared: a verdict that has any is not kept in a file.
    """

    known_answer: str
    failures: Mapping[str, str]
    untested: tuple[str, ...] = ()


class Verdicts:
    """What tests have shown, by the digest of all that decides it.

    A file in a directory that only this user may write to; servers that share it add to it. What is in a file that is
    damaged, or not this user's, is ignored: it costs running the tests anew.

    Args:
        directory: where the file is; made where it is missing. Empty for none: nothing outlasts the server.
    """

    def __init__(self, directory: str) -> None:
        self._file = Path(directory, FILE_NAME) if directory else None
        self._lock = threading.Lock()
        self._verdicts: dict[str, Verdict] = {}
        try:
            self._verdicts = self._read()
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            _warn("the verdicts of known-answer tests are not used, and the tests run anew", error)

    def find(self, digest: str) -> Verdict | None:
        """The verdict of a digest; None where there is none."""
        with self._lock:
            return self._verdicts.get(digest)

    def look_again(self, digest: str) -> Verdict | None:
        """As `find`, also for what other servers have added since."""
        with self._lock:
            with suppress(OSError, ValueError):  # reported when the server started, or damaged since
                self._verdicts = {**self._read(), **self._verdicts}
            return self._verdicts.get(digest)

    def keep(self, digest: str, verdict: Verdict) -> None:
        """Keeps a verdict; the oldest are forgotten where there are many."""
        with self._lock:
            self._verdicts = {**self._verdicts, digest: verdict}
            with suppress(OSError, ValueError):  # what others have added since; a damaged file is written over
                self._verdicts = {**self._read(), **self._verdicts}
            for oldest in list(self._verdicts)[: max(0, len(self._verdicts) - _MAX_VERDICTS)]:
                del self._verdicts[oldest]
            if self._file is None:
                return
            try:
                private_files.write_file(self._file, json.dumps(_encode(self._verdicts)).encode())
            except (OSError, PrivateFileError) as error:
                _warn("the verdict of a known-answer test will not be kept", error)

    def _read(self) -> dict[str, Verdict]:
        if self._file is None:
            return {}
        text = private_files.read_file(self._file, _MAX_FILE_BYTES, is_secret=False)
        try:
            return _decode(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"{FILE_NAME} is damaged or another program's: {error!r}") from None


def _encode(verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "verdicts": {
            digest: {"known_answer": verdict.known_answer, "failures": dict(verdict.failures)}
            for digest, verdict in verdicts.items()
        },
    }


def _decode(stored: Any) -> dict[str, Verdict]:
    if stored["format"] != _FORMAT:
        raise ValueError(f"its format is {stored['format']!r} and this server's is {_FORMAT}")
    return {_digest(digest): _decode_verdict(verdict) for digest, verdict in stored["verdicts"].items()}


def _digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no digest")
    return text


def _decode_verdict(stored: Any) -> Verdict:
    failures = {str(kernel): str(detail) for kernel, detail in stored["failures"].items()}
    return Verdict(str(stored["known_answer"]), failures)


def _warn(what: str, error: Exception) -> None:
    structlog.get_logger().warning(what, reason=str(error))
