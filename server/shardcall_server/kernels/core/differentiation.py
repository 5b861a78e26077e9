"""Values with the derivative of another computation, and a flag for programs that are differentiated.

A kernel moves elements as integers and compares them by their bits, and JAX takes the derivative of both to be 0. In a
program that is differentiated, the numbers themselves are moved too, for the derivative.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax

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


@jax.custom_jvp
def with_derivative(value: jax.Array, computation: jax.Array) -> jax.Array:
    """Returns a value with the derivative of another computation of the same value."""
    del computation
    return value


@with_derivative.defjvp
def _with_derivative_jvp(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    return with_derivative(*primals), tangents[1]
