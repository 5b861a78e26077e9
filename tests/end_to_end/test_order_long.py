"""The tests of `test_order.py` that take long."""

import threading

import numpy as np
import pytest
from end_to_end.messages import call, mesh, operand, spec
from end_to_end.processes import X, wait_for
from end_to_end.segments_by_hand import MIB, held_segment
from end_to_end.test_order import PATIENCE_S

import shardcall as sc
from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc, segment_service_pb2_grpc

pytestmark = pytest.mark.long

RESULT_BYTES = 128 * MIB


def answers(client: sc.Client, i: int) -> None:
    """Makes a small call and looks at its result."""
    result = client.diff(X + i, axis=0, timeout=PATIENCE_S)
    np.testing.assert_array_equal(result.array, np.diff(X + i, axis=0))


def outer(rows: int, **fields) -> kernel_service_pb2.ExecuteRequest:
    """A product of two small operands with a large result, sharded by rows."""
    asked = call("matmul", mesh=mesh(x=8), in_specs=[spec("x", None), spec(None, None)], out_specs=[spec("x", None)])
    column, row = np.arange(float(rows))[:, None], np.ones((1, rows))
    return kernel_service_pb2.ExecuteRequest(call=asked, operands=[operand(column), operand(row)], **fields)


def test_a_small_call_waits_for_no_other_calls_results_to_be_gathered(server, channel):
    """Small calls are answered one after the other while the rest of a large result is gathered."""
    stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
    segments = segment_service_pb2_grpc.SegmentServiceStub(channel)
    with sc.connect(server.address, shared_memory=False) as client, held_segment(segments, RESULT_BYTES) as held:
        answers(client, 0)
        space = kernel_service_pb2.SegmentSpace(segment_id=held.segment_id, size_bytes=RESULT_BYTES)
        request = kernel_service_pb2.ExecuteStreamRequest(header=outer(4096, result_space=space))

        def answered_meanwhile() -> int:
            """Returns the number of small calls between the beginning and the end of a large result."""
            stream = stub.ExecuteStream(iter([request]), timeout=PATIENCE_S)
            assert next(stream).header.results[0].HasField("segment")
            ended = threading.Event()
            reader = threading.Thread(target=lambda: [*stream, ended.set()])
            reader.start()
            count = 0
            while True:
                answers(client, count)
                if ended.is_set():
                    break
                count += 1
            reader.join()
            return count

        # One call may complete between the end and its notification.
        wait_for(lambda: sorted(answered_meanwhile() for _ in range(5))[2] > 1)
        result = np.frombuffer(held.memory, np.float64).reshape(4096, 4096)
        np.testing.assert_array_equal(result[:, 0], np.arange(4096.0))
