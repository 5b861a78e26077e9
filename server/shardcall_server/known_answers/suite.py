"""The suite of known-answer tests of a process, and the selection of those that vouch for a program."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import jax

from shardcall_server.compilation.keys import Platform
from shardcall_server.compilation.processor import host_processor
from shardcall_server.compilation.resolve import Resolution
from shardcall_server.kernels.core.kernel import Kernel, Problem
from shardcall_server.kernels.elementwise.elementwise import ElementwiseKernel
from shardcall_server.known_answers import elementwise, programs
from shardcall_server.known_answers.known_answer import KnownAnswer

_VERSION = 2  # increased when a test changes: earlier verdicts are void


class Suite:
    """The known-answer tests of this process, in the order in which they run if no call waits for one.

    Args:
        kernels: all kernels, by name.
        platform: the properties of this process that decide the compiled programs.
    """

    def __init__(self, kernels: Mapping[str, Kernel], platform: Platform) -> None:
        self._kernels = kernels
        self._decisive = (platform.jax, platform.flags, platform.device_kind, host_processor())
        local = jax.local_devices()[0]
        device_id = jax.devices().index(local)
        tests = [
            *programs.known_answers(kernels, jax.device_count(), local),
            *elementwise.known_answers(tuple(kernels.values()), device_id),
        ]
        self.known_answers: Mapping[str, KnownAnswer] = {
            known_answer.name: known_answer for known_answer in tests if known_answer.kernels
        }

    def vouching_for(self, resolved: Resolution) -> list[str]:
        """Returns the names of the tests that must pass before the results of a program are returned."""
        parts = resolved.kernel.parts(resolved.problem)
        names = {name for kernel, problem in parts for name in self._vouching_for(kernel, problem)}
        return [name for name in self.known_answers if name in names]

    def _vouching_for(self, kernel: Kernel, problem: Problem) -> list[str]:
        computed = ""
        if isinstance(kernel, ElementwiseKernel):
            computed = elementwise.prefix(kernel.computed_type(problem.operands))
        return [
            known_answer.name
            for known_answer in self.known_answers.values()
            if kernel.name in known_answer.kernels and known_answer.name.startswith(computed)
        ]

    def digest(self, name: str) -> bytes:
        """Returns the key of a test's verdict: a digest of everything that decides it."""
        known_answer = self.known_answers[name]
        parts = [
            *(str(_VERSION), name, *(f"{kernel} {self._kernels[kernel].version}" for kernel in known_answer.kernels)),
            *self._decisive,
            *((str(jax.device_count()), str(jax.process_count())) if known_answer.is_collective else ()),
        ]
        return hashlib.sha256("\0".join(parts).encode()).digest()
