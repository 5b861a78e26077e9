"""Hosts of a mesh that are killed, frozen, cut off or slow: noticed, reported to callers, and admitted again."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from clusters import child_pids
from end_to_end.processes import wait_for
from faults.gauges import Gauges
from faults.host_callers import TIMEOUT_S, Callers, connections_to
from faults.host_faults import (
    ActiveFault,
    Hosts,
    freeze_host,
    freeze_worker,
    kill_agent,
    kill_worker,
    lose_host,
    proxied_cluster,
    slow_worker,
)
from servers import alive, holds_nothing

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long

_ROUNDS = 20
_LIMITS = ("--host-silence-s", "8", "--worker-silence-s", "3", "--straggler-timeout-s", "5")  # the defaults
_HOSTS = ("h1", "h2")  # the first shares memory with the front end
_MORE_DESCRIPTORS = 24  # connections and memory files that come and go
_LARGE = np.random.default_rng(0).integers(-9, 9, (2048, 2048)).astype(np.float64)
_LONG_CALLS = (  # in the first no worker waits for another; in the second each waits for all
    {"lhs_spec": P("x", None), "rhs_spec": P(), "out_spec": P("x", None)},
    {"lhs_spec": P(None, "x"), "rhs_spec": P("x", None), "out_spec": P()},
)

Fault = Callable[[Hosts, str], ActiveFault]


@functools.cache
def _square() -> np.ndarray:
    return _LARGE @ _LARGE


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with proxied_cluster(2, *_LIMITS, h1=(), h2=("--no-shared-memory",)) as running:
        yield running


@pytest.mark.parametrize(
    ("outage", "faults"),
    [
        ("killed", [kill_agent, kill_worker]),
        ("frozen", [freeze_worker, freeze_host]),
        ("unreachable", [lose_host]),
        ("slow", [slow_worker]),
    ],
)
def test_a_fault_is_noticed_and_costs_no_right_answer(hosts, figure, outage, faults):
    noticed, back = [], []
    front_end = hosts.cluster.process.pid
    with sc.connect(hosts.cluster.address, shared_memory=False) as watching:  # it keeps no segment
        _works(watching, _LONG_CALLS)
        with Callers().calling(hosts.cluster.address) as callers:
            wait_for(lambda: len(callers.ended) >= 40)
            before, connected = Gauges.of(front_end, 0), connections_to(hosts.cluster.address)
            for i in range(_ROUNDS):
                name = _HOSTS[(i // len(faults) + 1) % len(_HOSTS)]
                times = _one_round(hosts, watching, callers, faults[i % len(faults)], name, _LONG_CALLS[i // 2 % 2])
                noticed.append(times[0])
                back.append(times[1])
                assert callers.wrong == []
            assert connections_to(hosts.cluster.address) >= connected
        assert callers.wrong == []
        assert hosts.cluster.process.poll() is None
        wait_for(lambda: holds_nothing(watching))
        wait_for(lambda: Gauges.of(front_end, 0).descriptors <= before.descriptors + _MORE_DESCRIPTORS)
    figure(
        f"{outage}: {_ROUNDS} times, {len(callers.ended)} calls, 0 hangs, 0 wrong answers, errors {callers.errors()}; "
        f"the last call that the mesh had failed {_summary(noticed)} after the fault, and the next right answer came "
        f"{_summary(back)} after the host was back"
    )


def _one_round(
    hosts: Hosts, client: sc.Client, callers: Callers, fault: Fault, name: str, how: dict[str, P]
) -> tuple[float, float]:
    """Applies a fault to a host under load; returns the seconds until it was noticed, and until it was over.

    Calls that the mesh had when it ended fail. Those that it had not yet wait for the next, maybe until the host
    is back.
    """
    restarts = client.usage().mesh.restarts
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(_call_for_long, client, how)
        wait_for(lambda: client.usage().calls >= 3)
        struck_at = time.monotonic()
        struck = fault(hosts, name)
        wait_for(lambda: client.usage().mesh.restarts > restarts)
        seen_at = back_at = time.monotonic()
        if struck.is_gone:
            wait_for(lambda: client.usage().mesh.missing.startswith(f"{name} (gone for "))
        if struck.mend is not None:
            back_at = time.monotonic()
            struck.mend()
        wait_for(lambda: callers.next_right(seen_at) is not None)
        wait_for(lambda: callers.all_answered(struck_at))
        error_reason, answered_at = large.result(TIMEOUT_S)
    wait_for(lambda: client.usage().mesh.ready)
    assert client.usage().mesh.missing == ""
    right_at = callers.next_right(seen_at)
    assert right_at is not None
    noticed_at = callers.last_error(struck_at, before=right_at)
    if error_reason and answered_at < right_at:
        noticed_at = max(noticed_at, answered_at)
    return (noticed_at if noticed_at > struck_at else seen_at) - struck_at, max(0.0, right_at - back_at)


def _works(client: sc.Client, long_calls: Iterable[dict[str, P]]) -> None:
    """Compiles all kernels of the calls, so that no fault strikes a compilation instead of a run."""
    for how in long_calls:
        assert _call_for_long(client, how)[0] == ""


def _call_for_long(client: sc.Client, how: dict[str, P]) -> tuple[str, float]:
    """Makes a call that occupies every worker for a while.

    Returns:
        The reason of its error, empty where its answer is right, and when it ended.
    """
    try:
        result = client.matmul(_LARGE, _LARGE, mesh=sc.Mesh(x=4), timeout=TIMEOUT_S, **how).array
    except sc.MeshRestartedError as error:
        return error.reason, time.monotonic()
    assert np.array_equal(result, _square())
    return "", time.monotonic()


def _summary(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.1f} s (worst {max(seconds):.1f})"


def test_nothing_is_left_when_agents_and_front_end_end():
    """Nor of hosts whose worker was restarted, and of one that left."""
    options = {"h1": (), "h2": ("--no-shared-memory",)}
    with proxied_cluster(1, *_LIMITS, **options) as hosts, sc.connect(hosts.cluster.address) as client:
        for ends, name in enumerate(_HOSTS, 1):
            kill_worker(hosts, name)
            wait_for(lambda ends=ends: client.usage().mesh.restarts >= ends and client.usage().mesh.ready)
        pids = [hosts.cluster.process.pid]
        for agent in hosts.cluster.agents.values():
            pids += [agent.process.pid, *child_pids(agent.process.pid)]
        leaver = hosts.agent("h2")
        leaver.process.terminate()
        assert leaver.process.wait(60) == 0
        wait_for(lambda: client.usage().mesh.missing != "")
    wait_for(lambda: not any(map(alive, pids)))
