"""Errors of calls that tests expect."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from shardcall_core.call_error import CallError, Reason


@contextmanager
def refused(
    reason: Reason, match: str | None = None, field: str | None = None
) -> Iterator[pytest.ExceptionInfo[CallError]]:
    """Expects a block to fail as a call does.

    Args:
        reason: the kind of failure.
        match: an expression that its message matches.
        field: the part of the request at fault.
    """
    with pytest.raises(CallError, match=match) as caught:
        yield caught
    assert caught.value.reason is reason
    assert field in {None, caught.value.field}


def refusal(do: Callable[..., object], *arguments: object, **named: object) -> CallError:
    """Returns the error with which a function fails as a call does."""
    with pytest.raises(CallError) as caught:
        do(*arguments, **named)
    return caught.value
