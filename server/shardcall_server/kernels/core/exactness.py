"""The rules by which a program that is being traced is rounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_IS_EXACT: ContextVar[bool | None] = ContextVar("is_exact", default=None)


def is_exact() -> bool:
    """Returns True while a program is being traced whose results are those of its calls one by one, bit for bit."""
    return _IS_EXACT.get() is True


def is_relaxed() -> bool:
    """Returns True while a program is being traced that is not exact, which follows the rules of `jax.jit`.

    Subnormal numbers may count as zero, a quotient be a product with a reciprocal, and the sign of a zero and the bits
    of a NaN may differ.
    """
    return _IS_EXACT.get() is False


@contextmanager
def exactness(*, on: bool) -> Iterator[None]:
    """Sets whether the program that the body traces is exact; one in another program is as that."""
    before = _IS_EXACT.set(on if _IS_EXACT.get() is None else _IS_EXACT.get())
    try:
        yield
    finally:
        _IS_EXACT.reset(before)
