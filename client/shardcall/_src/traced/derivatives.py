"""Functions whose derivatives the server computes: a traced function becomes one call of the program, transformed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from shardcall._src.traced.inner_trace import InnerTrace, required_leaf
from shardcall._src.traced.trace import Trace
from shardcall._src.traced.traced_array import TracedArray
from shardcall._src.traced.traced_graph import find_dynamic_loop
from shardcall._src.traced.tracing import ActiveTrace, bound_arguments, name_of
from shardcall_core.element_types import is_float, is_inexact
from shardcall_core.graphs.graph import WITHOUT_DERIVATIVE, Node, parameters_of
from shardcall_core.types.arrays import Array
from shardcall_core.types.errors import InvalidParameterError, TracingError
from shardcall_core.types.pytrees import Structure, flatten

Argnums = int | Sequence[int]


class TransformedFunction:
    """A function that becomes one call of a traced function, transformed; called while that one is traced.

    Attributes:
        static: the names of its static arguments.

    Args:
        active: the trace of the calls of this thread.
        function: the function.
    """

    def __init__(self, active: ActiveTrace, function: Callable[..., Any]) -> None:
        functools.update_wrapper(cast(Callable[..., Any], self), function, updated=())
        self.static: frozenset[str] = getattr(function, "_static", frozenset())
        self._active = active
        self._function = function

    def traced_function(self) -> Any:
        """Returns the values that decide the program."""
        return functools.partial(self._function, type(self).__name__)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Returns the results of the transformed function."""
        raise NotImplementedError

    def _inner(self, args: tuple[Any, ...], kwargs: dict[str, Any], positions: Sequence[int] = ()) -> InnerFunction:
        return InnerFunction(self._active, self._function, args, kwargs, positions)


class Checkpoint(TransformedFunction):
    """A function whose intermediate results are computed again for its derivatives."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Returns the results of the function."""
        call = self._inner(args, kwargs)
        node, _ = call.node("checkpoint", ())
        return call.structure.with_leaves(call.outer.add(node, call.types))


