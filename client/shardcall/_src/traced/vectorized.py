"""Functions that are computed for every index of an axis at once."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shardcall._src.traced.derivatives import TransformedFunction
from shardcall._src.traced.inner_trace import InnerTrace
from shardcall._src.traced.trace import Trace
from shardcall._src.traced.traced_array import TracedArray
from shardcall._src.traced.tracing import ActiveTrace, bound_arguments, name_of
from shardcall_core.graphs.graph import Node, parameters_of
from shardcall_core.types.arrays import Array
from shardcall_core.types.errors import InvalidParameterError
from shardcall_core.types.pytrees import Structure, flatten


@dataclass(frozen=True)
class _MappedArgument:
    """An argument that is mapped.

    Attributes:
        path: its name in errors.
        array: the complete array.
        axis: the axis, 0 or more.
    """

    path: str
    array: TracedArray
    axis: int

    @property
    def size(self) -> int:
        """The length of the axis."""
        return self.array.shape[self.axis]


class VectorizedFunction(TransformedFunction):
    """A function that is computed for every index of an axis of its arguments at once.

    Args:
        active: the trace of the calls of this thread.
        function: the function of one index.
        in_axes: the axis of each argument; None for one that every index gets complete.
        out_axes: the axis of each result that its values for all indices are stacked along.
    """

    def __init__(self, active: ActiveTrace, function: Callable[..., Any], in_axes: Any, out_axes: Any) -> None:
        super().__init__(active, function)
        self._name = name_of(function)
        self._signature = inspect.signature(function)
        self._in_axes = in_axes
        self._out_axes = out_axes
        _check_axes(in_axes, "in_axes")
        _check_axes(out_axes, "out_axes")

    def traced_function(self) -> Any:
        """Returns the values that decide the program."""
        return functools.partial(super().traced_function(), self._in_axes, self._out_axes)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Returns the results for all indices.

        Raises:
            TracingError: for a function that cannot be traced.
            InvalidParameterError: for axes that arguments or results do not have, or that are of different lengths.
        """
        outer = self._active.trace
        assert outer is not None
        bound = bound_arguments(self._name, self._signature, args, kwargs)
        leaves, structure = flatten((bound.args, bound.kwargs))
        axes = self._axes_of_arguments(bound, structure)
        paths = _paths(bound)
        mapped = {
            i: _mapped(self._name, path, outer.value(leaf, path), axis)
            for i, (path, leaf, axis) in enumerate(zip(paths, leaves, axes, strict=True))
            if axis is not None
        }
        size = _size(self._name, [*mapped.values()])
        inner = InnerTrace(outer)
        values = [_at_one_index(inner, i, mapped[i]) if i in mapped else leaf for i, leaf in enumerate(leaves)]
        results, shape = inner.run(self._active, self._function, *structure.with_leaves(values))
        return shape.with_leaves(self._added(outer, inner, results, shape, mapped, size))

    def _added(
        self,
        outer: Trace,
        inner: InnerTrace,
        results: Sequence[TracedArray],
        structure: Structure,
        mapped: dict[int, _MappedArgument],
        size: int,
    ) -> tuple[TracedArray, ...]:
        """Adds the call of all indices to the outer trace; returns its results."""
        axes = _expanded(self._out_axes, structure, f"out_axes of vmap of {self._name}", "result")
        out_axes = [self._out_axis(*item) for item in zip(structure.paths("result"), results, axes, strict=True)]
        graph, inputs = inner.graph(results)
        operands, in_axes = [], []
        for i in inputs:
            array, leaf = inner.operands[i], inner.inputs[i].leaf
            operands.append(mapped[leaf].array if array is None and leaf is not None else array)
            in_axes.append(-1 if leaf is None else mapped[leaf].axis)
        parameters = {"graph": graph, "in_axes": tuple(in_axes), "out_axes": tuple(out_axes), "size": size}
        types = [
            Array((*item.shape[:axis], size, *item.shape[axis:]), item.dtype)
            for item, axis in zip(results, out_axes, strict=True)
        ]
        values = tuple(array._traced.value for array in operands if array is not None)
        return outer.add(Node("vmap", values, parameters_of([*parameters.items()])), types)

    def _axes_of_arguments(self, bound: inspect.BoundArguments, structure: Structure) -> Iterator[int | None]:
        """Yields the axis of each leaf of the arguments."""
        positional, named = structure.children
        axes = self._in_axes
        if isinstance(axes, tuple | list):
            if len(axes) != len(bound.args):
                raise InvalidParameterError(
                    f"in_axes of vmap of {self._name} has {len(axes)} items and the call {len(bound.args)} arguments; "
                    "give one for each, or one for all",
                    field="in_axes",
                )
        else:
            axes = [axes] * len(bound.args)
        names = [*bound.arguments]
        where = f"in_axes of vmap of {self._name}"
        for i, (axis, child) in enumerate(zip(axes, positional.children, strict=True)):
            name = names[i] if i < len(names) else f"argument {i}"
            argument_axes = None if name in self.static else axis
            yield from _expanded(argument_axes, child, where, name)
        for name, child in zip(map(str, named.keys), named.children, strict=True):
            yield from _expanded(None if name in self.static else 0, child, where, name)

    def _out_axis(self, path: str, result: TracedArray, axis: int | None) -> int:
        count = result.ndim + 1
        if axis is None or not -count <= axis < count:
            raise InvalidParameterError(
                f"out_axes of vmap of {self._name} has {axis} for {path}, which is {result.type} at one index; give an "
                f"axis from {-count} to {count - 1}",
                field="out_axes",
            )
        return axis % count


