"""The client's methods for transformations of functions that run as one program."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from shardcall._src.traced.client_tracing import ClientTracing
from shardcall._src.traced.derivatives import (
    Argnums,
    Checkpoint,
    ForwardDerivative,
    FunctionGradient,
    ReverseDerivative,
    Transformed,
)
from shardcall._src.traced.vectorized import Vectorized
from shardcall_core.types.pytrees import flatten
from shardcall_core.types.tracebacks import shortened


class ClientDerivatives(ClientTracing):
    """Transforms functions: the server applies the transformations of JAX to their programs."""

    @shortened
    def value_and_grad(
        self, function: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False
    ) -> Callable[..., Any]:
        """Returns a function that returns what a function returns and its gradient, as one program.

            loss, gradients = client.value_and_grad(loss_of)(params, batch)

        Args:
            function: the function, as `jit` takes it, or one that `jit` returned. It returns a real floating-point
                number, the loss.
            argnums: the position of the argument that the gradient is with respect to, or several; the leaves are
                floating-point or complex.
            has_aux: True if the function returns a pair of the loss and other results.

        Returns:
            A `shardcall.TracedFunction`, which returns a pair: what the function returns, and the gradient in the
            structure of the argument, of several arguments a tuple.
        """
        return self._transformed(FunctionGradient(self._active, function, argnums, has_value=True, has_aux=has_aux))

    @shortened
    def grad(self, function: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False) -> Callable[..., Any]:
        """Returns a function that returns the gradient of a function, as one program.

        Args:
            function: the function, as of `value_and_grad`.
            argnums: the position of the argument that the gradient is with respect to, or several.
            has_aux: True if the function returns a pair of the loss and other results.

        Returns:
            A `shardcall.TracedFunction`, which returns the gradient; with ``has_aux`` a pair of it and the others.
        """
        return self._transformed(FunctionGradient(self._active, function, argnums, has_value=False, has_aux=has_aux))

    @shortened
    def jvp(self, function: Callable[..., Any], primals: Any, tangents: Any) -> Any:
        """Returns the results of a function, and their derivatives along tangents.

        Args:
            function: the function, as `jit` takes it.
            primals: its arguments, a sequence.
            tangents: the direction, of the structure and the types of the arguments.

        Returns:
            A pair: the results, and their derivatives in the same structure.
        """
        return self._transformed(ForwardDerivative(self._active, function))(tuple(primals), tuple(tangents))

    @shortened
    def vjp(self, function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
        """Returns the results of a function, and a function of their cotangents.

        The second one computes the results again, in its own program.

        Args:
            function: the function, as `jit` takes it.
            primals: its arguments.

        Returns:
            A pair: the results, and a function that takes cotangents of the structure and the types of the results, and
            returns a tuple of the products of these and the derivatives for each argument.
        """
        product = self._transformed(ReverseDerivative(self._active, function))
        leaves, structure = flatten(primals)
        # The caller may assign to elements of its arguments before it has cotangents.
        kept = structure.with_leaves([copy.copy(leaf) for leaf in leaves])
        return self.jit(function)(*kept), lambda cotangents: product(kept, cotangents)

    @shortened
    def checkpoint(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function whose intermediate results are computed again for derivatives, not kept in memory.

        Args:
            function: the function, as `jit` takes it.

        Returns:
            A `shardcall.TracedFunction` with the same results.
        """
        return self._transformed(Checkpoint(self._active, function))

    @shortened
    def vmap(self, function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
        """Returns a function that is computed for every index of an axis of its arguments at once, as one program.

            gradients = client.vmap(client.grad(loss_of), in_axes=(None, 0))(params, examples)

        The results are those of a loop over the indices, stacked. The mapped axes are not sharded; the others are as
        the function's calls shard them.

        Args:
            function: the function of one index, as `jit` takes it. It may be a transformed one, and may be transformed.
            in_axes: the axis of all arguments, or a tuple with the axis of each; None for an argument that every index
                gets complete. In place of an axis, a tree of the upper structure of the argument has one for each part.
                Arguments that are only given by name are mapped along axis 0, static ones never.
            out_axes: the axis of all results that the values of the indices are stacked along, or a tree of these of
                the upper structure of what the function returns.

        Returns:
            A `shardcall.TracedFunction`. It raises an `InvalidParameterError` for axes that there are not, axes of
            different lengths, and if no argument is mapped.
        """
        return self._transformed(Vectorized(self._active, function, in_axes, out_axes))

    def _transformed(self, function: Transformed) -> Callable[..., Any]:
        made: Callable[..., Any] = self.jit(function, static=function.static)
        return made
