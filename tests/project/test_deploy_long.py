"""deploy/systemd and deploy/kubernetes fit the settings, the schemas and each other; jobs serve under Slurm.

No cluster and no kustomize was at hand: what kustomize merges is merged here, which is settings alone. Slurm is that of
Debian, in a container with one node.
"""

import configparser
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from project.blocks import ROOT
from project.compose import BUILD_TIMEOUT_S, isolated_project, waited
from project.conftest import Require, Run

from shardcall.cli.app import make_app
from shardcall_server.commands.worker import worker
from shardcall_server.settings import Settings

pytestmark = pytest.mark.long

MAX_EXPOSURE = 1.2


FOLDER = ROOT / "deploy/systemd"
UNIT = (FOLDER / "shardcall.service").read_text()


@pytest.fixture(scope="module")
def service() -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment]  # names keep their case
    parser.read_string(UNIT)
    return dict(parser["Service"])


@pytest.fixture
def unit(tmp_path: Path, require: Require) -> Path:
    """Returns the unit with the command of this environment, which `systemd-analyze verify` looks for."""
    require(shutil.which("systemd-analyze") is not None, "systemd-analyze")
    path = tmp_path / "shardcall.service"
    path.write_text(UNIT.replace("/opt/shardcall/bin/shardcall", str(Path(sys.executable).parent / "shardcall")))
    return path


def test_systemd_finds_no_fault_in_the_unit(unit: Path) -> None:
    command = ["systemd-analyze", "verify", str(unit)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    # Other units of the machine may have faults of their own.
    assert not [line for line in ended.stderr.splitlines() if "shardcall" in line]


def test_the_unit_is_exposed_no_more_than_documented(unit: Path, run: Run) -> None:
    report = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    match = re.search(r"exposure level for \S+: ([\d.]+)", report)
    assert match
    assert float(match[1]) <= MAX_EXPOSURE
    assert f"exposure level {MAX_EXPOSURE}" in (ROOT / "docs/deployment.md").read_text()


def test_the_unit_is_notified_and_drains(service: dict[str, str]) -> None:
    assert service["Type"] == "notify"
    assert service["NotifyAccess"] == "main"
    assert float(service["WatchdogSec"]) >= 10
    assert service["KillMode"] == "mixed"
    assert float(service["TimeoutStopSec"]) > Settings().drain_s + 5
    assert float(service["TimeoutStartSec"]) > Settings().start_timeout_s
    assert service["MemoryDenyWriteExecute"] == "no"


def test_the_settings_of_the_example_exist_and_are_in_folders_of_the_unit(service: dict[str, str]) -> None:
    values = tomllib.loads((FOLDER / "server.toml").read_text())
    assert set(values) <= set(Settings.model_fields)
    assert service["ExecStart"].endswith("/shardcall serve --config /etc/shardcall/server.toml")
    assert service["StateDirectory"] == service["CacheDirectory"] == "shardcall"
    assert values["cache_dir"] == "/var/cache/shardcall"
    assert values["array_dir"].startswith("/var/lib/shardcall/")


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


SCRIPTS = ("one_node.sbatch", "several_nodes.sbatch")
TIMEOUT_S = 180
HOME = "/srv/shardcall"
ASK = """
import shardcall
with shardcall.connect(connect_timeout=120) as client:
    print("devices", len(client.server_info().devices), client.diff([1, 4, 9]).array.tolist())
"""


@dataclass
class Cluster:
    """A container in which Slurm runs.

    Attributes:
        run: the fixture.
        identity: the id of the container.
    """

    run: Run
    identity: str

    def shell(self, script: str) -> str:
        """Returns the output of a script of the user of the jobs."""
        variables = (f"HOME={HOME}", f"XDG_CACHE_HOME={HOME}/cache", "PATH=/opt/shardcall/bin:/usr/bin:/bin")
        user = ("runuser", "-u", "shardcall", "--", "env", *variables)
        return self.run("docker", "exec", self.identity, *user, "bash", "-c", f"cd && {script}")

    def wait_for(self, job: str, what: str, script: str) -> None:
        def is_met() -> bool:
            return "met" in self.shell(f"if {script}; then echo met; fi")

        waited(what, TIMEOUT_S, is_met, lambda: self.shell(f"cat slurm-{job}.out; scontrol show job {job}"))


@pytest.fixture(scope="module")
def cluster(run: Run, root: Path, require: Require) -> Iterator[Cluster]:
    with isolated_project(run, root, require):  # builds the image of the server
        tag = "shardcall-slurm-test"
        run("docker", "build", "--quiet", "--tag", tag, root / "tests/project/slurm", timeout_s=BUILD_TIMEOUT_S)
        identity = run("docker", "run", "--rm", "--detach", "--init", "--hostname", "node1", tag).strip()
        try:
            run("docker", "cp", root / "deploy/slurm", f"{identity}:/slurm")
            yield Cluster(run, identity)
        finally:
            run("docker", "kill", identity)


@pytest.mark.docker
@pytest.mark.parametrize(
    ("script", "flags", "devices"),
    [
        ("one_node.sbatch", "--cpus-per-task=2 --mem=1G", 2),
        ("several_nodes.sbatch", "--nodes=1 --ntasks=2 --ntasks-per-node=2 --cpus-per-task=2 --mem=2G", 4),
    ],
)
def test_a_job_serves_and_ends_as_completed_when_it_drains(
    cluster: Cluster, script: str, flags: str, devices: int
) -> None:
    job = cluster.shell(
        f"for i in {{1..60}}; do sbatch --parsable {flags} /slurm/{script} && break; sleep 1; done"
    ).strip()
    variables = f"shardcall-jobs/{job}/client.env"
    cluster.wait_for(job, "serving", f"grep -q 'shardcall ready at' slurm-{job}.out")
    assert cluster.shell(f"source {variables} && python -c '{ASK}'").strip() == f"devices {devices} [3, 5]"
    cluster.shell(f"scancel --signal=TERM --batch {job}")
    cluster.wait_for(job, "completed", f"scontrol show job {job} | grep -q JobState=COMPLETED")


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_use_options_that_exist(root: Path, run: Run, name: str) -> None:
    script = root / "deploy/slurm" / name
    run("bash", "-n", script)
    commands = typer.main.get_command(make_app()).commands  # type: ignore[attr-defined]
    text = script.read_text().replace("\\\n", " ")
    for line in re.findall(r"^[^#\n]*shardcall (?:serve|worker|certificates)\b.*", text, re.MULTILINE):
        command = re.search(r"shardcall (\w+)", line)
        assert command
        used = line[command.end() :]
        options = {option for parameter in commands[command[1]].params for option in parameter.opts}
        assert set(re.findall(r"(?<!\S)--[a-z-]+", used)) <= options, line
