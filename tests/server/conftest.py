"""Fixtures of the tests of the server."""

import pytest


@pytest.fixture(scope="session")
def jax_of_a_worker() -> None:
    """Starts JAX as a worker does; the tests of a process share it, since it can be started only once."""
    from shardcall_server.authoring.runner import use_virtual_devices

    use_virtual_devices()
