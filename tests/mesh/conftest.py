"""Eight CPU devices in the process of the tests, for the code of the worker."""

from collections.abc import Iterator

import pytest

from shardcall_server.authoring.runner import use_virtual_devices
from shardcall_server.mesh.placement import ParallelCopier

use_virtual_devices()  # with the flags of a worker, which other tests of this process need


@pytest.fixture(scope="module")
def copier() -> Iterator[ParallelCopier]:
    created = ParallelCopier()
    yield created
    created.close()
