"""A call stream whose client goes while a call of it is not answered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.frontend.services.call_stream import ServerCallStream, StreamLimits
from shardcall_server.frontend.services.stream_item import StreamItem

ROUNDS = 3
"""The number of waits of a stream after which the test fails."""


def test_a_client_that_goes_behind_its_half_close_ends_the_stream():
    gate = SimpleNamespace(version=0, has_expired=Mock(side_effect=[False] * ROUNDS))
    services = SimpleNamespace(gate=gate, array_table=None, budget=None, drain=Drain())
    context = SimpleNamespace(peer=lambda: "here", invocation_metadata=tuple, is_active=lambda: False)
    limits = StreamLimits(max_calls=2, max_bytes=1 << 20, max_prepared_calls=4, max_call_s=60.0)
    stream = ServerCallStream(cast(Any, services), limits, cast(Any, context), None, 0)
    item = stream._items[1] = StreamItem("here", 1, 0)
    stream.read(iter(()))  # gRPC raises nothing here, whether the client has half-closed or gone
    assert list(stream.frames()) == [b""]
    stream.close()
    assert item.is_cancelled
