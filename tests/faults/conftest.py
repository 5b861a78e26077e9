"""Servers and hosts of several files of fault tests, and the figures that the tests record."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clusters import Cluster
from end_to_end.messages import token_of
from end_to_end.processes import wait_for
from faults.token_servers import TokenServer, is_accepted
from servers import running_server

from shardcall_core.wire import token_file


@pytest.fixture
def figure(record_property: Callable[[str, object], None], request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Records a line that is printed when all tests have run."""
    return lambda line: record_property("figure", f"{request.node.name}: {line}")


@pytest.fixture
def silence() -> Iterator[Callable[..., Iterator[Any]]]:
    """Makes streams of requests that have those passed, and no other until the test has ended."""
    ended = threading.Event()

    def requests(*first: object) -> Iterator[object]:
        yield from first
        ended.wait()

    yield requests
    ended.set()


@pytest.fixture(scope="module")
def waiting() -> Iterator[Cluster]:
    """A front end that waits for hosts which never come."""
    cluster = Cluster(8, (), {})
    try:
        cluster.hosts_address = cluster.log.wait_for(r'"by": "shardcall worker --join (\S+?)"')[1]
        yield cluster
        assert cluster.process.poll() is None
        assert not [line for line in cluster.log.lines if "Traceback" in line]
    finally:
        cluster.end()


@pytest.fixture(scope="module")
def serving(tmp_path_factory) -> Iterator[TokenServer]:
    folder = tmp_path_factory.mktemp("served")
    path, log = folder / "state" / "token", folder / "log"
    token_file.create(str(path), [(user := token_file.Entry.make(token_file.user_name(), token_file.SCOPES))])
    options = ("--token-file", str(path), "--log-level", "debug", "--shared-memory-regions")
    with running_server(*options, devices=1, log=log, why="its tokens change") as server:
        yield TokenServer(server, path)
        server.process.terminate()
        said = server.process.stdout.read()
        assert "generated" not in said, "it found the token"
        assert user.token not in said + log.read_text()


@pytest.fixture
def served(serving) -> TokenServer:
    """A server with one token, its owner's."""
    user = token_file.Entry.make(token_file.user_name(), token_file.SCOPES)
    token_file.replace(str(serving.path), [user])
    wait_for(lambda: is_accepted(serving.server, user.token))
    return serving


@pytest.fixture
def user_token() -> str:
    return token_of(token_file.user_name())
