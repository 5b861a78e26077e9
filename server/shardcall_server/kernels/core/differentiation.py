"""Values whose derivative is that of another computation, and whether the program that is traced is differentiated.

A kernel moves elements as integers and compares them by their bits, which JAX differentiates to 0. In a program that is
differentiated the same moves take the numbers themselves along, for the derivative.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax

_IS_DIFFERENTIATED = ContextVar("is_differentiated", default=False)


def is_differentiated() -> bool:
    """Returns True while a program is traced that is differentiated."""
    return _IS_DIFFERENTIATED.get()


@contextmanager
def differentiation(*, on: bool) -> Iterator[None]:
    """Traces programs that are differentiated, or again such as are not."""
    before = _IS_DIFFERENTIATED.set(on)
    try:
        yield
    finally:
        _IS_DIFFERENTIATED.reset(before)


@jax.custom_jvp
def with_derivative(value: jax.Array, computation: jax.Array) -> jax.Array:
    """Returns a value, with the derivative of another computation of it."""
    del computation
    return value


@with_derivative.defjvp
def _with_derivative_jvp(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    return with_derivative(*primals), tangents[1]
