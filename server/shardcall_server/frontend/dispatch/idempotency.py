"""Idempotency of mutating calls: a repeated request gets the answer of the first one."""

from __future__ import annotations

import functools
import hashlib
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import xxhash
from google.protobuf.message import Message

from shardcall_core.call_error import CallError, Reason
from shardcall_core.wire.chunk_codec import Chunk
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.rpc.server_call import REQUEST_ID_KEY, ServerCall

Answer = TypeVar("Answer")

_MAX_ANSWERS = 4096
_MAX_BYTES = 16 << 20
_KEEP_S = 600.0  # far longer than any client repeats a call
_FAILED = object()


class _Key(NamedTuple):
    """Identity of a call, without its connection, since a repetition may come by another one."""

    principal: str
    request_id: str


class HashedChunks(Iterator[Any]):
    """The messages of a stream, whose chunks are hashed as they are read.

    Args:
        messages: the messages after the header.
    """

    def __init__(self, messages: Iterator[Any]) -> None:
        self._messages = messages
        self._hash = xxhash.xxh3_128()  # 30 ms of processor time per GiB
        self.nbytes = 0

    def __next__(self) -> Any:
        message = next(self._messages)
        if isinstance(message, Chunk):
            self._hash.update(message.data.data)
            self.nbytes += message.data.size
        return message

    def digest(self) -> bytes:
        """Returns the digest of the bytes read, however they were divided into chunks."""
        return self._hash.digest()


@dataclass
class _FirstExecution:
    """The first execution of a call.

    Attributes:
        digest: the digest of its request.
        chunks: the chunks after the request; None for a request of one message.
        answer: its answer, or `_FAILED`.
        nbytes: the size of the answer.
        done_at: the time of the answer, on the table's clock.
    """

    digest: bytes
    chunks: HashedChunks | None = None
    answer: Promise[Any] = field(default_factory=Promise)
    nbytes: int = 0
    done_at: float = 0.0


class IdempotencyTable:
    """The answers of mutating calls, by request id.

    A failed call has changed nothing, so its answer is not kept and its repetition is executed. If there are too many
    answers, the oldest one of the principal with the most is dropped.

    Args:
        max_answers: the limit of answers.
        max_bytes: the limit of their total size.
        keep_s: the time for which answers are kept, in seconds.
        clock: returns the time in seconds, monotonically.
    """

    def __init__(
        self,
        max_answers: int = _MAX_ANSWERS,
        max_bytes: int = _MAX_BYTES,
        keep_s: float = _KEEP_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_answers = max_answers
        self._max_bytes = max_bytes
        self._keep_s = keep_s
        self._clock = clock
        self._lock = threading.Lock()  # guards all of these; no call runs or continues under it
        self._executions: dict[_Key, _FirstExecution] = {}
        self._done: OrderedDict[_Key, _FirstExecution] = OrderedDict()
        self._counts: Counter[str] = Counter()  # by principal, as is the next
        self._bytes: Counter[str] = Counter()

    async def once(
        self,
        call: ServerCall,
        request: Message | bytes,
        run: Callable[[], Awaitable[Answer]],
        chunks: HashedChunks | None = None,
    ) -> Answer:
        """Executes a call, or returns the answer of its first execution if it is repeated.

        Args:
            call: the server call, identified by its request id.
            request: the request, the header of its stream, or a digest of it; must be the same each time.
            run: executes the call; reads all of the chunks.
            chunks: the messages after the header of a stream; must hold the same bytes each time.

        Raises:
            CallError: REQUEST_ID_REUSED, if another call had this id, or any error of ``run``.
        """
        key = _Key(call.principal_name, call.request_id)
        ours = _FirstExecution(_digest(request), chunks)
        while True:
            with self._lock:
                self._forget_old()
                first = self._executions.setdefault(key, ours)
            if first is ours:
                return await self._run(key, ours, run)
            if first.digest != ours.digest:
                raise _reused(key, "another call")
            answer = await call.wait(first.answer, "waiting for the same call, which was sent before")
            if answer is _FAILED:
                continue
            if chunks is not None and first.chunks is not None and not _are_same(chunks, first.chunks, call):
                raise _reused(key, "a call with other chunks")
            return answer  # type: ignore[no-any-return]  # of the same request

    async def _run(self, key: _Key, first: _FirstExecution, run: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            answer = await run()
        except BaseException:
            with self._lock:
                del self._executions[key]
            first.answer.set_result(_FAILED)
            raise
        with self._lock:
            first.nbytes, first.done_at = _nbytes(answer), self._clock()
            self._done[key] = first
            self._add(key, 1, first.nbytes)
            self._forget_old()
        first.answer.set_result(answer)
        return answer

    def _forget_old(self) -> None:
        while self._done:
            key, oldest = next(iter(self._done.items()))
            if self._clock() - oldest.done_at <= self._keep_s:
                if len(self._done) > self._max_answers:
                    key = self._eviction_candidate(self._counts)
                elif self._bytes.total() > self._max_bytes:
                    key = self._eviction_candidate(self._bytes)
                else:
                    return
            first = self._done.pop(key)
            del self._executions[key]
            self._add(key, -1, -first.nbytes)

    def _eviction_candidate(self, counts: Counter[str]) -> _Key:
        """Returns the oldest key of the principal with the most answers, so that no principal evicts others'."""
        ((principal, _),) = counts.most_common(1)
        return next(key for key in self._done if key.principal == principal)

    def _add(self, key: _Key, answers: int, nbytes: int) -> None:
        self._counts[key.principal] += answers
        self._bytes[key.principal] += nbytes
        if not self._counts[key.principal]:
            del self._counts[key.principal], self._bytes[key.principal]


class RepeatedService(Protocol):
    """A servicer with methods that have an effect once."""

    _idempotency: IdempotencyTable


_Service = TypeVar("_Service", bound=RepeatedService)
_Request = TypeVar("_Request", bound=Message)


def once(
    method: Callable[[_Service, _Request, ServerCall], Answer],
) -> Callable[[_Service, _Request, ServerCall], Answer]:
    """Returns a method of a servicer that is executed once for each request id."""

    @functools.wraps(method)
    def run(self: _Service, request: _Request, call: ServerCall) -> Answer:
        async def execute() -> Answer:
            return method(self, request, call)

        return call.run(self._idempotency.once(call, request, execute))

    return run


def _are_same(chunks: HashedChunks, first: HashedChunks, call: ServerCall) -> bool:
    """Reads the chunks; returns whether they hold the bytes of an earlier call's."""
    for message in chunks:
        call.check("comparing the operands with those that came before")
        if not isinstance(message, Chunk) or chunks.nbytes > first.nbytes:
            return False
    return chunks.digest() == first.digest()


def _reused(key: _Key, what: str) -> CallError:
    return CallError(
        Reason.REQUEST_ID_REUSED,
        f"{what} had metadata {REQUEST_ID_KEY} {key.request_id!r}; give every call an id of its own, and repeat it "
        "with the same request",
        field=REQUEST_ID_KEY,
    )


def _digest(request: Message | bytes) -> bytes:
    if isinstance(request, bytes):
        return request
    digest = hashlib.sha256(request.DESCRIPTOR.full_name.encode())
    digest.update(request.SerializeToString(deterministic=True))
    return digest.digest()


def _nbytes(answer: object) -> int:
    """Returns the size of the messages of an answer; its other parts are shared with other answers."""
    if isinstance(answer, tuple):
        return sum(map(_nbytes, answer))
    if isinstance(answer, Message):
        return answer.ByteSize()
    return len(answer) if isinstance(answer, bytes) else 0
