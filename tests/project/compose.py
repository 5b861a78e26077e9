"""docker-compose.yml as tests use it: a project of its own, and access to its containers."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUILD_TIMEOUT_S = 600

Run = Callable[..., str]


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

    def try_in(self, service: str, *command: str) -> None:
        """Runs a command in a container that may end with it, and ignores the outcome."""
        command_line = (*self.compose, "exec", "-T", service, *command)
        subprocess.run(command_line, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False)


@contextmanager
def isolated_project(run: Run, root: Path, require: Callable[[bool, str], None], *profiles: str) -> Iterator[Project]:
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
