"""deploy/slurm: jobs that serve, under Debian's Slurm in a container with one node."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer.main
from project.compose import BUILD_TIMEOUT_S, isolated_project, waited
from project.conftest import Require, Run

from shardcall.cli.app import make_app

pytestmark = pytest.mark.long

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
