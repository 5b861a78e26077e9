"""Verdicts of known-answer tests, kept from one start of the server to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardcall_server.frontend.programs.digest_file import DigestFile


@dataclass(frozen=True)
class Verdict:
    """The outcome of a known-answer test.

    Attributes:
        known_answer: the test's name.
        failures: descriptions of wrong results, by kernel.
        untested: the kernels whose results were not compared: a verdict that has any is not kept in a file.
    """

    known_answer: str
    failures: Mapping[str, str]
    untested: tuple[str, ...] = ()


class Verdicts(DigestFile[str, Verdict]):
    """Verdicts, by the digest of everything that decides them."""

    FILE_NAME = "known_answers.json"
    FIELD = "verdicts"
    NOT_READ = "the verdicts of known-answer tests are not used, and the tests run anew"
    NOT_WRITTEN = "the verdict of a known-answer test will not be kept"

    def get(self, digest: str) -> Verdict | None:
        """Returns the verdict of a digest."""
        return self._values.get(digest)

    def get_shared(self, digest: str) -> Verdict | None:
        """As `get`, also for verdicts that other servers have added since."""
        with self._lock:
            self._merge_file()
            return self._values.get(digest)

    def _encode(self, value: Verdict) -> Any:
        return {"known_answer": value.known_answer, "failures": dict(value.failures)}

    def _decode(self, content: Any) -> Verdict:
        failures = {str(kernel): str(detail) for kernel, detail in content["failures"].items()}
        return Verdict(str(content["known_answer"]), failures)
