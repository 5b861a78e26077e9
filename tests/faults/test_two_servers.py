"""Clients of two servers: a drain of one loses no call."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest
from client_parts import lease_of
from end_to_end.processes import wait_for
from servers import running_server

import shardcall as sc

pytestmark = pytest.mark.long

CLIENTS = 16
PAUSE_S = 0.02  # between the calls of a client, or a server that starts would have no processor


class Caller(threading.Thread):
    """A client that calls until it is stopped, and counts its calls by server.

    Args:
        addresses: the servers.
        stopped: ends the calls.
        options: of `connect`.
    """

    def __init__(self, addresses, stopped, **options):
        super().__init__(daemon=True)
        self.client = sc.connect(addresses, progress=False, **options)
        self.stopped = stopped
        self.counts = dict.fromkeys(addresses, 0)
        self.failures = []

    def run(self):
        squares, x = np.arange(8.0) ** 2, np.arange(8.0)
        with self.client as client:
            while not self.stopped.wait(PAUSE_S):
                try:
                    result = client.diff(squares).array
                    assert result.tolist() == (2 * x[:-1] + 1).tolist()
                    self.counts[client.address] += 1
                except (sc.ShardcallError, AssertionError) as error:
                    self.failures.append(error)


class RestartableServer:
    """A server that comes back at its address."""

    def __init__(self, *options):
        self._stack = ExitStack()
        self._running = self._stack.enter_context(running_server(*options, devices=1, why="it drains and comes back"))
        self.address = self._running.address

    def drain(self):
        """Drains the server, and waits until it is gone."""
        self._running.process.send_signal(signal.SIGTERM)
        assert self._running.process.wait(60) == 0
        self._stack.close()

    def start(self):
        """Starts the server again."""
        port = self.address.rpartition(":")[2]
        self._running = self._stack.enter_context(
            running_server("--port", port, devices=1, why="it drains and comes back")
        )

    def stop(self):
        self._stack.close()


@pytest.fixture
def servers():
    both = [RestartableServer(), RestartableServer("--lease-s", "20", "--max-call-s", "30")]
    yield both
    for server in both:
        server.stop()


def test_a_rolling_drain_of_two_servers_fails_no_call(servers):
    addresses, stopped = [server.address for server in servers], threading.Event()
    # Half of them have streams of calls, the others an RPC for each.
    callers = [Caller(addresses, stopped, call_stream=i % 2 == 0) for i in range(CLIENTS)]
    assert {caller.client.address for caller in callers} == {addresses[0]}
    for caller in callers:
        caller.start()
    for server in servers:
        wait_for(lambda address=server.address: all(caller.counts[address] for caller in callers))
        server.drain()
        server.start()
    returned = [caller.counts[addresses[0]] for caller in callers]
    wait_for(lambda: all(caller.counts[addresses[0]] > n for caller, n in zip(callers, returned, strict=True)))
    stopped.set()
    for caller in callers:
        caller.join(60)
    failures = [failure for caller in callers for failure in caller.failures]
    assert failures == []
    assert all(caller.counts[address] for caller in callers for address in addresses)


def test_after_a_drain_calls_arrays_and_limits_are_those_of_the_next_server(servers):
    first, second = servers
    addresses, stopped = [first.address, second.address], threading.Event()
    callers = [Caller(addresses, stopped, call_stream=is_streaming) for is_streaming in (True, False)]
    for caller in callers:
        caller.start()
    # No server is at the first of these; the first that is ready is used.
    with sc.connect(["127.0.0.1:1", *addresses]) as client, sc.connect(second.address) as other:
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
        wait_for(lambda: all(caller.counts[second.address] for caller in callers))
        stopped.set()
        for caller in callers:
            caller.join(60)
        assert [failure for caller in callers for failure in caller.failures] == []
