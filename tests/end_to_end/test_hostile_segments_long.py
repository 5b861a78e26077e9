"""Holes punched while calls run, late tickets, and ranges outside of a segment."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from end_to_end.messages import INVALID, open_channel
from end_to_end.processes import wait_for
from end_to_end.segments_by_hand import MIB, NBYTES, Held, bring
from end_to_end.test_hostile_segments import X, refused
from servers import holds_nothing

import shardcall as sc
from shardcall.v1 import segment_service_pb2, segment_service_pb2_grpc

pytestmark = pytest.mark.long


def test_holes_punched_while_calls_run_spoil_their_owners_answers_alone(stub, held: Held, client: sc.Client):
    ended = threading.Event()

    def punch() -> None:
        while not ended.is_set():
            held.punch(0, 8 * MIB)

    puncher = threading.Thread(target=punch)
    puncher.start()
    try:
        for i in range(20):
            held.put(0, X)
            stub.Execute(held.execute(0, 4 * MIB), timeout=30)
            x = X + i
            np.testing.assert_array_equal(client.diff(x, axis=0).array, np.diff(x, axis=0))
    finally:
        ended.set()
        puncher.join()


def test_a_late_ticket_yields_nothing(server_factory):
    server = server_factory(devices=1, why="its segments are counted")
    with sc.connect(server.address) as observer, open_channel(server.address) as channel:
        stub = segment_service_pb2_grpc.SegmentServiceStub(channel)
        answer = stub.OpenSegment(segment_service_pb2.OpenSegmentRequest(size_bytes=2 * MIB), timeout=30)
        assert answer.ticket_seconds == 5
        assert observer.usage().segments == 1
        wait_for(lambda: holds_nothing(observer))
        connection, data, fds = bring(answer, answer.ticket)
        connection.close()
        assert (data, fds) == (b"", [])


@pytest.mark.parametrize(
    "offset", [8, 1, 8 * MIB, 6 * MIB + 64, 2**32, 2**63 - 64, 2**63, 2**64 - 64, 2**64 - NBYTES, 2**64 - 1]
)
def test_ranges_outside_a_segment_are_refused(stub, held: Held, offset: int):
    says = "multiple of 64" if offset % 64 else "put it inside"
    refused(stub, held.execute(offset), INVALID, "MALFORMED_REQUEST", "operand 0", says)
    refused(stub, held.execute(0, offset), INVALID, "MALFORMED_REQUEST", "result_space", says)
