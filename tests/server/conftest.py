"""Fixtures of the tests of the server, errors that tests expect, and threads."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from server.fake_calls import end_stages
from server.fake_workers import PATIENCE_S, FakeWorker, RunningMesh

from shardcall_core.call_error import CallError, Reason


@pytest.fixture(autouse=True)
def _no_waiting_stages() -> Iterator[None]:
    """Ends the stages that wait when a test is over."""
    yield
    end_stages()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short path: a socket's address holds 107 bytes."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def run() -> Iterator[Callable[..., RunningMesh]]:
    """Makes meshes of fake workers, which run until the test ends."""
    with ExitStack() as stack:

        def start(*workers: FakeWorker, ready: bool = True) -> RunningMesh:
            mesh = stack.enter_context(closing(RunningMesh(*workers)))
            if ready:
                mesh.session.ready.result(PATIENCE_S)
            return mesh

        yield start


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


def on_threads(function: Callable[[Any], object], arguments: Iterable[Any]) -> list[Any]:
    """Calls a function with each argument on a thread of its own; returns the results, or raises an error of one."""
    values = [*arguments]
    with ThreadPoolExecutor(len(values)) as threads:
        return list(threads.map(function, values))


NO_JSON_OBJECTS = (b"", b"{", b"[]", b"7", b"null", b"\x00\xff", b"\xff\xfe", b"[" * 100_000)
