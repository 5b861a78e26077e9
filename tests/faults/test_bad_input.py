"""Hundreds of invalid requests, each written by hand with its answer, which says what is wrong.

The rows speak the contract itself, so that nothing that our own client checks first stands between.
"""

import re
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from end_to_end.messages import INVALID, UNIMPLEMENTED, details, execute, open_channel, operand
from faults import (
    bad_input_rows_arrays,
    bad_input_rows_layouts,
    bad_input_rows_parameters,
    bad_input_rows_streams,
    bad_input_rows_types,
)
from faults.bad_input_rows import METHODS, Row, send

from shardcall.v1 import error_pb2, kernel_service_pb2_grpc

TABLES = {
    "types": bad_input_rows_types.ROWS,
    "layouts": bad_input_rows_layouts.ROWS,
    "parameters": bad_input_rows_parameters.ROWS,
    "streams": bad_input_rows_streams.ROWS,
    "arrays": bad_input_rows_arrays.ROWS,
}
_LIMIT_BYTES = 4096
SERVER_DETAILS = re.compile(
    r"Traceback|File \"|\.py\b|site-packages|/(?:usr|home|root|tmp|proc|dev|var)/|\bjaxlib?\b|\bxla\b|protobuf"
    r"|0x[0-9a-f]{8}|<class|<[a-z_.]+ object|object at|dtype\(|np\.int|np\.float|\w+Error\b|None of type",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def channel(server) -> Iterator[grpc.Channel]:
    """A channel for all rows; afterwards the same processes serve the next call."""
    before = server.worker_pids()
    with open_channel(server.address) as connected:
        yield connected
        assert server.process.poll() is None
        assert server.worker_pids() == before
        stub = kernel_service_pb2_grpc.KernelServiceStub(connected)
        answer = stub.Execute(execute(operand(np.arange(6.0))), timeout=60)
        assert np.frombuffer(answer.results[0].inline.data).tolist() == [1.0] * 5


def refusal(channel: grpc.Channel, row: Row) -> grpc.RpcError:
    """The error that a row ends with."""
    try:
        answer = list(send(channel, row.method, row.request, row.metadata))
    except grpc.RpcError as error:
        return error
    raise AssertionError(f"answered: {answer}")


def check(row: Row, error: grpc.RpcError) -> None:
    text = error.details()
    assert error.code() is row.status, text
    assert text
    if row.status is UNIMPLEMENTED and row.reason == "UNIMPLEMENTED":
        return  # gRPC's own answer
    parts = details(error)
    info = parts["ErrorInfo"]
    assert (info.reason, info.domain) == (row.reason, "shardcall"), text
    assert f"ERROR_REASON_{info.reason}" in error_pb2.ErrorReason.keys()  # noqa: SIM118  # an enum is no dictionary
    if row.status is INVALID:
        (violation,) = parts["BadRequest"].field_violations
        assert violation.field == row.field, text
        assert violation.description
    metadata = error.trailing_metadata()
    assert sum(len(key) + len(value) for key, value in metadata) + len(text.encode()) < _LIMIT_BYTES
    assert "shardcall-timing-bin" in dict(metadata)
    assert not (leak := SERVER_DETAILS.search(text)), f"{leak} in {text}"
    assert all(c.isprintable() for c in text), text


@pytest.mark.parametrize("table", TABLES)
def test_invalid_requests_are_refused_with_their_reasons_and_fields(channel, table):
    wrong = []
    for row in TABLES[table]:
        try:
            check(row, refusal(channel, row))
        except AssertionError as error:
            wrong.append(f"{row.name} ({row.method}): {error}")
    assert not wrong, f"{len(wrong)} of {len(TABLES[table])} rows:\n" + "\n\n".join(wrong)


def test_every_method_with_bad_input_is_in_the_tables():
    rows = [row for table in TABLES.values() for row in table]
    assert len(rows) >= 300
    assert len({(row.name, row.method) for row in rows}) == len(rows), "two rows of one name"
    assert not {*METHODS} - {row.method for row in rows}
