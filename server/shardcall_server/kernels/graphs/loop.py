"""Graphs that run several times in one program, with results that become inputs of the next iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.functions.signature import ValueCheck
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, padded_shape
from shardcall_server.kernels.core.blocks import partition_spec
from shardcall_server.kernels.core.kernel import Program
from shardcall_server.kernels.graphs.plan import MAX_WORK_BYTES

MAX_ITERATIONS = 1024
"""The maximum number of iterations, in one launch, of a loop whose number of iterations is not known before."""

_State = tuple[jax.Array, tuple[jax.Array, ...], tuple[jax.Array, ...]]


@dataclass(frozen=True)
class GraphLoop:
    """A loop.

    Attributes:
        carried: for each result of the graph the index of the operand that it becomes, or -1.
        condition: the result that is true while there is another iteration; -1 for none.
        count: the number of iterations; 0 if it is the last operand.
    """

    carried: tuple[int, ...]
    condition: int = -1
    count: int = 0

    @property
    def min_iterations(self) -> int:
        """The minimum number of iterations: results that become no operand have no value before the first."""
        return 1 if -1 in self.carried else 0


def iteration_limit(work_bytes: int) -> int:
    """Returns the maximum number of iterations in one launch.

    Args:
        work_bytes: the bytes that an iteration reads and writes.
    """
    return max(1, min(MAX_ITERATIONS, MAX_WORK_BYTES // max(1, work_bytes)))


def times_check(loop: GraphLoop, work_bytes: int) -> ValueCheck:
    """Returns the check of the number of iterations of a loop that is a part of a program."""
    limit = iteration_limit(work_bytes)
    return ValueCheck(
        "times",
        f"times, the number of iterations of a loop in a program, is not from {loop.min_iterations} to {limit:,}; make "
        "it the outermost loop, which runs in slices, or compute less in an iteration",
    )


def check_count(loop: GraphLoop) -> None:
    """Checks the parameters of a loop.

    Raises:
        CallError: for a condition or a number of iterations without a loop, and a negative number.
    """
    if loop.count < 0 or (loop.count and not loop.carried):
        raise CallError(
            Reason.INVALID_PARAMETER, f"count={loop.count}; give carried, and 0 or more iterations", field="count"
        )
    if not -1 <= loop.condition < max(len(loop.carried), 0) or (loop.condition >= 0 and loop.count):
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"condition={loop.condition}; give the index of a result of a loop without count, or -1",
            field="condition",
        )


def check_carried(loop: GraphLoop, used: int, inputs: Sequence[ArrayType], results: Sequence[ArrayType]) -> None:
    """Checks the operands that results become.

    Args:
        loop: the loop.
        used: the number of inputs of the graph.
        inputs: the types of the operands, without the number of iterations.
        results: the types of the results of the graph.

    Raises:
        CallError: for an index out of range, or that occurs twice, for an operand that is neither an input of the graph
            nor the first value of a result, for a result of another type, and for a condition that is not one bool.
    """
    carried = loop.carried
    if len(carried) != len(results):
        raise _refused(f"has {len(carried)} items and the graph {len(results)} results; give one for each")
    used_by = [index for index in carried if index != -1]
    if len(set(used_by)) < len(used_by) or not all(0 <= index < len(inputs) for index in used_by):
        raise _refused(
            f"is {shorten(str(carried))} and the graph has {len(inputs)} inputs; give the index of one, another "
            "for each result, or -1 for a result that becomes none"
        )
    if unread := set(range(used, len(inputs))) - set(used_by):
        raise _refused(f"has no result for operand {min(unread)}, which the graph does not read; leave it out")
    for number, (index, result) in enumerate(zip(carried, results, strict=True)):
        if index >= 0 and inputs[index] != result:
            raise _refused(
                f"makes result {number}, {shorten(str(result))}, input {index}, which is {shorten(str(inputs[index]))};"
                " give a graph whose result is of the type of the input"
            )
    if (at := loop.condition) >= 0 and (results[at].shape or results[at].dtype != np.bool_ or carried[at] < 0):
        raise _refused(
            f"and condition={at} make {shorten(str(results[at]))} the condition; give one bool that is carried"
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
    loop: GraphLoop,
    results: Sequence[ArrayType],
    specs: Sequence[Spec],
    axes: MeshAxes,
    mesh: jax.sharding.Mesh,
    max_iterations: int | None,
) -> Callable[..., tuple[jax.Array, ...]]:
    """Returns a program that runs another one several times.

    Args:
        iteration: the program of one iteration; returns its results, in the specs, and flags.
        loop: the loop.
        results: the types of the results.
        specs: the specs of the results.
        axes: the axes of the mesh.
        mesh: the mesh.
        max_iterations: the maximum number of iterations; None for a slice, which takes it as its last argument.

    Returns:
        A function of the operands; returns the results of the last iteration, and flags that are set if those of any
        were. If the number of iterations is an operand, the last flag is for that. A slice returns behind them the
        number of iterations that are left, and of those that it ran.
    """
    count = len(results)
    placed = [NamedSharding(mesh, partition_spec(spec)) for spec in specs]

    def program(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        *inputs, limit = arrays if max_iterations is None else (*arrays, jnp.int64(max_iterations))
        times = inputs.pop() if not loop.count else jnp.int64(loop.count)

        def after(values: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
            operands = list(inputs)
            for index, value in zip(loop.carried, values, strict=True):
                if index >= 0:
                    operands[index] = value
            return iteration(*operands)

        def body(state: _State) -> _State:
            ran, values, flags = state
            computed = after(values)
            kept = tuple(map(lax.with_sharding_constraint, computed[:count], placed))
            return ran + 1, kept, tuple(was | flag for was, flag in zip(flags, computed[count:], strict=True))

        def goes_on(values: Sequence[jax.Array]) -> jax.Array:
            return values[loop.condition] if loop.condition >= 0 else jnp.ones((), bool)

        # A result that becomes no input is not read before the first iteration has computed it.
        first = tuple(
            inputs[index] if index >= 0 else jnp.zeros(padded_shape(result.shape, spec, axes), result.dtype)
            for index, result, spec in zip(loop.carried, results, specs, strict=True)
        )
        flags = (jnp.zeros((), bool),) * (len(jax.eval_shape(after, first)) - count)
        state: _State = (jnp.int64(0), first, flags)
        if loop.count:  # a constant, so that JAX can compute derivatives
            _, values, flags = lax.fori_loop(0, loop.count, lambda _, carry: body(carry), state)
            return (*values, *flags)
        end = jnp.minimum(times, limit)
        ran, values, flags = lax.while_loop(lambda carry: (carry[0] < end) & goes_on(carry[1]), body, state)
        left = jnp.where(goes_on(values), jnp.maximum(times - ran, 0), 0)
        if max_iterations is None:
            return (*values, *flags, times < loop.min_iterations, jnp.stack([left, ran]))
        return (*values, *flags, (times < loop.min_iterations) | (left > 0))

    return program


def _refused(what: str) -> CallError:
    return CallError(Reason.INVALID_PARAMETER, f"carried {what}", field="carried")
