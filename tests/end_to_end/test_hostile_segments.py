"""Hostile use of shared memory affects only the client's own answers."""

from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from end_to_end.messages import INVALID, check
from end_to_end.processes import repeated
from end_to_end.segments_by_hand import MIB, NBYTES, SHAPE, Held, held_segment

import shardcall as sc
from shardcall.v1 import segment_service_pb2_grpc

X = np.random.default_rng(2).standard_normal(SHAPE)


@pytest.fixture
def segments(channel: grpc.Channel) -> segment_service_pb2_grpc.SegmentServiceStub:
    """The service of shared memory as it is."""
    return segment_service_pb2_grpc.SegmentServiceStub(channel)


@pytest.fixture
def held(segments) -> Iterator[Held]:
    """A segment of 8 MiB in the hands of a test."""
    with held_segment(segments, 8 * MIB) as segment:
        yield segment


def refused(stub, request, field: str, says: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Execute(request, timeout=30)
    check(caught.value, INVALID, "MALFORMED_REQUEST", field, says)


def test_a_call_by_the_contract_alone(stub, held: Held):
    held.put(0, X)
    np.testing.assert_array_equal(held.result(stub.Execute(held.execute(0, 4 * MIB), timeout=30)), np.diff(X, axis=0))


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


@pytest.mark.parametrize("result_bytes", [8 * MIB, 2**63, 2**64 - 1])
def test_no_result_buffer_is_larger_than_its_segment(stub, held: Held, result_bytes: int):
    refused(stub, held.execute(0, 4 * MIB, result_bytes=result_bytes), "result_space", "put it inside")


def test_a_result_buffer_that_is_too_small_is_not_written(stub, held: Held):
    held.memory[...] = 9
    held.put(0, X)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Execute(held.execute(0, 4 * MIB, result_bytes=64), timeout=30)
    check(caught.value, grpc.StatusCode.FAILED_PRECONDITION, "STREAM_REQUIRED", "results", "ExecuteStream")
    assert (held.memory[NBYTES:] == 9).all()


def test_holes_punched_while_calls_run_spoil_their_owners_answers_alone(stub, held: Held, client: sc.Client):
    with repeated(lambda: held.punch(0, 8 * MIB)):
        for i in range(20):
            held.put(0, X)
            stub.Execute(held.execute(0, 4 * MIB), timeout=30)
            np.testing.assert_array_equal(client.diff(X + i, axis=0).array, np.diff(X + i, axis=0))


@pytest.mark.parametrize("offset", [8, 8 * MIB, 2**63, 2**64 - NBYTES])
def test_ranges_outside_a_segment_are_refused(stub, held: Held, offset: int):
    says = "multiple of 64" if offset % 64 else "put it inside"
    refused(stub, held.execute(offset), "operand 0", says)
    refused(stub, held.execute(0, offset), "result_space", says)
