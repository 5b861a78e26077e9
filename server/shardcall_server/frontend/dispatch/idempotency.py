"""Calls that change something have their effect once, however often they are sent."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import xxhash
from google.protobuf.message import Message

from shardcall._src.wire.chunk_codec import Chunk
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.rpc.server_call import REQUEST_ID_KEY, ServerCall

Answer = TypeVar("Answer", bound=Message | bytes | Sequence[Message | bytes])

_MAX_ANSWERS = 4096
_MAX_BYTES = 16 << 20
_KEEP_S = 600.0  # far longer than any client goes on repeating
_FAILED = object()


class _Key(NamedTuple):
    """What tells a call from all others: connections do not, since a repeated call comes by another one."""

    principal: str
    request_id: str


class HashedChunks(Iterator[Any]):
    """The messages of a stream, whose chunks are hashed as they are read.

    Args:
        messages: those after the header.
    """

    def __init__(self, messages: Iterator[Any]) -> None:
        self._messages = messages
        self._hash = xxhash.xxh3_128()
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
class _First:
    """The first call of a key.

    Attributes:
        digest: of its request.
        chunks: that followed the request; None for a request of one message.
        answer: what it was answered, or `_FAILED`.
        nbytes: of the answer.
        done_at: when that was, on the table's clock.
    """

    digest: bytes
    chunks: HashedChunks | None = None
    answer: Future[Any] = field(default_factory=Future)
    nbytes: int = 0
    done_at: float = 0.0


class IdempotencyTable:
    """The answers of calls that change something, by request id, for when they are sent again.

    What failed has changed nothing, so it is not kept: its repetition is run. When there are too many answers, those go
    first of the principal who has most, the oldest of them first.

    Args:
        max_answers: how many are kept.
        max_bytes: of them all.
        keep_s: how long.
        clock: seconds that never go back.
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
        self._lock = threading.Lock()
        self._firsts: dict[_Key, _First] = {}
        self._done: OrderedDict[_Key, _First] = OrderedDict()
        self._counts: Counter[str] = Counter()  # by principal, as the next
        self._bytes: Counter[str] = Counter()

    def once(
        self, call: ServerCall, request: Message, run: Callable[[], Answer], chunks: HashedChunks | None = None
    ) -> Answer:
        """The answer of a call: of its first sending, if this is another.

        Args:
            call: whose request id tells which call it is.
            request: of the call, or the header of its stream; must be the same each time.
            run: does what the call asks for; reads all of the chunks.
            chunks: what follows the header of a stream; must hold the same bytes each time.

        Raises:
            CallError: REQUEST_ID_REUSED: another call came by this id; or what ``run`` raises.
        """
        key = _Key(call.principal_name, call.request_id)
        ours = _First(_digest(request), chunks)
        while True:
            with self._lock:
                self._forget_old()
                first = self._firsts.setdefault(key, ours)
            if first is ours:
                return self._run(key, ours, run)
            if first.digest != ours.digest:
                raise _reused(key, "another call")
            answer = call.wait(first.answer, "waiting for the same call, which was sent before")
            if answer is _FAILED:
                continue
            if chunks is not None and first.chunks is not None and not _are_same(chunks, first.chunks, call):
                raise _reused(key, "a call with other chunks")
            return answer  # type: ignore[no-any-return]  # of the same request

    def _run(self, key: _Key, first: _First, run: Callable[[], Answer]) -> Answer:
        try:
            answer = run()
        except BaseException:
            with self._lock:
                del self._firsts[key]
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
                    key = self._oldest_of_most(self._counts)
                elif self._bytes.total() > self._max_bytes:
                    key = self._oldest_of_most(self._bytes)
                else:
                    return
            first = self._done.pop(key)
            del self._firsts[key]
            self._add(key, -1, -first.nbytes)

    def _oldest_of_most(self, counts: Counter[str]) -> _Key:
        """The oldest answer of the principal who has most: nobody makes others' calls be forgotten."""
        ((greedy, _),) = counts.most_common(1)
        return next(key for key in self._done if key.principal == greedy)

    def _add(self, key: _Key, answers: int, nbytes: int) -> None:
        self._counts[key.principal] += answers
        self._bytes[key.principal] += nbytes
        if not self._counts[key.principal]:
            del self._counts[key.principal], self._bytes[key.principal]


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
        f"{what} came by metadata {REQUEST_ID_KEY} {key.request_id!r}; give every call an id of its own, and repeat it "
        "with the same request",
        field=REQUEST_ID_KEY,
    )


def _digest(request: Message) -> bytes:
    digest = hashlib.sha256(request.DESCRIPTOR.full_name.encode())
    digest.update(request.SerializeToString(deterministic=True))
    return digest.digest()


def _nbytes(answer: Message | bytes | Sequence[Message | bytes]) -> int:
    if isinstance(answer, bytes):
        return len(answer)
    return answer.ByteSize() if isinstance(answer, Message) else sum(map(_nbytes, answer))
