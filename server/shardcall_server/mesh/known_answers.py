"""Known-answer tests as commands of the link: compiled on one thread, launched on another, compared on a third."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from shardcall_server.compilation.disk_cache import DiskCache
from shardcall_server.compilation.resolve import Resolved
from shardcall_server.known_answers.known_answer import Launch
from shardcall_server.known_answers.suite import Suite
from shardcall_worker.v1 import known_answer_pb2


class KnownAnswers:
    """The suite of this process, and what of it is compiled and has not run.

    Args:
        suite: the tests.
        disk: keeps compiled programs on disk, None where that is not done. Not these: what is kept is their verdict.
    """

    def __init__(self, suite: Suite, disk: DiskCache | None) -> None:
        self._suite = suite
        self._disk = disk
        self._compiled: dict[str, Launch] = {}

    def describe(self) -> list[known_answer_pb2.KnownAnswer]:
        """The tests as the front end is told of them."""
        return [
            known_answer_pb2.KnownAnswer(name=known.name, kernels=known.kernels, digest=self._suite.digest(known.name))
            for known in self._suite.known_answers.values()
        ]

    def vouching_for(self, resolved: Resolved) -> list[str]:
        """The names of the tests that vouch for a program."""
        return self._suite.vouching_for(resolved)

    def compile(self, name: str) -> known_answer_pb2.KnownAnswerCompiled:
        """Makes a test ready to be launched; takes a second."""
        with self._disk.disabled() if self._disk else nullcontext():
            self._compiled[name] = self._suite.known_answers[name].compile()
        return known_answer_pb2.KnownAnswerCompiled()

    def launch(self, name: str) -> Callable[[], known_answer_pb2.KnownAnswerRun]:
        """Launches a compiled test; returns what waits for its results and compares them."""
        finish = self._compiled.pop(name)()

        def run() -> known_answer_pb2.KnownAnswerRun:
            outcome = finish()
            failures = [
                known_answer_pb2.KnownAnswerFailure(kernel=kernel, detail=detail)
                for kernel, detail in outcome.failures.items()
            ]
            return known_answer_pb2.KnownAnswerRun(failures=failures, untested=outcome.untested)

        return run
