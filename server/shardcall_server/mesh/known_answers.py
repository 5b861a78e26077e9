"""Known-answer tests as commands of the link, compiled, launched and compared on different threads."""

from __future__ import annotations

from collections.abc import Callable

from shardcall_server.compilation.resolve import Resolution
from shardcall_server.known_answers.known_answer import Launch
from shardcall_server.known_answers.suite import Suite
from shardcall_worker.v1 import known_answer_pb2


class KnownAnswerTests:
    """Compiles and runs the known-answer tests of this process."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._compiled: dict[str, Launch] = {}

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
        """Compiles a test, which takes about a second."""
        self._compiled[name] = self._suite.known_answers[name].compile()
        return known_answer_pb2.KnownAnswerCompiled()

    def launch(self, name: str) -> Callable[[], known_answer_pb2.KnownAnswerRun]:
        """Launches a compiled test; returns a function that waits for its results and compares them."""
        finish = self._compiled.pop(name)()

        def run() -> known_answer_pb2.KnownAnswerRun:
            outcome = finish()
            failures = [
                known_answer_pb2.KnownAnswerFailure(kernel=kernel, detail=detail)
                for kernel, detail in outcome.failures.items()
            ]
            return known_answer_pb2.KnownAnswerRun(failures=failures, untested=outcome.untested)

        return run
