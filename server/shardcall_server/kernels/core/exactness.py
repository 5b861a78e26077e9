"""A flag for programs whose results are equal, bit for bit, to those of their calls one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_IS_EXACT = ContextVar("is_exact", default=False)


def is_exact() -> bool:
    """Returns True while an exact program is being traced."""
    return _IS_EXACT.get()


@contextmanager
def exactness(*, on: bool) -> Iterator[None]:
    """Sets whether the programs that the body traces are exact; one in an exact program is, too."""
    before = _IS_EXACT.set(on or is_exact())
    try:
        yield
    finally:
        _IS_EXACT.reset(before)
