"""The peer Ray: an actor that holds the devices; arrays go through Ray's shared memory.

    python -m peers.ray_actor

The argument is copied into the object store, the result is read there in place.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import ray

from harness.answering import NDArray, TimedHandler, answer, same
from peers import jax_job

_STORE_BYTES = 6 << 30


class Job:
    """The code of the actor's process."""

    def __init__(self) -> None:
        jax_job.configure()

    def run(self, name: str, x: NDArray) -> NDArray:
        """Runs one job."""
        return x if name == "echo" else jax_job.run(name, x)


def call(actor: Any, name: str, x: NDArray) -> NDArray:
    """Runs a job in the actor."""
    result: NDArray = ray.get(actor.run.remote(name, x))
    return result


def main() -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # The actor's process looks for modules where this one does.
    os.environ["PYTHONPATH"] = os.getcwd()
    ray.init(num_cpus=2, object_store_memory=_STORE_BYTES, include_dashboard=False, logging_level="ERROR")
    actor: Any = ray.remote(Job).remote()
    handlers = {"echo": TimedHandler(partial(call, actor, "echo"), same)}
    answer(handlers | {name: TimedHandler(partial(call, actor, name)) for name in jax_job.NAMES})
    ray.shutdown()


if __name__ == "__main__":
    main()
