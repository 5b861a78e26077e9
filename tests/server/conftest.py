"""What tests of the server share."""

import pytest


@pytest.fixture(scope="session")
def jax_of_a_worker() -> None:
    """Starts JAX as a worker does, as others that use it in this process need it: it can be started once."""
    from shardcall_server.authoring.runner import use_virtual_devices

    use_virtual_devices()
