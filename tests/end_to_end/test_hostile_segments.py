"""Hostile use of shared memory affects only the client's own answers."""

from __future__ import annotations

import contextlib
import fcntl
import os

import grpc
import numpy as np
import pytest
from end_to_end.messages import INVALID, NOT_FOUND, check
from end_to_end.processes import wait_for
from end_to_end.segments_by_hand import MIB, NBYTES, SHAPE, Held, bring

import shardcall as sc
from shardcall.v1 import segment_service_pb2

X = np.random.default_rng(2).standard_normal(SHAPE)


def refused(stub, request, status, reason: str, field: str, says: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Execute(request, timeout=30)
    check(caught.value, status, reason, field, says)


def test_a_call_by_the_contract_alone(stub, held: Held):
    held.put(0, X)
    answer = stub.Execute(held.execute(0, 4 * MIB), timeout=30)
    np.testing.assert_array_equal(held.result(answer), np.diff(X, axis=0))


@pytest.mark.parametrize("nbytes", [0, MIB, 16 * MIB])
def test_no_segment_changes_its_size(stub, held: Held, nbytes: int):
    with pytest.raises(PermissionError):
        os.ftruncate(held.fd, nbytes)
    held.put(0, X)
    answer = stub.Execute(held.execute(0, 4 * MIB), timeout=30)
    np.testing.assert_array_equal(held.result(answer), np.diff(X, axis=0))


def test_no_segment_takes_another_seal(held: Held):
    for seal in (fcntl.F_SEAL_WRITE, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_SEAL):
        with pytest.raises(PermissionError):
            fcntl.fcntl(held.fd, fcntl.F_ADD_SEALS, seal)


def test_a_hole_in_an_operand_spoils_its_owners_answer_alone(stub, held: Held, client: sc.Client):
    held.put(0, X)
    held.punch(NBYTES // 2, NBYTES // 2)
    answer = stub.Execute(held.execute(0, 4 * MIB), timeout=30)
    spoiled = X.copy()
    spoiled[SHAPE[0] // 2 :] = 0
    np.testing.assert_array_equal(held.result(answer), np.diff(spoiled, axis=0))
    np.testing.assert_array_equal(client.diff(X, axis=0).array, np.diff(X, axis=0))


@pytest.mark.parametrize("result_offset", [0, 64, MIB])
def test_a_result_that_overlaps_its_operand_is_its_owners_affair(
    stub, held: Held, client: sc.Client, result_offset: int
):
    held.put(0, X)
    answer = stub.Execute(held.execute(0, result_offset), timeout=30)
    assert list(answer.results[0].type.shape) == [SHAPE[0] - 1, SHAPE[1]]
    held.put(0, X)
    answer = stub.Execute(held.execute(0, 4 * MIB), timeout=30)
    np.testing.assert_array_equal(held.result(answer), np.diff(X, axis=0))
    np.testing.assert_array_equal(client.diff(X, axis=0).array, np.diff(X, axis=0))


def test_a_ticket_gives_its_segment_once_and_a_wrong_one_nothing(segments):
    answer = segments.OpenSegment(segment_service_pb2.OpenSegmentRequest(size_bytes=2 * MIB), timeout=30)
    for ticket in (bytes(32), answer.ticket[:-1] + bytes([answer.ticket[-1] ^ 1])):
        with contextlib.ExitStack() as stack:
            connection, data, fds = bring(answer, ticket)
            stack.callback(connection.close)
            assert (data, fds) == (b"", [])
    lease, data, fds = bring(answer, answer.ticket)
    with lease:
        assert (data, len(fds)) == (b"\x01", 1)
        os.close(fds[0])
        thief, data, fds = bring(answer, answer.ticket)
        thief.close()
        assert (data, fds) == (b"", [])


def test_a_segment_whose_lease_ended_is_not_found(stub, held: Held, client: sc.Client):
    others = client.usage().segments - 1
    held.put(0, X)
    stub.Execute(held.execute(0, 4 * MIB), timeout=30)
    held.lease.close()
    wait_for(lambda: client.usage().segments == others)
    refused(stub, held.execute(), NOT_FOUND, "SEGMENT_NOT_FOUND", "", "does not exist or was closed")


@pytest.mark.parametrize("result_bytes", [8 * MIB, 2**63, 2**64 - 1])
def test_no_result_buffer_is_larger_than_its_segment(stub, held: Held, result_bytes: int):
    request = held.execute(0, 4 * MIB, result_bytes=result_bytes)
    refused(stub, request, INVALID, "MALFORMED_REQUEST", "result_space", "put it inside")


def test_a_result_buffer_that_is_too_small_is_not_written(stub, held: Held):
    held.memory[...] = 9
    held.put(0, X)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Execute(held.execute(0, 4 * MIB, result_bytes=64), timeout=30)
    check(caught.value, grpc.StatusCode.FAILED_PRECONDITION, "STREAM_REQUIRED", "results", "ExecuteStream")
    assert (held.memory[NBYTES:] == 9).all()
