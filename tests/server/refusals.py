"""Errors of calls that tests expect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shardcall_core.call_error import CallError, Reason


@contextmanager
def refused(reason: Reason, match: str | None = None, **metadata: str) -> Iterator[pytest.ExceptionInfo[CallError]]:
    """Expects a block to fail as a call does.

    Args:
        reason: the kind of failure.
        match: an expression that its message matches.
        **metadata: some of its values for programs.
    """
    with pytest.raises(CallError, match=match) as caught:
        yield caught
    assert caught.value.reason is reason
    assert metadata.items() <= caught.value.metadata.items()
