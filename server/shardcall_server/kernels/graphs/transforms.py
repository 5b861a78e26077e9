"""Transformations of graphs: derivatives, and programs that keep no intermediate results for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import jax

from shardcall_core.call_error import CallError, Reason, did_you_mean, shorten
from shardcall_core.element_types import is_float, is_inexact
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, padded_shape
from shardcall_server.kernels.core.blocks import fit
from shardcall_server.kernels.core.differentiation import differentiation
from shardcall_server.kernels.core.kernel import Program

_Item = TypeVar("_Item")

TRANSFORMS = ("value_and_grad", "jvp", "vjp", "checkpoint")
"""The names of the transformations.

With x the inputs of the graph, y its results, and w the inputs that ``wrt`` names:

- ``value_and_grad`` maps x to y and the derivative of the first result, a real scalar, with respect to each of w;
- ``jvp`` maps x and a tangent for each of w to y and the tangent of each floating-point or complex result;
- ``vjp`` maps x and a cotangent for each floating-point or complex result to the product for each of w;
- ``checkpoint`` maps x to y; its derivative computes intermediate results again instead of keeping them.
"""


def check_transform(transform: str, wrt: Sequence[int], input_count: int) -> None:
    """Checks the name of a transformation, and the inputs that it is with respect to.

    Raises:
        CallError: for an unknown name, and for inputs that do not exist or are named twice.
    """
    if transform not in ("", *TRANSFORMS):
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"transform={shorten(transform)!r}; {did_you_mean(transform, TRANSFORMS)}",
            field="transform",
        )
    needs = transform in ("value_and_grad", "jvp", "vjp")
    if needs != bool(wrt) or len(set(wrt)) < len(wrt) or not all(0 <= i < input_count for i in wrt):
        allowed = f"different indices of its {input_count} inputs" if needs else "none"
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"wrt={shorten(str(tuple(wrt)))} of a graph with transform={transform!r}; give {allowed}",
            field="wrt",
        )


def transformed_types(
    transform: str, wrt: Sequence[int], inputs: Sequence[ArrayType], results: Sequence[ArrayType]
) -> tuple[tuple[ArrayType, ...], tuple[ArrayType, ...]]:
    """Returns the types of the operands and of the results of a transformed graph.

    Raises:
        CallError: for inputs without derivatives, and for the gradient of a result that is not a real scalar.
    """
    inner, outer = tuple(inputs), tuple(results)
    for i in wrt:
        if not is_inexact(inner[i].dtype):
            raise _refused(
                f"has input {i}, {inner[i]}, which has no derivatives; give floating-point or complex numbers"
            )
    if transform == "value_and_grad" and (outer[0].shape or not is_float(outer[0].dtype)):
        raise _refused(
            f"has the first result {outer[0]}, and only a real number has a gradient; return a sum or a mean"
        )
    return _arranged(transform, wrt, inner, outer, outer)


def check_dual_operands(expected: Sequence[ArrayType], present: Sequence[ArrayType]) -> None:
    """Checks the operands of a transformed graph: tangents and cotangents behind its inputs.

    Raises:
        CallError: for operands of other types than the expected ones.
    """
    if len(expected) != len(present):
        raise CallError(
            Reason.OPERAND_COUNT,
            f"the transformed graph takes {len(expected)} operands and {len(present)} came; give its inputs, and "
            "behind them tangents or cotangents",
            field="operands",
        )
    for i, (expected_type, duals) in enumerate(zip(expected, present, strict=True)):
        if expected_type != duals:
            raise CallError(
                Reason.INVALID_OPERAND,
                f"operand {i} is {shorten(str(duals))}, and it is a tangent or cotangent of "
                f"{shorten(str(expected_type))}; give one of that type",
                field="operands",
            )


def transformed_specs(
    transform: str,
    wrt: Sequence[int],
    inputs: Sequence[Spec],
    results: Sequence[Spec],
    result_types: Sequence[ArrayType],
) -> tuple[tuple[Spec, ...], tuple[Spec, ...]]:
    """Returns the specs of the operands and of the results of a transformed graph.

    Args:
        transform: the transformation.
        wrt: the inputs that it is with respect to.
        inputs: the specs of the inputs.
        results: those of the results.
        result_types: the types of the results.
    """
    return _arranged(transform, wrt, tuple(inputs), tuple(results), result_types)


def transformed(
    program: Program,
    transform: str,
    wrt: Sequence[int],
    result_types: Sequence[ArrayType],
    specs: Sequence[Spec],
    axes: MeshAxes,
) -> Program:
    """Returns the transformed program.

    Args:
        program: of the inputs; returns the results, and flags.
        transform: the transformation; none returns the program.
        wrt: the inputs that it is with respect to.
        result_types: the types of the program's results.
        specs: the specs of these.
        axes: the axes of the mesh.
    """
    if not transform:
        return program
    if transform == "checkpoint":
        return jax.checkpoint(program)
    count = len(result_types)
    dual = [i for i, result_type in enumerate(result_types) if is_inexact(result_type.dtype)]

    def of_wrt(inputs: Sequence[jax.Array]) -> Callable[..., tuple[list[jax.Array], tuple[jax.Array, ...]]]:
        def function(*active: jax.Array) -> tuple[list[jax.Array], tuple[jax.Array, ...]]:
            operands = list(inputs)
            for i, array in zip(wrt, active, strict=True):
                operands[i] = array
            results = program(*operands)
            return [results[i] for i in dual], results

        return function

    def value_and_grad(*inputs: jax.Array) -> tuple[jax.Array, ...]:
        function = of_wrt(inputs)

        def loss(*active: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
            results = function(*active)[1]
            return results[0], results

        active = [inputs[i] for i in wrt]
        (_, results), gradients = jax.value_and_grad(loss, tuple(range(len(wrt))), has_aux=True)(*active)
        return (*results[:count], *gradients, *results[count:])

    def jvp(*operands: jax.Array) -> tuple[jax.Array, ...]:
        inputs, tangents = operands[: len(operands) - len(wrt)], operands[len(operands) - len(wrt) :]
        active = [inputs[i] for i in wrt]
        _, of_results, results = jax.jvp(of_wrt(inputs), active, list(tangents), has_aux=True)
        return (*results[:count], *of_results, *results[count:])

    def vjp(*operands: jax.Array) -> tuple[jax.Array, ...]:
        inputs, cotangents = operands[: len(operands) - len(dual)], operands[len(operands) - len(dual) :]
        _, product, results = jax.vjp(of_wrt(inputs), *(inputs[i] for i in wrt), has_aux=True)
        # The padding of an operand may hold other values than 0.
        clean = [
            fit(fit(cotangent, result_types[i].shape), padded_shape(result_types[i].shape, specs[i], axes))
            for i, cotangent in zip(dual, cotangents, strict=True)
        ]
        return (*product(clean), *results[count:])

    function = {"value_and_grad": value_and_grad, "jvp": jvp, "vjp": vjp}[transform]

    def differentiated(*operands: jax.Array) -> tuple[jax.Array, ...]:
        with differentiation(on=True):
            return function(*operands)

    return differentiated


def _arranged(
    transform: str,
    wrt: Sequence[int],
    inputs: tuple[_Item, ...],
    results: tuple[_Item, ...],
    result_types: Sequence[ArrayType],
) -> tuple[tuple[_Item, ...], tuple[_Item, ...]]:
    """Arranges items, such as types or specs, for the operands and for the results of a transformed graph.

    Args:
        transform: the transformation.
        wrt: the inputs that it is with respect to.
        inputs: the items of the inputs of the graph.
        results: the items of its results.
        result_types: the types of the results.
    """
    dual = tuple(item for item, result_type in zip(results, result_types, strict=True) if is_inexact(result_type.dtype))
    of_inputs = tuple(inputs[i] for i in wrt)
    if transform == "value_and_grad":
        return inputs, (*results, *of_inputs)
    if transform == "jvp":
        return (*inputs, *of_inputs), (*results, *dual)
    if transform == "vjp":
        return (*inputs, *dual), of_inputs
    return inputs, results


def _refused(what: str) -> CallError:
    return CallError(Reason.INVALID_PARAMETER, f"graph {what}", field="graph")
