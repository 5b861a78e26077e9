"""A call stream whose token expires while it is open, or whose client goes while a call of it is not answered."""

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
from end_to_end.raw_stream import cancel, delete, prepare, put
from google.rpc import status_pb2
from server.refusals import refusal

from shardcall.v1 import call_stream_pb2
from shardcall_core.wire.token_fields import TokenFields, parse_time
from shardcall_core.wire.token_file import Entry
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.tokens import Tokens
from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.frontend.services.call_stream import ServerCallStream, StreamLimits
from shardcall_server.frontend.services.stream_item import StreamItem

ADA = Entry.make("ada", ["run", "arrays"], TokenFields(expires=parse_time("", "2027-01-01T00:00:00Z")))
X = np.arange(4.0)
LIMITS = StreamLimits(max_calls=2, max_bytes=1 << 20, max_prepared_calls=4, max_call_s=60.0)
ROUNDS = 3
"""The number of waits of a stream whose client has gone after which the test fails."""


class Stream:
    """A stream of ada, by a clock that the tests set, without threads."""

    def __init__(self) -> None:
        self.now = 0.0
        self.deleted: list[bytes] = []
        self.tokens = Tokens([ADA])
        gate = Gate(self.tokens, lambda: self.now)
        services = SimpleNamespace(
            gate=gate,
            array_table=None,
            budget=None,
            session=lambda: None,
            recorder=SimpleNamespace(finish=lambda *_: None),
        )
        metadata = (("authorization", f"Bearer {ADA.token}"),)
        context = SimpleNamespace(peer=lambda: "here", invocation_metadata=lambda: metadata)
        principal = gate.admit("/shardcall.v1.KernelService/CallStream", metadata)
        self.stream = ServerCallStream(cast(Any, services), LIMITS, cast(Any, context), principal, self.tokens.version)
        arrays = SimpleNamespace(delete=lambda _, handles, *__, **___: self.deleted.extend(handles))
        self.stream._arrays = cast(Any, arrays)

    def send(self, *items: call_stream_pb2.CallStreamItem) -> None:
        self.stream._take(call_stream_pb2.CallStreamRequest(items=items).SerializeToString())

    def failures(self) -> dict[int, str]:
        """Returns the messages of the calls that have failed, by their numbers."""
        frame = call_stream_pb2.CallStreamResponse()
        self.stream._forget(self.stream._answers.gather(frame))
        return {answer.number: status_pb2.Status.FromString(answer.status).message for answer in frame.answers}


def test_a_new_item_fails_and_deletes_nothing():
    stream = Stream()
    stream.send(prepare(), delete(bytes(16)))
    stream.now = 2e9
    stream.send(put(1, X, bytes(16)), cancel(7), delete(b"d" * 16))
    (message,) = stream.failures().values()
    assert "the call's token, of ada, expired at 2027-01-01T00:00:00Z" in message
    assert stream.deleted == [bytes(16)]


def test_a_client_that_sends_on_without_reading_is_cut_off():
    stream = Stream()
    stream.now = 2e9
    for number in range(2):
        stream.send(put(number, X, bytes(16)))
    assert "expired at" in refusal(stream.send, put(2, X, bytes(16))).message


def test_a_later_end_in_the_file_serves_the_stream_again_and_a_removal_ends_it():
    stream = Stream()
    stream.now = 2e9
    stream.tokens.replace([Entry("ada", ADA.scopes, ADA.token)])
    stream.send(delete(b"d" * 16))
    assert stream.deleted == [b"d" * 16]
    stream.tokens.replace([Entry.make("bob", ["run"])])
    assert "was removed" in refusal(stream.send, delete(b"d" * 16)).message


def test_a_client_that_goes_behind_its_half_close_ends_the_stream():
    gate = SimpleNamespace(version=0, has_expired=Mock(side_effect=[False] * ROUNDS))
    services = SimpleNamespace(gate=gate, array_table=None, budget=None, drain=Drain())
    context = SimpleNamespace(peer=lambda: "here", invocation_metadata=tuple, is_active=lambda: False)
    stream = ServerCallStream(cast(Any, services), LIMITS, cast(Any, context), None, 0)
    item = stream._items[1] = StreamItem("here", 1, 0)
    stream.read(iter(()))  # gRPC raises nothing here, whether the client has half-closed or gone
    assert list(stream.frames()) == [b""]
    stream.close()
    assert item.is_cancelled
