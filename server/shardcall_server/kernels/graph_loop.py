"""Graphs that run several times in one program, with results that become inputs of the next iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding

from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.kernels.blocks import partition_spec
from shardcall_server.kernels.kernel import Program
from shardcall_server.kernels.layout import ArrayType, MeshAxes, Spec, padded_shape
from shardcall_server.kernels.signature import ValueCheck

MOST_ITERATIONS = 1024
"""The most iterations of one launch, which nothing can interrupt."""

TIMES = ValueCheck("times", f"times, the number of iterations of the graph, is not from 1 to {MOST_ITERATIONS:,}")


def check_carried(carried: Sequence[int], inputs: Sequence[ArrayType], results: Sequence[ArrayType]) -> None:
    """Checks which inputs results become.

    Args:
        carried: for each result the index of an input, or -1.
        inputs: the inputs of the graph.
        results: its results.

    Raises:
        CallError: for an index that there is not, or that occurs twice, and for a result of another type.
    """
    if len(carried) != len(results):
        raise _refused(f"has {len(carried)} items and the graph {len(results)} results; give one for each")
    used = [index for index in carried if index != -1]
    if len(set(used)) < len(used) or not all(0 <= index < len(inputs) for index in used):
        raise _refused(
            f"is {shorten(str(tuple(carried)))} and the graph has {len(inputs)} inputs; give the index of one, another "
            "for each result, or -1 for a result that becomes none"
        )
    for number, (index, result) in enumerate(zip(carried, results, strict=True)):
        if index >= 0 and inputs[index] != result:
            raise _refused(
                f"makes result {number}, {shorten(str(result))}, input {index}, which is {shorten(str(inputs[index]))};"
                " give a graph whose result is of the type of the input"
            )


def check_times(times: ArrayType) -> None:
    """Checks the type of the number of iterations.

    Raises:
        CallError: unless it is one integer of 64 bits.
    """
    if times.shape or times.dtype != np.int64:
        raise CallError(
            Reason.INVALID_OPERAND,
            f"times is {times}; give the number of iterations as an int64 without axes",
            field="times",
        )


def looped(
    iteration: Program,
    carried: Sequence[int],
    results: Sequence[ArrayType],
    specs: Sequence[Spec],
    axes: MeshAxes,
    mesh: jax.sharding.Mesh,
) -> Callable[..., tuple[jax.Array, ...]]:
    """Returns a program that runs another one several times.

    Args:
        iteration: the program of one iteration; returns its results, in the specs, and flags.
        carried: for each result the index of the input that it becomes, or -1.
        results: the types of the results.
        specs: the specs of the results.
        axes: the axes of the mesh.
        mesh: the mesh.

    Returns:
        A function of the inputs and the number of iterations; returns the results of the last one, and flags that are
        set if those of any were, the last of them for the number of iterations.
    """
    count = len(results)

    def program(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        *inputs, times = arrays
        placed = [NamedSharding(mesh, partition_spec(spec)) for spec in specs]

        def after(values: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
            operands = list(inputs)
            for index, value in zip(carried, values, strict=True):
                if index >= 0:
                    operands[index] = value
            return iteration(*operands)

        def body(
            _: jax.Array, state: tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]
        ) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
            values, flags = state
            made = after(values)
            kept = tuple(map(lax.with_sharding_constraint, made[:count], placed))
            return kept, tuple(was | flag for was, flag in zip(flags, made[count:], strict=True))

        # What becomes no input is not read before the first iteration has made it.
        first = tuple(
            inputs[index] if index >= 0 else jnp.zeros(padded_shape(kind.shape, spec, axes), kind.dtype)
            for index, kind, spec in zip(carried, results, specs, strict=True)
        )
        flags = (jnp.zeros((), bool),) * (len(jax.eval_shape(after, first)) - count)
        is_refused = (times < 1) | (times > MOST_ITERATIONS)
        values, flags = lax.fori_loop(0, jnp.clip(times, 1, MOST_ITERATIONS), body, (first, flags))
        return (*values, *flags, is_refused)

    return program


def _refused(what: str) -> CallError:
    return CallError(Reason.INVALID_PARAMETER, f"carried {what}", field="carried")
