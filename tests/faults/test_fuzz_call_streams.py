"""Frames of call streams changed at random: each call is served rightly or refused by name, others stay right."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import grpc
import numpy as np
import pytest
from end_to_end.messages import call, details, mesh, open_channel, tensor
from faults.canary import Canary
from faults.mutations import Mutations, ValidRequest
from faults.raw_call_stream import RawCallStream, cancel, delete, diff_of, error_info, prepare, put, read, result, run
from faults.test_bad_input import SERVER_DETAILS
from google.rpc import status_pb2
from servers import ServerProcess, running_server

from shardcall.v1 import call_stream_pb2

pytestmark = [pytest.mark.fuzz, pytest.mark.long]

SEED = os.environ.get("FUZZ_SEED", "2")
COUNT = 10_000
_THREADS = 4
_X = np.arange(24.0).reshape(6, 4)
_LEASE = b"lease of the fuzz"
_NEVER = {"INTERNAL", "COMPILE_FAILED", "TOKEN_REQUIRED"}
_ENDS = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED}
_CHECK = 1 << 40
"""The number of a call on a stream of its own, which must stay right."""


def _frames(*frames: list[call_stream_pb2.CallStreamItem]) -> ValidRequest:
    return ValidRequest("CallStream", tuple(call_stream_pb2.CallStreamRequest(items=items) for items in frames))


def valid_streams(handle: bytes) -> list[ValidRequest]:
    """Streams of every item; ``handle`` is that of an array on the mesh, of the shape of ``_X``."""
    limit = {"timeout_seconds": 30.0}
    sharded = call("diff", {"axis": 0}, mesh=mesh(x=2))
    kept = {"keep_results": True, "lease_id": _LEASE}
    handles = [bytes([i]) * 16 for i in range(1, 4)]
    return [
        _frames([diff_of(8), run(1, np.arange(8.0), **limit)], [run(2, np.ones(8), **limit)]),
        _frames([prepare(3, sharded, (6, 4)), run(1, _X, slot=3, request_id="fuzz", **limit)], [cancel(1)]),
        _frames([prepare(255, call("add"), (6, 4), (6, 4)), run(7, _X, _X, slot=255, **limit)]),
        _frames([prepare(0, sharded, (6, 4))], [run(1, handle, **limit), read(2, handle, **limit)]),
        _frames(
            [prepare(0, call("add"), (6, 4), (6, 4), **kept), run(1, _X, handle, result_handles=handles[:1], **limit)],
            [run(2, handles[0], handles[0], result_handles=handles[1:2], **limit), read(4, handles[0], **limit)],
            [put(5, _X, handles[2], type=tensor(6, 4), mesh=mesh(x=2), lease_id=_LEASE, **limit)],
            [read(6, handles[2], **limit), delete(*handles)],
            [prepare(0, call("diff"), (6, 4)), run(3, handles[1], **limit)],
        ),
    ]


def _sends(channel: grpc.Channel, messages: tuple[bytes, ...]) -> tuple[list[call_stream_pb2.StreamedAnswer], str, str]:
    """Sends frames; returns the answers, and the name and the fault of the stream's end."""
    path = "/shardcall.v1.KernelService/CallStream"
    answers: list[call_stream_pb2.StreamedAnswer] = []
    rpc = channel.stream_stream(path)(iter(messages), timeout=120)
    try:
        for data in rpc:
            answers += call_stream_pb2.CallStreamResponse.FromString(data).answers
    except grpc.RpcError as error:
        text = error.details() or ""
        if error.code() not in _ENDS or SERVER_DETAILS.search(text):
            return answers, "", f"the stream ended with {error.code().name}: {text}"
        if "larger than max" in text:
            return answers, "MESSAGE_TOO_LARGE", ""
        return answers, f"stream: {details(error)['ErrorInfo'].reason}", ""
    return answers, "stream: OK", ""


def _fault(answer: call_stream_pb2.StreamedAnswer) -> str:
    text = status_pb2.Status.FromString(answer.status).message
    if error_info(answer).reason in _NEVER or not text or SERVER_DETAILS.search(text):
        return f"{error_info(answer).reason}: {text!r}"
    return ""


def _try(channel: grpc.Channel, mutations: Mutations, faults: list[str], number: int) -> Counter[str]:
    request, met = mutations[number], Counter[str]()
    answers, end, fault = _sends(channel, request.messages)
    met[end] += 1
    for answer in answers:
        met[error_info(answer).reason if answer.status else "OK"] += 1
        fault = fault or (_fault(answer) if answer.status else "")
    if fault:
        faults.append(f"seed {SEED}, number {number}: {fault}: {request}")
    return met


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Iterator[ServerProcess]:
    log = Path(tmp_path_factory.mktemp("fuzz") / "log")
    with running_server("--log-level", "error", devices=2, log=log, why="its log is looked at") as server:
        yield server


def test_mutated_frames_are_refused_by_name_or_served_rightly(target, figure):
    """An undisturbed stream of the same client and connection stays right all the while."""
    before, met, faults = target.worker_pids(), Counter[str](), list[str]()
    with (
        open_channel(target.address) as channel,
        Canary(target.address, devices=2) as canary,
        RawCallStream(channel) as undisturbed,
        ThreadPoolExecutor(_THREADS) as pool,
    ):
        handle = bytes(range(16))
        prepared = prepare(1, call("add"), (6, 4), (6, 4), keep_results=True, lease_id=_LEASE)
        undisturbed.send(prepared, run(0, _X, _X, slot=1, result_handles=[handle]), diff_of(8))
        undisturbed.answer(0)
        mutations = Mutations(valid_streams(handle), SEED)
        tried = pool.map(partial(_try, channel, mutations, faults), range(COUNT))
        for number, one in enumerate(tried, _CHECK):
            met += one
            undisturbed.send(run(number, np.arange(8.0)))
            assert result(undisturbed.answer(number)).tolist() == [1.0] * 7
    figure(f"seed {SEED}: {', '.join(f'{name} {count}' for name, count in met.most_common())}")
    figure(str(canary))
    assert not faults, "\n".join([f"{len(faults)} faults", *faults[:20]])
    canary.check()
    assert met["OK"]
    assert target.process.poll() is None
    assert target.worker_pids() == before
