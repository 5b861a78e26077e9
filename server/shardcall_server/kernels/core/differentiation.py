"""Values with the derivative of another computation, and a flag for programs that are differentiated.

A kernel moves elements as integers and compares them by their bits, and JAX takes the derivative of both to be 0. In a
program that is differentiated, the numbers themselves are moved too, for the derivative.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

_IS_DIFFERENTIATED = ContextVar("is_differentiated", default=False)


def is_differentiated() -> bool:
    """Returns True while a program that is differentiated is being traced."""
    return _IS_DIFFERENTIATED.get()


@contextmanager
def differentiation(*, on: bool) -> Iterator[None]:
    """Sets whether the programs that the body traces are differentiated."""
    before = _IS_DIFFERENTIATED.set(on)
    try:
        yield
    finally:
        _IS_DIFFERENTIATED.reset(before)


# A primitive, and no `jax.custom_jvp`: JAX drops the rule of that one where it splits the body of a loop into what is
# known and what is linear, so that derivatives of derivatives through loops would be those of the value.
_with_derivative_p = Primitive("with_derivative")
_with_derivative_p.def_impl(lambda value, _: value)
_with_derivative_p.def_abstract_eval(lambda value, _: value)
mlir.register_lowering(_with_derivative_p, lambda _, value, __: [value])


def with_derivative(value: jax.Array, computation: jax.Array) -> jax.Array:
    """Returns a value with the derivative of another computation of the same value."""
    result: jax.Array = _with_derivative_p.bind(value, computation)
    return result


def _jvp(primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    return with_derivative(*primals), tangents[1]


def _batched(operands: tuple[jax.Array, jax.Array], axes: tuple[int | None, int | None]) -> tuple[jax.Array, int]:
    size = next(operand.shape[axis] for operand, axis in zip(operands, axes, strict=True) if axis is not None)
    return with_derivative(*(batching.bdim_at_front(x, axis, size) for x, axis in zip(operands, axes, strict=True))), 0


ad.primitive_jvps[_with_derivative_p] = _jvp
batching.primitive_batchers[_with_derivative_p] = _batched
