"""Eight CPU devices in the tests' own process, for the worker's code."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from shardcall_server.mesh.placement import ParallelCopier

DEVICES = 8
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", DEVICES)
jax.config.update("jax_enable_x64", True)


@pytest.fixture
def copier() -> Iterator[ParallelCopier]:
    made = ParallelCopier()
    yield made
    made.close()
