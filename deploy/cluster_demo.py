"""Demonstration of a mesh of four containers, one of which is killed (`make cluster-demo`).

Needs Python alone here, and a Docker engine with `docker compose` or docker-compose 1.29. Whatever happens, what it
started is gone at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = "shardcall-cluster-demo"
FRONT_END, VICTIM = "front-end", "worker-3"
WORKERS = tuple(f"worker-{i}" for i in range(1, 5))
HEALTHY_S = 120.0
BEFORE_THE_KILL_S = 1.0
_began = time.monotonic()


def show(line: str) -> None:
    """Prints a line and flushes it, since standard output may be a pipe."""
    print(line, flush=True)  # noqa: T201  # that is what this program is for


def say(what: str) -> None:
    """Prints a step, with the time since the start."""
    show(f"[{time.monotonic() - _began:6.1f} s] {what}")


def find_compose() -> list[str]:
    """Returns the command of this machine for docker-compose.yml."""
    for command in (["docker", "compose"], ["docker-compose"]):
        try:
            version = subprocess.run([*command, "version"], capture_output=True, timeout=30, check=False)
        except FileNotFoundError:
            continue
        if version.returncode == 0:
            return [*command, "-p", PROJECT, "-f", str(ROOT / "docker-compose.yml"), "--profile", "cluster"]
    sys.exit("make cluster-demo needs docker compose or docker-compose, and there is neither")


def output(*command: str) -> str:
    """Returns the output of a command; if it fails, ends the demonstration with its output."""
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ended.returncode:
        sys.exit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}")
    return ended.stdout


class Demo:
    """The containers of the demonstration and their steps.

    Args:
        compose: the command, with the project.
    """

    def __init__(self, compose: list[str]) -> None:
        self._compose = compose

    def run(self) -> int:
        """Starts the containers, runs the demonstration and removes them; returns the exit status."""
        say("building the image shardcall:dev (minutes at the first time)")
        output(*self._compose, "build")
        self._down()  # of one that was ended in the middle
        try:
            say(f"starting {FRONT_END} and {', '.join(WORKERS)}, of 2 devices each, and waiting for their mesh")
            output(*self._compose, "up", "--detach", FRONT_END, *WORKERS)
            self._wait_healthy()
            say("the mesh serves; a client asks that knows the front end's name, its authority and a token\n")
            return self._watch()
        finally:
            say("taking all of it down")
            self._down()
            say("nothing is left running")

    def _down(self) -> None:
        output(*self._compose, "down", "--volumes", "--remove-orphans", "--timeout", "10")

    def _inspect(self, service: str) -> dict[str, object]:
        identity = output(*self._compose, "ps", "--quiet", service).strip()
        (state,) = json.loads(output("docker", "inspect", identity))
        return {**state["State"], "restarts": state["RestartCount"]}

    def _wait_healthy(self) -> None:
        deadline = time.monotonic() + HEALTHY_S
        while dict(self._inspect(FRONT_END)["Health"])["Status"] != "healthy":  # type: ignore[call-overload]
            if time.monotonic() > deadline:
                sys.exit(f"no mesh after {HEALTHY_S:g} s:\n{output(*self._compose, 'logs', '--tail', '20')}")
            time.sleep(0.5)

    def _watch(self) -> int:
        """Starts the client, and kills a worker once the client watches the mesh."""
        front_end = self._inspect(FRONT_END)
        command = [*self._compose, "run", "--rm", "-T", "cluster-demo", "--watch"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            for line in client.stdout:
                show(f"  | {line.rstrip()}")
                if line.startswith("watching"):
                    time.sleep(BEFORE_THE_KILL_S)
                    self._kill()
        show("")
        restarts = self._inspect(VICTIM)["restarts"]
        same = self._inspect(FRONT_END)["StartedAt"] == front_end["StartedAt"]
        say(f"Docker has started {VICTIM} again {restarts} time(s); the front end is {'the same' if same else 'NEW'}")
        return client.returncode or int(not same)

    def _kill(self) -> None:
        """Kills the processes in a worker's container from inside, since Docker restarts none after `docker kill`."""
        say(f"killing {VICTIM}: SIGKILL for all of its processes")
        # It may end with the container, so what it returns says nothing.
        command = [*self._compose, "exec", "-T", VICTIM, "sh", "-c", "kill -s KILL -- -1"]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        say(f"{VICTIM} is gone")


if __name__ == "__main__":
    sys.exit(Demo(find_compose()).run())
