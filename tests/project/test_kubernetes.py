"""deploy/kubernetes: manifests that fit Kubernetes' schemas, the server's settings and each other.

No cluster and no kustomize was at hand: what kustomize merges is merged here, which is settings alone.
"""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from project.blocks import ROOT
from project.conftest import Require

from shardcall_server.commands.worker import worker
from shardcall_server.settings import Settings

pytestmark = pytest.mark.long

Manifest = dict[str, Any]
VERSIONS = ("1.30", "1.37")
PREFIX = "SHARDCALL_"


def manifests(folder: Path) -> Iterator[Manifest]:
    for file in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if document["kind"] != "Kustomization":
                yield document


def kustomization(folder: Path) -> Manifest:
    return dict(yaml.safe_load((folder / "kustomization.yaml").read_text()))


def literals(folder: Path) -> dict[str, str]:
    """Returns the variables of the only ConfigMap that a kustomization generates."""
    (generator,) = kustomization(folder)["configMapGenerator"]
    return dict(literal.split("=", 1) for literal in generator["literals"])


BASE, HOSTS = ROOT / "deploy/kubernetes/base", ROOT / "deploy/kubernetes/hosts"
MANIFESTS = {(m["kind"], m["metadata"]["name"]): m for folder in (BASE, HOSTS) for m in manifests(folder)}
STATEFUL = {name: manifest for (kind, name), manifest in MANIFESTS.items() if kind == "StatefulSet"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:kubernetes_validate")
def test_every_manifest_fits_the_schema_of_kubernetes(require: Require, version: str) -> None:
    require(importlib.util.find_spec("kubernetes_validate") is not None, "kubernetes-validate")
    import kubernetes_validate

    for manifest in MANIFESTS.values():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_every_file_is_a_resource_of_its_kustomization() -> None:
    for folder in (BASE, HOSTS):
        files = {file.name for file in folder.glob("*.yaml")} - {"kustomization.yaml"}
        assert set(kustomization(folder)["resources"]) - {"../base"} == files


def settings_of(variables: dict[str, str]) -> Settings:
    """Returns the settings that a server takes from variables, which all exist."""
    values = {name.removeprefix(PREFIX).lower(): value for name, value in variables.items()}
    assert set(values) <= set(Settings.model_fields)
    return Settings(**values)  # type: ignore[arg-type]  # texts, as variables of the environment are


def test_every_variable_is_a_setting_with_a_valid_value() -> None:
    alone = settings_of(literals(BASE))
    assert (alone.hosts, alone.devices) == (0, 8)
    joined = settings_of({**literals(BASE), **literals(HOSTS)})
    assert (joined.hosts, joined.devices, joined.array_dir) == (2, 0, "")


def pod(manifest: Manifest) -> Manifest:
    return dict(manifest["spec"]["template"]["spec"])


def container(manifest: Manifest) -> Manifest:
    (only,) = pod(manifest)["containers"]
    return dict(only)


def test_ports_probes_and_the_drain_fit_the_settings() -> None:
    manifest = STATEFUL["shardcall"]
    server, settings = container(manifest), settings_of({**literals(BASE), **literals(HOSTS)})
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    assert ports == {"grpc": settings.port, "metrics": settings.metrics_port}
    paths = {name: server[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert all(server[f"{name}Probe"]["httpGet"]["port"] == "metrics" for name in paths)
    (_, sleep_s) = server["lifecycle"]["preStop"]["exec"]["command"]
    assert pod(manifest)["terminationGracePeriodSeconds"] >= int(sleep_s) + settings.drain_s + 5
    services = {name: body for (kind, name), body in MANIFESTS.items() if kind == "Service"}
    assert {port["port"] for port in services["shardcall"]["spec"]["ports"]} == set(ports.values())
    assert services["shardcall-front-end"]["spec"]["ports"][0]["port"] == settings.hosts_port


def test_hosts_join_the_front_end_and_are_as_many_as_it_waits_for() -> None:
    manifest, variables = STATEFUL["shardcall-hosts"], literals(HOSTS)
    command, *flags = container(manifest)["args"]
    assert command == "worker"
    app = typer.Typer()
    app.command()(worker)
    options = {option for parameter in typer.main.get_command(app).params for option in parameter.opts}
    assert {flag.partition("=")[0] for flag in flags} <= options
    assert f"--join=shardcall-front-end:{variables['SHARDCALL_HOSTS_PORT']}" in flags
    assert manifest["spec"]["replicas"] == int(variables["SHARDCALL_HOSTS"])


@pytest.mark.parametrize("name", STATEFUL)
def test_pods_have_no_rights_and_write_to_volumes_alone(name: str) -> None:
    spec = pod(STATEFUL[name])
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not spec["automountServiceAccountToken"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in STATEFUL[name]["spec"]["volumeClaimTemplates"]}
    for part in [*spec["containers"], *spec["initContainers"]]:
        rights = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
        assert part["securityContext"] == {**rights, "capabilities": {"drop": ["ALL"]}}
        assert {mount["name"] for mount in part["volumeMounts"]} <= volumes
        assert "memory" in part["resources"]["limits"]


def test_selectors_match_the_labels_of_pods() -> None:
    pods = [manifest["spec"]["template"]["metadata"]["labels"] for manifest in STATEFUL.values()]
    for (kind, _), manifest in MANIFESTS.items():
        spec = manifest["spec"]
        selector = spec["selector"] if kind == "Service" else spec.get("selector", spec.get("podSelector"))
        selector = selector.get("matchLabels", selector)
        assert any(selector.items() <= labels.items() for labels in pods)


def test_the_user_and_the_folders_are_those_of_the_image() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    for manifest in STATEFUL.values():
        context = pod(manifest)["securityContext"]
        assert re.search(rf"^USER {context['runAsUser']}:{context['runAsGroup']}$", dockerfile, re.MULTILINE)
        assert context["fsGroup"] == context["runAsGroup"]
    mounts = {mount["mountPath"] for mount in container(STATEFUL["shardcall"])["volumeMounts"]}
    assert mounts == {"/secrets", "/var/cache/shardcall", "/var/lib/shardcall", "/tmp"}
