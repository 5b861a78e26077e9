"""The files in deploy/, docker-compose.yml and the Dockerfile fit each other, the server and its metrics."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from end_to_end.scraping import Scrape, metrics_url, scrape
from project.blocks import ROOT
from servers import ServerProcess

import shardcall as sc

METRIC = re.compile(r"\b(?:shardcall|process)_[a-z_]+\b")
OF_A_HISTOGRAM = re.compile(r"_(?:bucket|sum|count)$")
DASHBOARD = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
FUNCTIONS = {"by", "sum", "rate", "increase", "histogram_quantile", "time", "label_values"}


@pytest.fixture(scope="module")
def scraped(exclusive_server: ServerProcess) -> Scrape:
    with sc.connect(exclusive_server.address) as client, pytest.raises(sc.AxisError):
        client.diff([1.0, 2.0], axis=3)
    assert exclusive_server.log
    return scrape(metrics_url(exclusive_server.log))


def queries() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (
        variable["query"]["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"
    )


def metrics_of(query: str) -> set[str]:
    return {OF_A_HISTOGRAM.sub("", name) for name in METRIC.findall(query)}


def test_every_metric_of_the_dashboard_is_one_that_a_server_has(scraped: Scrape) -> None:
    for query in queries():
        assert metrics_of(query), query
        assert metrics_of(query) <= scraped.families, query


def test_every_label_and_value_of_the_dashboard_is_one_that_a_server_has(scraped: Scrape) -> None:
    of_prometheus = {"job", "instance", "le"}  # of Prometheus itself, and of histograms
    for query in queries():
        grouped = [label for names in re.findall(r"by \(([^)]*)\)", query) for label in names.split(", ")]
        matched = re.findall(r'(\w+)=~?"([^"]*)"', query)
        for label in {*grouped, *(label for label, _ in matched)} - of_prometheus:
            assert scraped.values(label) or label == "reason", f"{label} in {query}"
        for label, value in matched:
            assert value.startswith("$") or value in scraped.values(label), f"{label}={value} in {query}"


def test_queries_are_balanced_and_call_existing_operators() -> None:
    for query in queries():
        assert query.count("(") == query.count(")"), query
        assert query.count("{") == query.count("}"), query
        assert set(re.findall(r"\b([a-z_]+) ?\(", query)) <= FUNCTIONS, query


def test_panels_do_not_overlap_and_show_what_matters() -> None:
    positions = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [(x, y) for p in positions for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    shown = {name for query in queries() for name in metrics_of(query)}
    for what in ("calls_total", "phase_seconds", "queued_calls", "host_memory_bytes", "program_lookups_total"):
        assert f"shardcall_{what}" in shown
    assert "shardcall_mesh_restarts_total" in shown


def test_the_scrape_config_asks_where_the_metrics_are(scraped: Scrape) -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "shardcall"
    assert job["metrics_path"] == "/metrics"
    (target,) = job["static_configs"][0]["targets"]
    port = target.removeprefix("localhost:")
    assert f"--metrics-port {port}" in (ROOT / "docs/telemetry.md").read_text()


def test_the_docs_list_every_metric_and_no_other(scraped: Scrape) -> None:
    rows = re.findall(r"^\| `(\w+)(?:\{[\w,]+\})?` \|", (ROOT / "docs/telemetry.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(scraped.families)


Compose = dict[str, Any]


@pytest.fixture(scope="module")
def compose(root: Path) -> Compose:
    return dict(yaml.safe_load((root / "docker-compose.yml").read_text()))


def test_services_use_networks_volumes_and_services_that_exist(compose: Compose) -> None:
    services = compose["services"]
    for name, service in services.items():
        volumes = {volume.partition(":")[0] for volume in service.get("volumes", ())}
        assert {volume for volume in volumes if not volume.startswith(".")} <= set(compose["volumes"]), name
        assert set(service.get("networks", ())) <= set(compose["networks"]), name
        assert set(service.get("depends_on", ())) <= set(services), name
        assert all("127.0.0.1" in port for port in service.get("ports", ())), name


def test_every_service_of_the_image_is_without_rights(compose: Compose) -> None:
    ours = {name: service for name, service in compose["services"].items() if service["image"] == "shardcall:dev"}
    assert {"init", "server", "demo", "front-end", "worker-1"} <= set(ours)
    for name, service in ours.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_the_image_is_built_of_files_that_exist_and_runs_as_a_user_without_rights(root: Path) -> None:
    text = (root / "Dockerfile").read_text().replace("\\\n", " ")
    copied = [line.split()[1:-1] for line in re.findall(r"^COPY (?!--from).*", text, re.MULTILINE)]
    assert copied
    assert [name for names in copied for name in names if not (root / name).exists()] == []
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE) == ["10001:10001"]
    assert '\nENTRYPOINT ["shardcall"]\n' in text


def test_prometheus_asks_where_the_server_has_its_metrics(root: Path, compose: Compose) -> None:
    config = yaml.safe_load((root / "deploy/monitoring/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    environment = compose["services"]["server"]["environment"]
    assert target == f"server:{environment['SHARDCALL_METRICS_PORT']}"
    assert set(compose["services"]["server"]["networks"]) & set(compose["services"]["prometheus"]["networks"])
    assert job["job_name"] == "shardcall"


def test_grafana_is_provisioned_with_prometheus_and_the_dashboard(root: Path, compose: Compose) -> None:
    grafana = compose["services"]["grafana"]
    folders = dict(volume.split(":")[:2] for volume in grafana["volumes"])
    provisioned = root / "deploy/monitoring/grafana"
    assert folders["./deploy/monitoring/grafana"] == "/etc/grafana/provisioning"
    (source,) = yaml.safe_load((provisioned / "datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioned / "dashboards/shardcall.yml").read_text())["providers"]
    assert folders["./deploy/grafana-dashboard.json"].startswith(provider["options"]["path"])
    assert all(port.startswith("127.0.0.1:") for port in grafana["ports"])
