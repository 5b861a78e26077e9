"""The tests of `test_transports.py` that take long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from end_to_end.test_transports import MESH, ROWS, TRANSPORTS, arrays, same

import shardcall as sc
from shardcall import aio

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=TRANSPORTS.values(), ids=TRANSPORTS)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The arguments of `shardcall.connect`."""
    return dict(request.param)


@pytest.fixture(scope="module")
def client(server, options) -> Iterator[sc.Client]:
    with sc.connect(server.address, **options) as connected:
        yield connected


def test_values_are_refused_after_all_operands_have_arrived(client):
    for x in arrays("small", "several chunks"):
        powers = np.ones(x.shape, np.int64)
        powers[-1:] = -1
        with pytest.raises(sc.InvalidOperandError, match="a negative integer") as caught:
            client.power(powers, powers, mesh=MESH, spec=ROWS)
        assert (caught.value.reason, caught.value.field) == ("INVALID_VALUE", "y")
        same(client.power(powers, abs(powers), mesh=MESH, spec=ROWS).array, powers)


def test_asynchronous_calls_are_alike(server, options):
    async def calls() -> None:
        async with aio.connect(server.address, **options) as client:
            for x in arrays():
                there = await client.put(x, mesh=MESH, spec=ROWS)
                kept = (await client.add(there, x, keep=True)).array
                same(await client.get(kept), x + x)
                same((await client.subtract(kept, x)).array, (x + x) - x)
                with pytest.raises(sc.AxisError):
                    await client.call("diff", there, axis=2)

    asyncio.run(calls())
