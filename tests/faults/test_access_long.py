"""Servers that ask for no token, private servers, and floods of wrong tokens."""

from __future__ import annotations

import time

import grpc
import numpy as np
import pytest
from end_to_end.messages import call, open_channel, operand
from faults.test_access import UNAUTHENTICATED, WRONG

import shardcall as sc
from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc

pytestmark = pytest.mark.long


def test_who_is_not_asked_is_let_in_on_loopback_only(server_factory):
    server = server_factory("--no-auth", devices=1, why="it asks for no token")
    with open_channel(server.address, token="") as channel:
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        assert stub.Plan(kernel_service_pb2.PlanRequest(call=call(), operands=[operand(np.ones(4)).type]), timeout=60)
    with sc.connect(server.address, token=WRONG) as client:
        x = client.put(np.arange(4.0))
        np.testing.assert_array_equal(x.get(), np.arange(4.0))


def test_a_private_server_knows_its_owner_alone():
    with sc.local(devices=1) as client:
        np.testing.assert_array_equal(client.diff([1.0, 4.0]).array, [3.0])
        with pytest.raises(sc.AccessDeniedError) as caught:
            sc.connect(client.address)
    assert "no server of this user on this machine listens at" in caught.value.message


def test_floods_of_wrong_tokens_fill_no_log_and_block_no_others(server_factory, tmp_path):
    server = server_factory(devices=1, log=tmp_path / "log", why="its log is looked at")
    with sc.connect(server.address) as client, open_channel(server.address, token=WRONG) as channel:
        client.diff([1.0, 4.0])
        begin = channel.unary_unary("/shardcall.v1.KernelService/Execute")
        began = time.monotonic()
        for _ in range(200):
            asked = [begin.future(b"", timeout=60) for _ in range(50)]
            np.testing.assert_array_equal(client.diff([1.0, 4.0]).array, [3.0])
            # A connection that has sent too much without an admitted call is closed, and opened again.
            assert {call.code() for call in asked} <= {UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE}
        elapsed_s = time.monotonic() - began
    lines = (tmp_path / "log").read_text().count("calls were not admitted")
    assert 1 <= lines <= 2 + elapsed_s / 10
