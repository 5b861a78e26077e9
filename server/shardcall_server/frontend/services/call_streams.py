"""The call streams of the server: their number, their threads and their ends."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from shardcall.v1 import timing_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.access.floods import FloodGuard
from shardcall_server.frontend.access.principals import Principal
from shardcall_server.frontend.access.token_watch import TokenWatch
from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.frontend.rpc.status import CallStatus
from shardcall_server.frontend.services.call_outcomes import to_call_error
from shardcall_server.frontend.services.call_stream import METHOD, ServerCallStream, StreamLimits
from shardcall_server.frontend.services.streamed_call import StreamServices
from shardcall_server.settings import client_share


class CallStreams:
    """Serves call streams.

    Args:
        services: the parts of the server that streams use.
        limits: the limits of one stream.
        threads: the threads of streams, two for each.
        max_streams: the limit of open streams.
        floods: notified of connections with open streams.
        watch: checks the tokens of open streams.
    """

    def __init__(
        self,
        services: StreamServices,
        limits: StreamLimits,
        threads: CountedThreads,
        max_streams: int,
        floods: FloodGuard,
        watch: TokenWatch,
    ) -> None:
        self._services = services
        self._limits = limits
        self._threads = threads
        self._max_streams = max_streams
        self._floods = floods
        self._lock = threading.Lock()  # guards the next two; streams are checked without it
        self._by_owner: Counter[str] = Counter()
        self._streams: set[ServerCallStream] = set()
        watch.add(self._check_tokens)

    def serve(
        self,
        requests: Iterator[bytes],
        context: grpc.ServicerContext,
        principal: Principal | None,
        tokens_version: int,
    ) -> Iterator[bytes]:
        """Serves one stream, on the thread that sends its answers; arguments as of `ServerCallStream`."""
        began = time.monotonic()
        try:
            self._floods.admit(context.peer())
            if (refusal := self._services.drain.refusal) is not None:
                raise refusal
            with self._counted(principal.name if principal else context.peer()):
                stream = ServerCallStream(self._services, self._limits, context, principal, tokens_version)
                with self._lock:
                    self._streams.add(stream)
                self._threads.submit(stream.read, requests)
                try:
                    yield from stream.frames()
                finally:
                    with self._lock:
                        self._streams.discard(stream)
                    stream.close()
        except Exception as error:  # noqa: BLE001  # the outermost handler
            failure = to_call_error(error)
            status = CallStatus(failure, timing_pb2.Timing(total_seconds=time.monotonic() - began))
            self._services.recorder.refused(METHOD, context.peer(), status.code, failure.reason)
            context.abort_with_status(status)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Returns the number of open streams of each client, and of their unanswered calls."""
        with self._lock:
            streams = list(self._streams)
        totals: dict[str, tuple[int, int]] = {}
        for stream in streams:
            count, unanswered = totals.get(stream.owner, (0, 0))
            totals[stream.owner] = count + 1, unanswered + stream.unanswered
        return totals

    def _check_tokens(self) -> None:
        """Ends the streams whose token was removed; their own threads may be waiting for the client."""
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.check_token()

    @contextmanager
    def _counted(self, owner: str) -> Iterator[None]:
        """Counts a stream during the body.

        Raises:
            CallError: SERVER_BUSY, QUOTA_EXCEEDED.
        """
        with self._lock:
            self._check(owner)
            self._by_owner[owner] += 1
        try:
            yield
        finally:
            with self._lock:
                self._by_owner[owner] -= 1
                if not self._by_owner[owner]:
                    del self._by_owner[owner]

    def _check(self, owner: str) -> None:
        client_limit = client_share(self._max_streams)
        for reason, count, limit, whose in (
            (Reason.SERVER_BUSY, self._by_owner.total(), self._max_streams, "all clients"),
            (Reason.QUOTA_EXCEEDED, self._by_owner.get(owner, 0), client_limit, "this client"),
        ):
            if count >= limit:
                raise CallError(
                    reason,
                    f"{count} call streams of {whose} are open, the maximum; close one, use Execute instead, or start "
                    "the server with a larger --max-call-streams",
                    metadata={"limit": "max_call_streams", "allowed": str(limit)},
                )
