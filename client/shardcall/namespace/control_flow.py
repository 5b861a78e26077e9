"""Functions that depend on values of arrays on the mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.types.pytrees import flatten
from shardcall.namespace.base import NamespaceBase, type_of


class ControlFlowNamespace(NamespaceBase):
    """Branches."""

    def cond(
        self, pred: OperandLike, then: Callable[..., Any], otherwise: Callable[..., Any], /, *operands: Any
    ) -> Any:
        """Returns the results of one of two functions, as ``jax.lax.cond``; both are computed.

        Args:
            pred: [] the condition.
            then: the function whose results are returned where the condition is true.
            otherwise: the other function; its results have the same structure, shapes and element types.
            operands: the arguments of both.

        Raises:
            TypeError: for a condition of several elements, and for results of another structure or type.
        """
        if type_of(pred).shape:
            raise TypeError(
                f"the condition of cond is of shape {type_of(pred).shape}; give one bool, such as any(), or use where"
            )
        (ours, structure), (others, other) = flatten(then(*operands)), flatten(otherwise(*operands))
        if structure != other:
            raise TypeError("the functions of cond return different structures; let both return the same")
        for one, another in zip(ours, others, strict=True):
            if type_of(one) != type_of(another):
                raise TypeError(
                    f"the functions of cond return {type_of(one)} and {type_of(another)}; let both return the same type"
                )
        return structure.with_leaves([self.where(pred, *each) for each in zip(ours, others, strict=True)])
