"""Loops and branches, with the arguments of ``jax.lax``.

Functions that they take are traced, as that of `Client.jit`. What a loop carries, any tree of arrays and numbers,
keeps its structure, shapes, element types and sharding. Outside of a traced function they run as one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall.namespace.base import NamespaceBase
from shardcall_core.types.specs import SpecLike


def fori_loop(xp: NamespaceBase, lower: Any, upper: Any, body: Callable[..., Any], init: Any, /) -> Any:
    """Returns the last state of ``state = body(i, state)`` for each i from ``lower`` to below ``upper``.

    Args:
        lower: [] the first i, an integer or an array of one.
        upper: [] the end.
        body: the function of i, int64 [], and the state.
        init: the first state.

    Raises:
        TracingError: if the body returns another structure, shape or element type.
    """
    return _control_flow(xp).fori_loop(lower, upper, body, init)


def while_loop(xp: NamespaceBase, cond: Callable[[Any], Any], body: Callable[[Any], Any], init: Any, /) -> Any:
    """Returns the first state of ``state = body(state)`` for which ``cond(state)`` is false.

    Args:
        cond: a function of the state that returns one bool.
        body: the function of the state.
        init: the first state.

    Raises:
        TracingError: if the body returns another structure, shape or element type.
    """
    return _control_flow(xp).while_loop(cond, body, init)


def scan(
    xp: NamespaceBase,
    f: Callable[..., Any],
    init: Any,
    xs: Any = None,
    /,
    length: int | None = None,
    *,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Returns the last carry of ``carry, y = f(carry, x)`` for each row x of arrays, and all y stacked.

    Args:
        f: the function of the carry and a row of each array.
        init: the first carry.
        xs: the arrays, of equally many rows; None for none.
        length: the number of rows; needed if there are no arrays.
        reverse: whether to begin with the last row.

    Raises:
        TracingError: if f returns a carry of another structure, shape or element type.
    """
    result: tuple[Any, Any] = _control_flow(xp).scan(f, init, xs, length, reverse=reverse)
    return result


def cond(
    xp: NamespaceBase, pred: OperandLike, then: Callable[..., Any], otherwise: Callable[..., Any], /, *operands: Any
) -> Any:
    """Returns the results of one of two functions, of which the other is not computed.

    Args:
        pred: [] the condition.
        then: the function whose results are returned where the condition is true.
        otherwise: the other function; its results have the same structure, shapes and element types.
        operands: the arguments of both.

    Raises:
        TypeError: for a condition of several elements, and for results of another structure or type.
    """
    return _control_flow(xp).cond(pred, then, otherwise, *operands)


def with_spec(xp: NamespaceBase, x: OperandLike, spec: SpecLike, /) -> RemoteArray:
    """Returns an array sharded by a spec, as ``jax.lax.with_sharding_constraint``.

    In a traced function it decides the layout of an intermediate result, which otherwise follows from the operands
    of the function that computes it.

    Args:
        x: [...] the array.
        spec: the mesh axes that shard each axis, such as ``sc.P("x", None)``.

    Raises:
        ShardcallError: for mesh axes that there are not, and more entries than axes of ``x``.
    """
    result: RemoteArray = xp.call("reshard", x, out_specs=[spec])
    return result


def _control_flow(xp: NamespaceBase) -> Any:
    control_flow = getattr(xp._client, "_control_flow", None)
    if control_flow is None:
        raise TypeError("this client traces no functions; use loops and branches of a shardcall.Client")
    return control_flow
