"""Transposes that products take as they read their operands.

XLA:CPU computes the product of a transposed matrix and a vector element by element, with a stride: ``a.T @ y`` of
64 MiB of float64 takes 45 ms as two calls in one program, and 5 as a product of the transposed operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardcall_core.graphs.graph import Node, NodeParameter, parameters_of

Axes = tuple[int, ...]
"""For each axis of the transposed array, the axis of the array."""


def folds_transposes(node: Node, operand: int) -> bool:
    """Returns True for a product whose operand may be transposed as it is read."""
    is_set = operand < len(node.in_specs) and node.in_specs[operand] is not None
    return node.kernel in _FOLDED and not is_set


def with_transposed_operand(node: Node, operand: int, axes: Axes) -> Node | None:
    """Returns a product that takes an operand before its transposition; None where the product cannot.

    Args:
        node: the product of the transposed operand, for which `folds_transposes` is True.
        operand: the index of the operand.
        axes: the transposition.
    """
    parameters = _FOLDED[node.kernel](dict(node.parameters), operand, axes)
    return None if parameters is None else node._replace(parameters=parameters_of(tuple(parameters.items())))


def _of_matmul(parameters: dict[str, NodeParameter], operand: int, axes: Axes) -> dict[str, NodeParameter] | None:
    last = len(axes) - 1
    if axes != (*range(last - 1), last, last - 1):
        return None
    name = ("transpose_lhs", "transpose_rhs")[operand]
    return {**parameters, name: not parameters.get(name, False)}


def _of_einsum(parameters: dict[str, NodeParameter], operand: int, axes: Axes) -> dict[str, NodeParameter] | None:
    subscripts = parameters.get("subscripts")
    if not isinstance(subscripts, str) or "." in subscripts:
        return None
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if operand >= len(terms) or len(terms[operand]) != len(axes):
        return None
    terms[operand] = "".join(terms[operand][axes.index(axis)] for axis in range(len(axes)))
    return {**parameters, "subscripts": f"{','.join(terms)}{arrow}{right}"}


_Fold = Callable[[dict[str, NodeParameter], int, Axes], dict[str, NodeParameter] | None]

_FOLDED: Mapping[str, _Fold] = {"matmul": _of_matmul, "einsum": _of_einsum}
