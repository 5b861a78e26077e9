"""Graphs changed at random: each is refused by name or is one that runs, and no process ends."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import pytest
from end_to_end.messages import open_channel, spec
from faults.bad_input_rows import METHODS
from faults.canary import Canary
from faults.graph_mutations import mutated_call
from faults.test_fuzz import SEED, Outcomes, classify

from shardcall.v1 import kernel_service_pb2

pytestmark = pytest.mark.fuzz

_COUNT, _SHORT = 5_000, 30
_EVERY = 4  # graphs that are not refused, of which one runs
_MOST_CHARACTERS = 900
_DEADLINE_S = 60.0
_THREADS = 2
_NO_AXIS = "no such axis"


def _reason(channel: grpc.Channel, method: str, request) -> tuple[str, str]:
    """Returns the reason of a refusal, OK for none, and its fault; an empty one for none."""
    metadata = [("shardcall-timeout", str(_DEADLINE_S))]
    try:
        channel.unary_unary(METHODS[method][0])(request.SerializeToString(), timeout=2 * _DEADLINE_S, metadata=metadata)
    except grpc.RpcError as error:
        reason, fault = classify(error)
        if not fault and len(error.details() or "") > _MOST_CHARACTERS:
            fault = f"has {len(error.details())} characters: {error.details()}"
        return reason if _NO_AXIS not in (error.details() or "") else "RESOLVED", fault
    return "OK", ""


def _try(channel: grpc.Channel, outcomes: Outcomes, number: int) -> None:
    began, made = time.monotonic(), mutated_call(SEED, number)
    # Specs of results are checked after all else, so that a graph without a mistake is refused, too, and not compiled.
    message = made.message(out_specs=[spec((_NO_AXIS,))])
    reason, fault = _reason(channel, "Plan", kernel_service_pb2.PlanRequest(call=message, operands=made.types()))
    if reason == "RESOLVED" and number % _EVERY == 0:
        reason, fault = _reason(channel, "Execute", made.execution())
    outcomes.counts[reason] += 1
    if (took := time.monotonic() - began) > outcomes.worst_s:
        outcomes.worst_s, outcomes.worst_number = took, number
    if fault:
        outcomes.faults.append(f"seed {SEED}, number {number}: {fault}: {made}")


def test_mutated_graphs_are_refused_by_name_or_run(server, full, figure):
    before, outcomes = server.worker_pids(), Outcomes()
    with (
        open_channel(server.address) as channel,
        Canary(server.address) as canary,
        ThreadPoolExecutor(_THREADS) as pool,
    ):
        for _ in pool.map(partial(_try, channel, outcomes), range(_COUNT if full else _SHORT)):
            pass
    figure(str(outcomes))
    figure(str(canary))
    assert not outcomes.faults, "\n".join([f"{len(outcomes.faults)} faults", *outcomes.faults[:20]])
    canary.check()
    assert outcomes.counts["OK"]
    assert server.process.poll() is None
    assert server.worker_pids() == before
