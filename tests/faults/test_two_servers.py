"""Clients of two servers: a drain of one loses no call."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest
from client_parts import lease_of
from end_to_end.processes import wait_for
from faults.callers import Callers, small_diff
from faults.restarting import RestartingServer

import shardcall as sc

pytestmark = pytest.mark.long

CLIENTS = 16
PAUSE_S = 0.02  # between the calls of a client, or a server that starts would have no processor


@pytest.fixture
def servers() -> Iterator[list[RestartingServer]]:
    limits = ("--lease-s", "20", "--max-call-s", "30")
    with ExitStack() as stack:
        yield [stack.enter_context(RestartingServer(*flags, devices=1)) for flags in ((), limits)]


def test_a_rolling_drain_of_two_servers_fails_no_call(servers):
    addresses = [server.address for server in servers]
    with Callers(frozenset()).calling(addresses, [small_diff] * CLIENTS, PAUSE_S) as callers:
        for server in servers:
            wait_for(lambda address=server.address: len(callers.served(address)) == CLIENTS)
            server.drain()
            server.start()
        returned = time.monotonic()
        wait_for(lambda: len(callers.served(addresses[0], returned)) == CLIENTS)
    assert callers.wrong == []
    assert len(callers.served(addresses[1])) == CLIENTS


def test_after_a_drain_calls_arrays_and_limits_are_those_of_the_next_server(servers):
    first, second = servers
    addresses = [first.address, second.address]
    # No server is at the first of these; the first that is ready is used.
    with (
        Callers(frozenset()).calling(addresses, [small_diff] * 4, PAUSE_S) as callers,
        sc.connect(["127.0.0.1:1", *addresses]) as client,
        sc.connect(second.address) as other,
    ):
        assert client.address == first.address
        before, h, dropped = client._info.limits, client.put(np.arange(4.0)), client.put(np.arange(4.0))
        first.drain()
        assert client.submit("diff", np.array([1.0, 4, 9])).get().tolist() == [3, 5]
        assert client.address == second.address
        described = client.server_info()
        assert client._info.limits == described.limits != before
        assert lease_of(client)._interval_s == described.limits.lease_seconds / 4 == 5
        g = client.put(np.arange(4.0))
        assert (g + 1).get().tolist() == [1, 2, 3, 4]
        assert other.diff(g).array.tolist() == [1, 1, 1]
        gone = rf"which is on the server at {first.address}, and this client has gone on to {second.address}; put it"
        for use in (h.get, partial(client.diff, h), partial(client.submit, "diff", h), partial(np.add, h, 1)):
            with pytest.raises(sc.ArrayLostError, match=gone) as caught:
                use()
            assert caught.value.reason == "ARRAY_LOST"
        dropped.delete()
        wait_for(lambda: len(callers.served(second.address)) == 4)
    assert callers.wrong == []
