"""The states of a recording in the front end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.services.profile_servicer import ProfileServicer
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2


def test_a_profile_that_is_being_written_has_another_remedy_than_one_that_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    answer: Promise[link_pb2.WorkerMessage] = Promise()
    session = cast(Any, SimpleNamespace(command=lambda _: answer))
    servicer = ProfileServicer(cast(Any, None), cast(Any, None), Settings())

    def refusal() -> str:
        with pytest.raises(CallError) as refused:
            servicer._begin(session, "ada", 300.0)
        assert refused.value.reason is Reason.PROFILE_STATE
        return refused.value.message

    recording = servicer._begin(session, "ada", 300.0)
    assert r"stop and fetch it with client.profile(directory).stop()" in refusal()
    assert servicer._claim() is recording
    recording.stop()
    recording.remove()  # its caller has left
    assert "repeat the call in some seconds" in refusal()
    assert ".stop()" not in refusal()
    with pytest.raises(CallError, match="was stopped already, and its files are being written"):
        servicer._claim()
    answer.set_result(link_pb2.WorkerMessage())
    servicer._begin(session, "ada", 300.0).remove()
    with pytest.raises(CallError, match="no profile is being recorded"):
        servicer._claim()
