"""docker-compose.yml as tests use it: a project of its own, and access to its containers."""

import json
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from project.conftest import Require, Run

BUILD_TIMEOUT_S = 600

Seen = TypeVar("Seen")


def answers(*command: str, timeout_s: float = 30) -> bool:
    """True if a command exists and succeeds in time."""
    if shutil.which(command[0]) is None:
        return False
    try:
        return subprocess.run(command, capture_output=True, timeout=timeout_s, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def has_base_image(root: Path) -> bool:
    """True if the images that the Dockerfile builds on are present or can be pulled."""
    lines = (line.split() for line in (root / "Dockerfile").read_text().splitlines())
    froms = [tokens for tokens in lines if tokens[:1] == ["FROM"]]
    stages = {tokens[3] for tokens in froms if len(tokens) > 3}  # FROM image AS stage
    images = {tokens[1] for tokens in froms} - stages
    return all(answers("docker", "image", "inspect", i) or answers("docker", "pull", i, timeout_s=120) for i in images)


def waited(what: str, timeout_s: float, seen: Callable[[], Seen], log: Callable[[], object]) -> Seen:
    """Waits until a function returns something true and returns that; fails with a log if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := seen()):
        if time.monotonic() > deadline:
            pytest.fail(f"not {what} after {timeout_s} s:\n{log()}")
        time.sleep(0.2)
    return value


def check_has_no_rights(status: str) -> None:
    """Checks the text of `/proc/self/status` in a container."""
    fields = {line.split(":")[0]: line.split(":")[1].split() for line in status.splitlines() if ":" in line}
    assert set(fields["Uid"]) == set(fields["Gid"]) == {"10001"}
    assert int(fields["CapEff"][0], 16) == int(fields["CapBnd"][0], 16) == 0
    assert fields["NoNewPrivs"] == ["1"]


@dataclass
class Project:
    """A compose project of the tests' own.

    Attributes:
        run: the fixture.
        compose: the command, with all that says which project.
    """

    run: Run
    compose: tuple[str, ...]

    def __call__(self, *arguments: str, timeout_s: float = 120) -> str:
        """Returns the command's output."""
        return self.run(*self.compose, *arguments, timeout_s=timeout_s)

    def identity(self, service: str) -> str:
        """The id of a service's container."""
        return self("ps", "--quiet", service).strip()

    def inspect(self, identity: str) -> dict[str, Any]:
        """Returns the engine's record of a container."""
        (state,) = json.loads(self.run("docker", "inspect", identity))
        return dict(state)

    def python(self, service: str, code: str) -> str:
        """Returns the output of code in a service's container."""
        return self("exec", "-T", service, "python", "-c", code)

    def try_in(self, service: str, *command: str) -> None:
        """Runs a command in a container that may end with it, and ignores the outcome."""
        command_line = (*self.compose, "exec", "-T", service, *command)
        subprocess.run(command_line, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False)


@contextmanager
def isolated_project(run: Run, root: Path, require: Require, *profiles: str) -> Iterator[Project]:
    """A project that is built at the beginning and removed completely at the end."""
    require(answers("docker", "version"), "Docker engine")
    compose = ("docker", "compose") if answers("docker", "compose", "version") else ("docker-compose",)
    require(answers(*compose, "version"), "docker compose")
    require(has_base_image(root), "base image of the Dockerfile, which is neither here nor can be pulled")
    name = f"shardcall-test-{secrets.token_hex(4)}"
    flags = [word for profile in profiles for word in ("--profile", profile)]
    free_ports = ("env", "PUBLISHED_PORT=", "PROMETHEUS_PORT=")  # of the engine's choosing
    project = Project(run, (*free_ports, *compose, "-p", name, "-f", str(root / "docker-compose.yml"), *flags))
    project("build", timeout_s=BUILD_TIMEOUT_S)
    try:
        yield project
    finally:
        project("down", "--volumes", "--remove-orphans", "--timeout", "10")
    owned = ("--quiet", "--filter", f"label=com.docker.compose.project={name}")
    assert run("docker", "ps", "--all", *owned) == ""
    assert run("docker", "network", "ls", *owned) == ""
    assert run("docker", "volume", "ls", *owned) == ""
