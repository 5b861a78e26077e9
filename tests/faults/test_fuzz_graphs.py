"""Graphs changed at random: each is refused by name or is one that runs, and no process ends."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import pytest
from end_to_end.messages import open_channel
from faults.bad_input_rows import METHODS
from faults.canary import Canary
from faults.graph_calls import GraphRequest
from faults.graph_mutations import mutated_call
from faults.test_fuzz import SEED, Outcomes, classify

pytestmark = [pytest.mark.fuzz, pytest.mark.long]

_COUNT = 5_000
_MAX_CHARACTERS = 500
_DEADLINE_S = 600.0  # longer than the server compiles: 509 hyperbolic tangents of each other take it more than 300 s
_THREADS = 2


def _outcome(channel: grpc.Channel, mutated: GraphRequest) -> tuple[str, str]:
    """Returns the reason of a refusal, OK for none, and its fault; an empty one for none."""
    rpc = channel.unary_unary(METHODS["Execute"][0])
    metadata = [("shardcall-timeout", str(_DEADLINE_S))]
    try:
        rpc(mutated.execution().SerializeToString(), timeout=2 * _DEADLINE_S, metadata=metadata)
    except grpc.RpcError as error:
        reason, fault = classify(error)
        message = error.details() or ""
        return reason, fault or (f"says {message!r}" if len(message) > _MAX_CHARACTERS else "")
    return "OK", ""


def _try(channel: grpc.Channel, outcomes: Outcomes, number: int) -> None:
    mutated, began = mutated_call(SEED, number), time.monotonic()
    reason, fault = _outcome(channel, mutated)
    outcomes.counts[reason] += 1
    if (took := time.monotonic() - began) > outcomes.worst_s:
        outcomes.worst_s, outcomes.worst_number = took, number
    if fault:
        outcomes.faults.append(f"seed {SEED}, number {number}: {fault}: {mutated}")


def test_mutated_graphs_are_refused_by_name_or_run(server, figure):
    before, outcomes = server.worker_pids(), Outcomes()
    with (
        open_channel(server.address) as channel,
        Canary(server.address) as canary,
        ThreadPoolExecutor(_THREADS) as pool,
    ):
        for _ in pool.map(partial(_try, channel, outcomes), range(_COUNT)):
            pass
    figure(str(outcomes))
    figure(str(canary))
    assert not outcomes.faults, "\n".join([f"{len(outcomes.faults)} faults", *outcomes.faults[:20]])
    canary.check()
    assert outcomes.counts["OK"]
    assert server.process.poll() is None
    assert server.worker_pids() == before
