"""Tokens that are added and revoked while the server serves, and the files and logs that show them."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from end_to_end.messages import chunk, header, open_channel
from end_to_end.processes import wait_for
from faults.token_servers import is_accepted
from typer.testing import CliRunner

import shardcall as sc
from shardcall.cli.app import make_app
from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc
from shardcall_core.wire import token_file


def shardcall_token(path: Path, *arguments: str) -> str:
    ended = CliRunner().invoke(make_app(), ["token", *arguments, "--token-file", str(path)])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_a_token_is_added_and_removed_without_a_restart(served):
    server, path = served.server, served.path
    shardcall_token(path, "add", "bob", "--scopes", "run")
    token = shardcall_token(path, "show", "bob").strip()
    wait_for(lambda: is_accepted(server, token))
    with (
        sc.connect(server.address, token=token) as client,
        sc.connect(server.address, token=token, call_stream=False) as unary,
    ):
        for one in (client, unary):
            np.testing.assert_array_equal(one.diff([1.0, 4.0]).array, [3.0])
        assert "bob: run" in shardcall_token(path)
        assert token not in shardcall_token(path)
        assert shardcall_token(path, "remove", "bob") == "removed bob\n"
        wait_for(lambda: not is_accepted(server, token))
        for one in (client, unary):
            with pytest.raises(sc.AccessDeniedError, match="was removed"):
                one.diff([1.0, 4.0])
    assert is_accepted(server, served.user_token())


def test_a_call_in_progress_is_answered_after_its_token_was_removed(served):
    bob, removed = served.add("bob"), threading.Event()

    def upload() -> Iterator[kernel_service_pb2.ExecuteStreamRequest]:
        yield header([4, 100])
        removed.wait(60)
        yield chunk(0, 0, 3200)

    address = served.server.address
    (admin,) = token_file.read(token_file.admin_path(str(served.path)))
    with open_channel(address, token=bob) as channel, sc.connect(address, token=admin.token) as one:
        answers = kernel_service_pb2_grpc.KernelServiceStub(channel).ExecuteStream(upload(), timeout=120)
        wait_for(lambda: one.usage().calls == 1)
        served.remove("bob")
        wait_for(lambda: not is_accepted(served.server, bob))
        removed.set()
        assert [message.WhichOneof("message") for message in answers] == ["header", "chunk", "timing"]


def test_a_principal_whose_token_is_new_has_its_arrays_still(served):
    server, old = served.server, served.add("bob")
    with sc.connect(server.address, token=old) as before:
        kept = before.put(np.arange(4.0))
        new = served.add("bob")
        wait_for(lambda: not is_accepted(server, old))
        with sc.connect(server.address, token=new) as after:
            np.testing.assert_array_equal(after.get(kept.handle), np.arange(4.0))
