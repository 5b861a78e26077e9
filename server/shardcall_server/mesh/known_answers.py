"""Known-answer tests as commands of the link, compiled, launched and compared on different threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardcall_server.compilation.resolve import Resolution
from shardcall_server.known_answers.known_answer import Launch, Outcome
from shardcall_server.known_answers.suite import Suite
from shardcall_worker.v1 import known_answer_pb2

RunApart = Callable[[str, Sequence[str]], known_answer_pb2.KnownAnswerRun | None]


class KnownAnswerTests:
    """Compiles and runs the known-answer tests of this process.

    Args:
        suite: the tests.
        run_apart: runs a test of some kernels in another process; returns None if there is none.
    """

    def __init__(self, suite: Suite, run_apart: RunApart) -> None:
        self._suite = suite
        self._run_apart = run_apart
        self._compiled: dict[str, Launch] = {}
        self._runs: dict[str, known_answer_pb2.KnownAnswerRun] = {}  # that have run apart

    def describe(self) -> list[known_answer_pb2.KnownAnswer]:
        """Returns the descriptions of the tests for the front end."""
        return [
            known_answer_pb2.KnownAnswer(name=test.name, kernels=test.kernels, digest=self._suite.digest(test.name))
            for test in self._suite.known_answers.values()
        ]

    def vouching_for(self, resolved: Resolution) -> list[str]:
        """Returns the names of the tests that vouch for a program."""
        return self._suite.vouching_for(resolved)

    def compile(self, name: str) -> known_answer_pb2.KnownAnswerCompiled:
        """Compiles a test, which takes about a second; runs it, too, if another process can."""
        test = self._suite.known_answers[name]
        if (run := self._run_apart(name, test.kernels)) is not None:
            self._runs[name] = run
        else:
            self._compiled[name] = test.compile()
        return known_answer_pb2.KnownAnswerCompiled()

    def launch(self, name: str) -> Callable[[], known_answer_pb2.KnownAnswerRun]:
        """Launches a compiled test; returns a function that waits for its results and compares them."""
        if (run := self._runs.pop(name, None)) is not None:
            return lambda: run
        finish = self._compiled.pop(name)()
        return lambda: run_of(finish())


def run_of(outcome: Outcome) -> known_answer_pb2.KnownAnswerRun:
    """Returns the outcome of a test as a message."""
    failures = [
        known_answer_pb2.KnownAnswerFailure(kernel=kernel, detail=detail) for kernel, detail in outcome.failures.items()
    ]
    return known_answer_pb2.KnownAnswerRun(failures=failures, untested=outcome.untested)