class FunctionGradient(TransformedFunction):
    """The gradient of a function.

    Args:
        active: the trace of the calls of this thread.
        function: the function; returns a real scalar, or with ``has_aux`` a pair of it and other results.
        argnums: the positions of the arguments that the gradient is with respect to.
        has_value: whether the result has the function's beside its gradient.
        has_aux: whether the function returns a pair.
    """

    def __init__(
        self, active: ActiveTrace, function: Callable[..., Any], argnums: Argnums, *, has_value: bool, has_aux: bool
    ) -> None:
        super().__init__(active, function)
        self._is_single = not isinstance(argnums, Sequence) or isinstance(argnums, str)
        self._argnums = _positions(argnums, is_single=self._is_single)
        self._has_value = has_value
        self._has_aux = has_aux

    def traced_function(self) -> Any:
        """Returns the values that decide the program."""
        return functools.partial(
            super().traced_function(), self._is_single, self._argnums, self._has_value, self._has_aux
        )

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Returns the gradient, and what the function returns if asked for.

        Raises:
            TracingError: for a function that does not return a real scalar, and arguments without a gradient.
        """
        call = self._inner(args, kwargs, self._argnums)
        _check_loss(call, has_aux=self._has_aux)
        node, used = call.node("value_and_grad", tuple(call.arguments))
        results = call.outer.add(node, (*call.types, *(call.arguments[i].type for i in used)))
        count = len(call.types)
        trees = call.per_argument(dict(zip(used, results[count:], strict=True)))
        gradients = trees[0] if self._is_single else tuple(trees)
        returned = call.structure.with_leaves(results[:count])
        if self._has_value:
            return returned, gradients
        return (gradients, returned[1]) if self._has_aux else gradients


def _positions(argnums: Any, *, is_single: bool) -> tuple[int, ...]:
    """Returns the positions of arguments that ``argnums`` gives.

    Raises:
        InvalidParameterError: for other items than integers, and for none.
    """
    items = (argnums,) if is_single else argnums
    if not items or not all(isinstance(item, int | np.integer) and not isinstance(item, bool) for item in items):
        raise InvalidParameterError(
            f"argnums is {argnums!r}; give the position of an argument, an integer, or several in a tuple",
            field="argnums",
        )
    return tuple(map(int, items))


class _ArgumentDerivative(TransformedFunction):
    """A transformation that takes the arguments of the function as one."""

    def __init__(self, active: ActiveTrace, function: Callable[..., Any]) -> None:
        super().__init__(active, function)
        self.static = frozenset()
        self.__signature__ = inspect.signature(self.__call__)


class ForwardDerivative(_ArgumentDerivative):
    """The results of a function and their derivatives along tangents."""

    def __call__(self, /, primals: Any, tangents: Any) -> Any:
        """Returns the results, and their tangents in the same structure, zeros for those of integers.

        Raises:
            TracingError: for arguments without derivatives, and tangents of other types.
        """
        call = self._inner(tuple(primals), {}, range(len(primals)))
        duals = call.duals(tangents, [call.arguments[i].type for i in call.arguments], call.argument_structures)
        node, used = call.node("jvp", tuple(call.arguments), lambda used: [duals[i] for i in used])
        dual = [leaf_type for leaf_type in call.types if is_inexact(leaf_type.dtype)] if used else []
        outputs = call.outer.add(node, (*call.types, *dual))
        results, of_results = outputs[: len(call.types)], iter(outputs[len(call.types) :])
        zeros_like = call.outer.functions.zeros_like
        leaves = [next(of_results) if used and is_inexact(item.dtype) else zeros_like(item) for item in results]
        return call.structure.with_leaves(results), call.structure.with_leaves(leaves)


class ReverseDerivative(_ArgumentDerivative):
    """The products of cotangents and the derivatives of a function, one for each of its arguments."""

    def __call__(self, /, primals: Any, cotangents: Any) -> Any:
        """Returns the products, in the structure of the arguments.

        Raises:
            TracingError: for arguments without derivatives, and cotangents of other types.
        """
        call = self._inner(tuple(primals), {}, range(len(primals)))
        duals = call.duals(cotangents, call.types, [call.structure])
        dual = [item for item, leaf_type in zip(duals, call.types, strict=True) if is_inexact(leaf_type.dtype)]
        node, used = call.node("vjp", tuple(call.arguments), lambda _: dual)
        results = call.outer.add(node, [call.arguments[i].type for i in used]) if used else ()
        return tuple(call.per_argument(dict(zip(used, results, strict=True))))


def _check_loss(call: InnerFunction, *, has_aux: bool) -> None:
    shape = call.structure
    if has_aux:
        if shape.node_type is not tuple or len(shape.children) != 2:
            raise TracingError(
                f"{call.name} does not return a pair, as it has to with has_aux=True; return (loss, others)"
            )
        shape = shape.children[0]
    if shape.node_type is not None:
        raise TracingError(
            f"{call.name} does not return one number, and only a number has a gradient; return the loss, or with "
            "has_aux=True (loss, others)"
        )
    loss = call.types[0]
    if loss.shape or not is_float(loss.dtype):
        raise TracingError(
            f"{call.name} returns {loss}, and only a real floating-point number has a gradient; return a sum or a "
            "mean, such as np.mean(errors**2)"
        )


class InnerFunction:
    """A call of a function that becomes one call of the trace.

    Attributes:
        name: the name of the function.
        outer: the trace that the call belongs to.
        types: the types of the function's results.
        structure: their structure.
        arguments: the arrays that derivatives are with respect to, by numbers.

    Args:
        active: the trace of the calls of this thread.
        function: the function.
        args: its arguments.
        kwargs: those by name.
        positions: the positions of the arguments that derivatives are with respect to.

    Raises:
        TracingError: for a function that cannot be traced.
    """

    def __init__(
        self,
        active: ActiveTrace,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        positions: Sequence[int],
    ) -> None:
        outer = active.trace
        assert outer is not None
        self.name = name_of(function)
        self.outer: Trace = outer
        self.arguments: dict[int, TracedArray] = {}
        self._inner = InnerTrace(outer)
        self._structures: list[tuple[list[int], Structure]] = []
        bound = bound_arguments(self.name, inspect.signature(function), args, kwargs)
        values = list(bound.args)
        if len({position + len(values) * (position < 0) for position in positions}) < len(positions):
            raise InvalidParameterError(
                f"argnums is {tuple(positions)}, of which two are one of the {len(values)} arguments of {self.name}; "
                "give each once",
                field="argnums",
            )
        for position in positions:
            if not -len(values) <= position < len(values):
                raise InvalidParameterError(
                    f"argnums has {position}, and {self.name} was called with {len(values)} arguments by position; "
                    "give positions of these",
                    field="argnums",
                )
            values[position] = self._with_respect_to(position, values[position])
        self._results, self.structure = self._inner.run(active, function, values, bound.kwargs)
        self.types = tuple(result.type for result in self._results)

    @property
    def argument_structures(self) -> list[Structure]:
        """The structures of the arguments that derivatives are with respect to."""
        return [structure for _, structure in self._structures]

    def node(
        self,
        transform: str,
        wrt: Sequence[int],
        duals: Callable[[Sequence[int]], Sequence[TracedArray]] = lambda _: (),
    ) -> tuple[Node, list[int]]:
        """Returns the call, and those of the arguments that the results depend on.

        Args:
            transform: the transformation, as the server's kernel ``graph`` has it.
            wrt: the arguments that derivatives are with respect to.
            duals: returns the tangents or cotangents for the arguments that the results depend on.

        Raises:
            TracingError: if the results depend on the arguments by a loop that has no derivative.
        """
        graph, inputs = self._inner.graph(self._results)
        operands = [self._operand(i) for i in inputs]
        at = {self._inner.inputs[i].leaf: position for position, i in enumerate(inputs)}
        used = [i for i in wrt if i in at]
        if (line := find_dynamic_loop(graph, self._inner.bodies, [at[i] for i in used])) is not None:
            raise TracingError(
                f"{self.name} cannot be differentiated, because of the loop at {line}: {WITHOUT_DERIVATIVE}"
            )
        more = duals(used) if used else ()
        values: dict[str, Any] = {"graph": graph}
        if used or not wrt:
            values["transform"] = transform
        if used:
            values["wrt"] = tuple(at[i] for i in used)
        return Node(
            "graph", tuple(item._traced.value for item in (*operands, *more)), parameters_of([*values.items()])
        ), used

    def _operand(self, index: int) -> TracedArray:
        """Returns the array of the outer trace that an input of the graph is."""
        array = self._inner.operands[index]
        return self.arguments[required_leaf(self._inner.inputs[index])] if array is None else array

    def per_argument(self, leaves: Mapping[int, TracedArray]) -> list[Any]:
        """Returns trees of the structures of the arguments, with zeros for those without a leaf."""
        zeros_like = self.outer.functions.zeros_like
        return [
            structure.with_leaves([leaves[i] if i in leaves else zeros_like(self.arguments[i]) for i in numbers])
            for numbers, structure in self._structures
        ]

    def duals(self, trees: Any, leaf_types: Sequence[Array], structures: Sequence[Structure]) -> list[TracedArray]:
        """Returns tangents or cotangents.

        Args:
            trees: one tree for each structure; itself the tree if there is one structure and it is no sequence.
            leaf_types: the types of all leaves.
            structures: the structures.

        Raises:
            TracingError: for others than these.
        """
        leaves, structure = flatten(trees)
        expected = [item for part in structures for item in part.paths("")]
        present = structure.children if structure.children and structure not in structures else (structure,)
        arrays = [self.outer.value(leaf, "a tangent") for leaf in leaves]
        if list(present) != list(structures) or len(expected) != len(arrays):
            raise TracingError(
                f"the tangents or cotangents of {self.name} have another structure than what they belong to; give one "
                "array for each array"
            )
        for array, leaf_type in zip(arrays, leaf_types, strict=True):
            if array.type != leaf_type and is_inexact(leaf_type.dtype):
                raise TracingError(
                    f"a tangent or cotangent of {self.name} is {array.type} for {leaf_type}; give one of that type"
                )
        return arrays

    def _with_respect_to(self, position: int, tree: Any) -> Any:
        leaves, structure = flatten(tree)
        numbers, tracers = [], []
        for path, leaf in zip(structure.paths(f"argument {position}"), leaves, strict=True):
            array = self.outer.value(leaf, path)
            if not is_inexact(array.dtype):
                raise TracingError(
                    f"{path} of {self.name} is {array.type}, which has no derivatives; give floating-point numbers, or "
                    "leave the argument out of argnums"
                )
            numbers.append(len(self.arguments))
            self.arguments[numbers[-1]] = array
            tracers.append(self._inner.argument(numbers[-1], array.type))
            tracers[-1]._argument = path
        self._structures.append((numbers, structure))
        return structure.with_leaves(tracers)