def _paths(bound: inspect.BoundArguments) -> list[str]:
    """Returns the names of the leaves of arguments."""
    names = [*bound.signature.parameters]
    paths: list[str] = []
    for i, value in enumerate(bound.args):
        paths += flatten(value)[1].paths(names[i] if i < len(names) else f"argument {i}")
    for name in sorted(bound.kwargs):
        paths += flatten(bound.kwargs[name])[1].paths(name)
    return paths


def _mapped(name: str, path: str, array: TracedArray, axis: int) -> _MappedArgument:
    if not -array.ndim <= axis < array.ndim:
        raise InvalidParameterError(
            f"vmap of {name} maps {path} along axis {axis}, and it is {array.type}, of {array.ndim} axes; give another "
            "axis in in_axes, or None for an argument that is not mapped",
            field="in_axes",
        )
    return _MappedArgument(path, array, axis % array.ndim)


def _size(name: str, mapped: Sequence[_MappedArgument]) -> int:
    """Returns the length of the mapped axes.

    Raises:
        InvalidParameterError: if there is none, and for different ones.
    """
    if not mapped:
        raise InvalidParameterError(
            f"vmap of {name} maps no array; give at least one argument with an axis in in_axes", field="in_axes"
        )
    sizes: dict[int, list[str]] = {}
    for argument in mapped:
        sizes.setdefault(argument.size, []).append(f"axis {argument.axis} of {argument.path}, {argument.array.type}")
    if len(sizes) > 1:
        listed = "; ".join(f"{size}: {', '.join(which)}" for size, which in sizes.items())
        raise InvalidParameterError(
            f"vmap of {name} maps axes of different lengths, {listed}; give axes of one length, or None for what is "
            "not mapped",
            field="in_axes",
        )
    return next(iter(sizes))


def _at_one_index(inner: InnerTrace, index: int, mapped: _MappedArgument) -> TracedArray:
    shape, axis = mapped.array.shape, mapped.axis
    tracer = inner.argument(index, Array((*shape[:axis], *shape[axis + 1 :]), mapped.array.dtype))
    tracer._argument = mapped.path
    return tracer


def _check_axes(axes: Any, field: str) -> None:
    leaves, _ = flatten(axes)
    for leaf in leaves:
        try:
            operator.index(leaf)
        except TypeError:
            raise InvalidParameterError(
                f"{field} of vmap has {leaf!r}; give an integer, None, or a tree of these", field=field
            ) from None


def _expanded(prefix: Any, structure: Structure, where: str, path: str) -> Iterator[int | None]:
    """Yields the axis of each leaf of a tree, of which a prefix has one for each part.

    Args:
        prefix: the axes.
        structure: the structure of the tree.
        where: the name of the prefix in errors.
        path: the name of the tree there.

    Raises:
        InvalidParameterError: for another structure.
    """
    leaves, prefix_structure = flatten(prefix)
    yield from _matched(prefix_structure, iter(leaves), structure, where, path)


def _matched(
    prefix_structure: Structure, leaves: Iterator[Any], structure: Structure, where: str, path: str
) -> Iterable[int | None]:
    if prefix_structure.node_type is None or prefix_structure.node_type is type(None):
        axis = None if prefix_structure.node_type is not None else operator.index(next(leaves))
        return [axis] * structure.leaf_count
    if prefix_structure.node_type is not structure.node_type or prefix_structure.keys != structure.keys:
        raise InvalidParameterError(
            f"{where} has another structure than {path}; give an axis for all of it, or a tree that begins as it does",
            field=where.partition(" ")[0],
        )
    axes: list[int | None] = []
    for key, child, part in zip(prefix_structure.keys, prefix_structure.children, structure.children, strict=True):
        axes += _matched(child, leaves, part, where, f"{path}[{key!r}]")
    return axes
