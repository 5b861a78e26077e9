"""The profile `monitoring`: Prometheus scrapes the server."""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from project.compose import Project, isolated_project, waited
from project.conftest import Require, Run

pytestmark = [pytest.mark.docker, pytest.mark.long]

SCRAPED_TIMEOUT_S = 180


@pytest.fixture
def monitored(run: Run, root: Path, require: Require) -> Iterator[Project]:
    with isolated_project(run, root, require, "monitoring") as project:
        project("up", "--detach", "server", "prometheus", timeout_s=300)
        yield project


def values_of(address: str, query: str) -> list[str]:
    """Returns the values of the series that Prometheus has for a query."""
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return [series["value"][1] for series in json.load(answer)["data"]["result"]]
    except OSError:  # it starts
        return []


def test_prometheus_scrapes_the_server(monitored: Project) -> None:
    record = monitored.inspect(monitored.identity("prometheus"))
    (binding,) = record["NetworkSettings"]["Ports"]["9090/tcp"]
    assert binding["HostIp"] == "127.0.0.1"
    address = f"127.0.0.1:{binding['HostPort']}"

    def is_scraped() -> bool:
        return values_of(address, "shardcall_ready") == ["1"]

    waited("scraped", SCRAPED_TIMEOUT_S, is_scraped, lambda: monitored("logs", "prometheus", "server"))
