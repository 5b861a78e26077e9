"""Failures of commands as answers."""

from concurrent.futures import CancelledError

from structlog.testing import capture_logs

from shardcall_core.call_error import Reason
from shardcall_server.mesh.failures import failure_of


def test_a_command_that_did_not_begin_before_the_server_stops_is_no_unexpected_failure():
    with capture_logs() as logs:
        failure = failure_of(CancelledError())
    assert (failure.reason, logs) == (Reason.SERVER_DRAINING.value, [])


def test_other_errors_are_logged_with_the_id_of_the_answer():
    with capture_logs() as logs:
        failure = failure_of(RuntimeError("secret"))
    assert failure.reason == Reason.INTERNAL.value
    assert "secret" not in failure.message
    assert [entry["error_id"] for entry in logs] == [failure.metadata["error_id"]]
