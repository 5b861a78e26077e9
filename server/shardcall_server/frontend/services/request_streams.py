"""Streams of inference requests, which end with their token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from shardcall_core.call_error import CallError
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.policy import INFERENCE_SERVICE
from shardcall_server.frontend.rpc.server_call import ServerCall

R = TypeVar("R")
_PATH = f"/{INFERENCE_SERVICE}/ModelStreamInfer"
_Metadata = Sequence[tuple[str, str | bytes]]


class RequestStreams:
    """Checks the token of a stream at each request, and of one that waits for a request whenever `check` is called.

    Args:
        gate: admits them.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._idle: dict[ServerCall, _Metadata] = {}  # those that wait; without a lock, by single operations

    def admitted(self, requests: Iterator[R], call: ServerCall) -> Iterator[R]:
        """Yields the requests of a stream.

        Raises:
            CallError: TOKEN_REQUIRED once its token was removed or has expired.
        """
        metadata = call.metadata
        while True:
            with self._waiting(call, metadata):
                request = next(requests, None)
            if request is None:
                return
            if (error := self._refusal(metadata)) is not None:
                raise error
            yield request

    def check(self) -> None:
        """Ends the streams that wait for a request, and whose token was removed or has expired."""
        for call, metadata in self._idle.copy().items():
            if (error := self._refusal(metadata)) is not None:
                call.cut_off(error)

    @contextmanager
    def _waiting(self, call: ServerCall, metadata: _Metadata) -> Iterator[None]:
        self._idle[call] = metadata
        try:
            yield
        finally:
            del self._idle[call]

    def _refusal(self, metadata: _Metadata) -> CallError | None:
        try:
            self._gate.admit(_PATH, metadata)
        except CallError as error:
            return error
        return None
