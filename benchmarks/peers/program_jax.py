"""Programs of arrays with `jax.jit`, on the devices of this process.

    python -m peers.program_jax

``one:NAME`` runs the program NAME of program_cases.py on one device. ``gspmd:NAME`` runs it on all, with its arguments
sharded by rows, as XLA partitions it. ``by_hand:NAME`` runs it in `jax.shard_map`: every device sends the rows at the
edges of its block to its neighbors, and computes its block of the result.

JAX does not shard axes that the devices do not divide. Such arguments are padded at the end and cut in the program, and
results are padded in it, in the memory that it writes anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from harness.answering import Answer, Handler, answer
from peers import jax_job
from peers.program_jobs import ALL_CASES, CaseInputs, arrays_of
from program_cases import DEVICES, Case

_AXIS = "x"


def _padding(rows: int) -> int:
    return -rows % DEVICES


def _padded(xp: Any, a: Any, before: int, after: int) -> Any:
    return xp.pad(a, [(before, after)] + [(0, 0)] * (a.ndim - 1)) if before or after else a


def _iterated(case: Case) -> Callable[..., Any]:
    """Returns the function of the arguments that makes all steps of a program."""
    if not case.steps:
        return lambda *arguments: case.program(jnp, *arguments)
    return lambda *arguments: jax.lax.fori_loop(0, case.steps, lambda _, state: case.program(jnp, *state), arguments)


class JitPrograms(CaseInputs):
    """A program, jitted for one device and for all.

    Args:
        name: the name of the case.
        nbytes: the bytes of a large array.
    """

    def __init__(self, name: str, nbytes: int) -> None:
        super().__init__(name, nbytes)
        mesh = jax.make_mesh((DEVICES,), (_AXIS,), (AxisType.Auto,))
        self._rows = NamedSharding(mesh, PartitionSpec(_AXIS))
        self._complete = NamedSharding(mesh, PartitionSpec())

    def one(self) -> Answer:
        """Runs the program on one device."""
        run, arguments = self._on_one_device
        return self.answer("one", lambda *a: jax.block_until_ready(run(*a)), lambda: arguments, arrays_of)

    def gspmd(self) -> Answer:
        """Runs the program on all devices, as XLA partitions it."""
        run, arguments = self._partitioned
        lengths = [a.shape[0] for a in self.expected]

        def get(result: Any) -> Sequence[np.ndarray[Any, Any]]:
            return [a[:n] for a, n in zip(arrays_of(result), lengths, strict=True)]

        return self.answer("gspmd", lambda *a: jax.block_until_ready(run(*a)), lambda: arguments, get)

    def by_hand(self) -> Answer:
        """Runs the program on all devices, with an exchange of rows by hand."""
        if not self.case.margin:
            return {"error": "is not written by hand"}
        run, arguments = self._exchanging
        rows = self.expected[0].shape[0]
        start = (self.arguments[0].shape[0] - rows) // 2

        def get(result: Any) -> Sequence[np.ndarray[Any, Any]]:
            return [np.asarray(result)[start : start + rows]]

        return self.answer("by_hand", lambda *a: jax.block_until_ready(run(*a)), lambda: arguments, get)

    @cached_property
    def _on_one_device(self) -> tuple[Callable[..., Any], list[Any]]:
        device = jax.devices()[0]
        arguments = [jax.device_put(a, device) if np.ndim(a) else a for a in self.arguments]
        return jax.jit(_iterated(self.case)), jax.block_until_ready(arguments)

    @cached_property
    def _partitioned(self) -> tuple[Callable[..., Any], list[Any]]:
        is_padded = bool(self.case.margin or self.case.steps)
        lengths = [np.shape(a)[:1] for a in self.arguments]
        iterated = _iterated(self.case)

        def function(*arguments: Any) -> Any:
            result = iterated(*(a[: n[0]] if n else a for a, n in zip(arguments, lengths, strict=True)))
            return jax.tree.map(lambda a: _padded(jnp, a, 0, _padding(a.shape[0])), result) if is_padded else result

        arguments = [
            self._put(i, _padded(np, a, 0, _padding(a.shape[0]))) if np.ndim(a) else a
            for i, a in enumerate(self.arguments)
        ]
        return jax.jit(function, out_shardings=self._rows if is_padded else None), arguments

    @cached_property
    def _exchanging(self) -> tuple[Callable[..., Any], list[Any]]:
        """The program with an exchange of rows, and its arguments, of which the shorter ones are centered."""
        case, rows = self.case, self.arguments[0].shape[0]
        is_complete = self.expected[0].shape[0] == rows
        forward = [(i, i + 1) for i in range(DEVICES - 1)]
        backward = [(i + 1, i) for i in range(DEVICES - 1)]

        def on_rows(a: jax.Array, others: Sequence[jax.Array]) -> jax.Array:
            result: jax.Array = case.program(jnp, a, *others)
            return result if result.shape[0] < a.shape[0] else result[case.margin : -case.margin]

        def on_block(block: jax.Array, *others: jax.Array) -> jax.Array:
            margin = case.margin
            before = jax.lax.ppermute(block[-margin:], _AXIS, forward)
            after = jax.lax.ppermute(block[:margin], _AXIS, backward)
            # The block with the rows of its neighbors would be copied, which takes longer than the stencils.
            result = jnp.concatenate(
                [
                    on_rows(jnp.concatenate([before, block[: 2 * margin]]), [a[:margin] for a in others]),
                    on_rows(block, [a[margin:-margin] for a in others]),
                    on_rows(jnp.concatenate([block[-2 * margin :], after]), [a[-margin:] for a in others]),
                ]
            )
            if not is_complete:
                return result
            row = jax.lax.axis_index(_AXIS) * block.shape[0] + jnp.arange(block.shape[0])
            is_edge = (row < margin) | (row >= rows - margin)
            return jnp.where(is_edge[:, None], block, result)

        specs = PartitionSpec(_AXIS)
        function = jax.shard_map(on_block, mesh=self._rows.mesh, in_specs=specs, out_specs=specs)
        arguments = []
        for i, a in enumerate(self.arguments):
            start = (rows - a.shape[0]) // 2
            arguments.append(self._put(i, _padded(np, a, start, rows + _padding(rows) - a.shape[0] - start)))
        return jax.jit(function), arguments

    def _put(self, index: int, a: Any) -> jax.Array:
        sharding = self._complete if index in self.case.complete else self._rows
        return jax.block_until_ready(jax.device_put(a, sharding))  # type: ignore[no-any-return]


def main() -> None:
    """Answers until standard input ends."""
    jax_job.configure()
    programs = lru_cache(maxsize=1)(JitPrograms)

    def handler(name: str, job: Callable[[JitPrograms], Answer]) -> Handler:
        return lambda nbytes: job(programs(name, nbytes))

    jobs = {"one": JitPrograms.one, "gspmd": JitPrograms.gspmd, "by_hand": JitPrograms.by_hand}
    answer({f"{job}:{name}": handler(name, method) for name in ALL_CASES for job, method in jobs.items()})


if __name__ == "__main__":
    main()
