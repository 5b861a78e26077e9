"""The profile `monitoring`: Prometheus scrapes the server; what Grafana is provisioned with fits it."""

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from project.compose import Project, isolated_project

Run = Callable[..., str]
Require = Callable[[bool, str], None]
SCRAPED_TIMEOUT_S = 180


@pytest.fixture(scope="module")
def compose(root: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((root / "docker-compose.yml").read_text()))


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


@pytest.mark.long  # it builds an image
@pytest.mark.docker
def test_prometheus_scrapes_the_server(monitored: Project) -> None:
    record = monitored.inspect(monitored.identity("prometheus"))
    (binding,) = record["NetworkSettings"]["Ports"]["9090/tcp"]
    assert binding["HostIp"] == "127.0.0.1"
    deadline = time.monotonic() + SCRAPED_TIMEOUT_S
    while values_of(f"127.0.0.1:{binding['HostPort']}", "shardcall_ready") != ["1"]:
        assert time.monotonic() < deadline, monitored("logs", "prometheus", "server")
        time.sleep(0.5)


def test_prometheus_asks_where_the_server_has_its_metrics(root: Path, compose: dict[str, Any]) -> None:
    config = yaml.safe_load((root / "deploy/monitoring/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    environment = compose["services"]["server"]["environment"]
    assert target == f"server:{environment['SHARDCALL_METRICS_PORT']}"
    assert set(compose["services"]["server"]["networks"]) & set(compose["services"]["prometheus"]["networks"])
    assert job["job_name"] == "shardcall"


def test_grafana_is_provisioned_with_prometheus_and_the_dashboard(root: Path, compose: dict[str, Any]) -> None:
    grafana = compose["services"]["grafana"]
    folders = dict(volume.split(":")[:2] for volume in grafana["volumes"])
    provisioned = root / "deploy/monitoring/grafana"
    assert folders["./deploy/monitoring/grafana"] == "/etc/grafana/provisioning"
    (source,) = yaml.safe_load((provisioned / "datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioned / "dashboards/shardcall.yml").read_text())["providers"]
    assert folders["./deploy/grafana-dashboard.json"].startswith(provider["options"]["path"])
    assert all(port.startswith("127.0.0.1:") for port in grafana["ports"])
