"""The states of a recording in the front end."""

from types import SimpleNamespace
from typing import Any, cast

from server.refusals import refusal

from shardcall_core.call_error import Reason
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.services.profile_servicer import ProfileServicer
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2


def test_a_profile_that_is_being_written_has_another_remedy_than_one_that_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    answer: Promise[link_pb2.WorkerMessage] = Promise()
    session = cast(Any, SimpleNamespace(command=lambda _: answer))
    servicer = ProfileServicer(cast(Any, None), cast(Any, None), Settings())

    def message() -> str:
        error = refusal(servicer._begin, session, "ada", 300.0)
        assert error.reason is Reason.PROFILE_STATE
        return error.message

    recording = servicer._begin(session, "ada", 300.0)
    assert r"stop and fetch it with client.profile(directory).stop()" in message()
    assert servicer._claim() is recording
    recording.stop()
    recording.remove()  # its caller has left
    assert "repeat the call in some seconds" in message()
    assert ".stop()" not in message()
    assert "was stopped already, and its files are being written" in refusal(servicer._claim).message
    answer.set_result(link_pb2.WorkerMessage())
    servicer._begin(session, "ada", 300.0).remove()
    assert "no profile is being recorded" in refusal(servicer._claim).message
