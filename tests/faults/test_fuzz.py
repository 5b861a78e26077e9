"""Valid requests changed at random: each is served rightly or refused by name, without effect on other calls."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import grpc
import numpy as np
import pytest
from end_to_end.messages import INVALID, details, open_channel
from faults.bad_input_rows import METHODS
from faults.canary import Canary
from faults.gauges import MIB
from faults.mutations import MutatedRequest, Mutations
from faults.mutations_oracles import wrong
from faults.mutations_seeds import valid_requests
from faults.test_bad_input import SERVER_DETAILS
from servers import ServerProcess, running_server

import shardcall as sc

pytestmark = [pytest.mark.fuzz, pytest.mark.long]

SEED = os.environ.get("FUZZ_SEED", "2")
COUNT = 10_000
_DEADLINE_S = 30.0
_BUSY_S = 10.0  # allowance of a busy machine beyond the promised second
_THREADS = 4
_FLAGS = ("--max-call-bytes", str(32 * MIB), "--max-bytes-in-flight", str(256 * MIB), "--log-level", "error")
_NEVER = {
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
}


@dataclass
class Outcomes:
    """Counts of the answers to the requests.

    Attributes:
        counts: by status or reason.
        checked: how many answers were compared with NumPy's.
        faults: descriptions of the faults, with the requests that led to them.
        worst_s: how long the longest took.
        worst_number: which that was.
    """

    counts: Counter[str] = field(default_factory=Counter)
    checked: int = 0
    faults: list[str] = field(default_factory=list)
    worst_s: float = 0.0
    worst_number: int = -1

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.counts.most_common())
        longest = f"longest {self.worst_s:.2f} s (number {self.worst_number})"
        compared = f"{self.checked} compared with NumPy; " if self.checked else ""
        return f"seed {SEED}: {counts}; {compared}{longest}"


def _send(channel: grpc.Channel, request: MutatedRequest) -> list[bytes]:
    path, method = METHODS[request.method]
    streams, answers = method.client_streaming, method.server_streaming
    rpc = getattr(channel, f"{'stream' if streams else 'unary'}_{'stream' if answers else 'unary'}")(path)
    metadata = [("shardcall-timeout", str(_DEADLINE_S))]
    argument = iter(request.messages) if streams else request.messages[0]
    answer = rpc(argument, timeout=2 * _DEADLINE_S, metadata=metadata)
    return list(answer) if answers else [answer]


def classify(error: grpc.RpcError) -> tuple[str, str]:
    """Returns the count's name for an error and the error's fault; empty for none."""
    code, text = error.code(), error.details() or ""
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
        return "MESSAGE_TOO_LARGE", ""  # gRPC's own message
    parts = details(error)
    reason = parts["ErrorInfo"].reason
    if (code in _NEVER and reason != "COMPILE_LIMIT") or reason == "COMPILE_FAILED":
        return reason, f"ended with {code.name} {reason}"
    if code is INVALID and not ("BadRequest" in parts and parts["BadRequest"].field_violations[0].field):
        return reason, "names no field"
    if not text or SERVER_DETAILS.search(text):
        return reason, f"says {text!r}"
    return reason, ""


def _try(channel: grpc.Channel, mutations: Mutations, outcomes: Outcomes, number: int) -> None:
    request, began = mutations[number], time.monotonic()
    try:
        answers = _send(channel, request)
        counted, fault = "OK", ""
        compared = wrong(channel, request, answers)
        if compared is not None:
            outcomes.checked += 1
            fault = compared
    except grpc.RpcError as error:
        counted, fault = classify(error)
    except Exception as error:  # noqa: BLE001  # reported with the request that led to it
        counted, fault = "UNREADABLE", repr(error)
    took = time.monotonic() - began
    if took > outcomes.worst_s:
        outcomes.worst_s, outcomes.worst_number = took, number
    outcomes.counts[counted] += 1
    if took > _DEADLINE_S + 1 + _BUSY_S:
        fault = f"took {took:.1f} s; {fault}"
    if fault:
        outcomes.faults.append(f"seed {SEED}, number {number}: {fault}: {request}")


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Iterator[tuple[ServerProcess, Path]]:
    """A server whose largest call is small, so that requests that are valid by chance end soon."""
    log = tmp_path_factory.mktemp("fuzz") / "log"
    with running_server(*_FLAGS, log=log, why="its calls are small") as server:
        yield server, log


def test_mutated_requests_are_refused_by_name_or_served_rightly(target, figure):
    server, log = target
    before, outcomes = server.worker_pids(), Outcomes()
    with (
        sc.connect(server.address) as client,
        client.put(np.arange(24.0).reshape(6, 4), mesh=sc.Mesh(x=2)) as there,
        open_channel(server.address) as channel,
        Canary(server.address) as canary,
        ThreadPoolExecutor(_THREADS) as pool,
    ):
        mutations = Mutations(valid_requests(bytes.fromhex(there.handle), b"lease of the fuzz"), SEED)
        for _ in pool.map(partial(_try, channel, mutations, outcomes), range(COUNT)):
            pass
    figure(str(outcomes))
    figure(str(canary))
    assert not outcomes.faults, "\n".join([f"{len(outcomes.faults)} faults", *outcomes.faults[:20], _errors(log)])
    canary.check()
    assert outcomes.checked
    assert server.process.poll() is None
    assert server.worker_pids() == before


def _errors(log: Path) -> str:
    """The last lines that the server logs about its own faults."""
    return log.read_text()[-6000:]
