"""Programs of arrays by a client, traced and eager, and with NumPy.

    python -m peers.program_client ADDRESS

``numpy:NAME`` runs the program NAME of program_cases.py in this process. ``jit_1:NAME`` and ``jit_8:NAME`` run it as a
traced program on one and on 8 devices, and ``eager_1:NAME`` and ``eager_8:NAME`` call by call. Arrays are on the mesh,
sharded by rows, and stay there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

import shardcall as sc
from harness.answering import Answer, Handler, answer
from peers.program_jobs import ALL_CASES, CaseInputs, arrays_of, copies, run_numpy
from program_cases import DEVICES, Case

_EXECUTIONS = 3


def _traced(client: sc.Client, case: Case) -> Callable[..., Any]:
    """Returns the function of the arguments that runs a program as one, with its steps."""
    # The functions refer to no attributes of objects, and are not traced at every call.
    xp, program, steps = client.xp, case.program, case.steps
    if not steps:
        return client.jit(lambda *arguments: program(xp, *arguments))  # type: ignore[no-any-return]
    if case.is_writing:
        step = client.jit(lambda state: program(xp, *(a.copy() for a in state)))
    else:
        step = client.jit(lambda state: program(xp, *state))
    return lambda *arguments: step.repeat(arguments, times=steps)


class ClientPrograms(CaseInputs):
    """A program of a client.

    Args:
        client: the client.
        name: the name of the case.
        nbytes: the bytes of a large array.
    """

    def __init__(self, client: sc.Client, name: str, nbytes: int) -> None:
        super().__init__(name, nbytes)
        self._client = client
        self._traced = _traced(client, self.case)
        self._placed: dict[int, list[Any]] = {}

    def numpy(self) -> Answer:
        """Runs the program with NumPy."""
        return self.answer("numpy", lambda *a: run_numpy(self.case, *a), self._taking(self.arguments))

    def jit(self, devices: int) -> Answer:
        """Runs the traced program; of one without steps also returns the server's times of the kernel alone."""
        placed = self._on_mesh(devices)

        def run(*arguments: Any) -> Any:
            result = self._traced(*arguments)
            self._client.synchronize()
            return result

        timed = self.answer(f"jit_{devices}", run, lambda: placed, arrays_of)
        return timed if self.case.steps else {**timed, "execute": self._execute_s(placed)}

    def eager(self, devices: int) -> Answer:
        """Runs the program call by call."""
        taking = self._taking(self._on_mesh(devices))
        client = self._client

        def run(*arguments: Any) -> Any:
            return run_numpy(self.case, *arguments, xp=client.xp, wait=client.synchronize)

        def arguments() -> Sequence[Any]:
            taken = taking()
            client.synchronize()
            return taken

        return self.answer(f"eager_{devices}", run, arguments, arrays_of)

    def _taking(self, arguments: Sequence[Any]) -> Callable[[], Sequence[Any]]:
        """Returns a function that returns the arguments of a run."""
        return partial(copies, arguments) if self.case.is_writing else lambda: arguments

    def _on_mesh(self, devices: int) -> list[Any]:
        """Returns the arguments on a mesh."""
        if devices not in self._placed:
            mesh = sc.Mesh(x=devices)
            self._placed[devices] = [
                self._client.put(a, mesh=mesh, spec=sc.P() if i in self.case.complete else sc.P("x"))
                if np.ndim(a)
                else a
                for i, a in enumerate(self.arguments)
            ]
        return self._placed[devices]

    def _execute_s(self, placed: list[Any]) -> list[float]:
        """Returns the seconds of the kernel alone in some calls of the traced program."""
        assert isinstance(self._traced, sc.TracedFunction)
        leaves, objects, structure = self._traced._leaves(tuple(placed), {})
        program, operands, _trace = self._traced._program(leaves, objects, structure)
        (stage,) = program.stages
        values = [operands[value.number] for value in stage.operands]
        results = [self._client.call("graph", *values, keep=True, **stage.parameters) for _ in range(_EXECUTIONS)]
        return [result.timing.execute for result in results]


def main() -> None:
    """Answers until standard input ends."""
    client = sc.connect(sys.argv[1])
    programs = lru_cache(maxsize=1)(lambda name, nbytes: ClientPrograms(client, name, nbytes))

    def handler(name: str, job: Callable[[ClientPrograms], Answer]) -> Handler:
        return lambda nbytes: job(programs(name, nbytes))

    handlers = {f"numpy:{name}": handler(name, ClientPrograms.numpy) for name in ALL_CASES}
    for name in ALL_CASES:
        for devices in (1, DEVICES):
            handlers[f"jit_{devices}:{name}"] = handler(name, lambda p, n=devices: p.jit(n))  # type: ignore[misc]
            handlers[f"eager_{devices}:{name}"] = handler(name, lambda p, n=devices: p.eager(n))  # type: ignore[misc]
    answer(handlers)


if __name__ == "__main__":
    main()
