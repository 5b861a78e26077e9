"""The files in deploy/ fit the metrics that a server has, and docs/telemetry.md lists all of them."""

import json
import re
from collections.abc import Iterator

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
