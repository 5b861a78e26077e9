"""docker-compose.yml and the Dockerfile, without Docker: their names fit each other, and no service has rights."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

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
