"""Fixtures of the tests of the server."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from server.fake_calls import end_stages
from server.fake_workers import PATIENCE_S, FakeWorker, RunningMesh


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
