"""The programs that the mesh holds compiled, and which calls find them."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property

from shardcall.v1 import array_pb2, kernel_pb2, kernel_service_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.session import MeshSession, SessionEndedError, mesh_restarted
from shardcall_server.kernels.layout import ArrayType
from shardcall_server.wire import decode_operand_types
from shardcall_worker.v1 import link_pb2

_MAX_ALIASES = 64
_MAX_PREPARING = 64  # compilations go on when their callers have left
_MAX_WORDS = 1024
_MAX_WORDS_BYTES = 4096
_UNKNOWN = (kernel_pb2.KernelCall(), b"")
_MAX_TOLD = 3  # differences that an explanation names


@dataclass(eq=False)
class CachedProgram:
    """A program that the mesh holds.

    Attributes:
        key: the digest of its key.
        kernel: the name of its kernel.
        parts: the labelled parts of its key.
        results: the types of its results.
        program_bytes: the memory that it takes, at a guess.
        evicted: whether the mesh has been told to forget it; changes under the session's `order`.
        aliases: digests of the calls that find it, oldest first.
    """

    key: str
    kernel: str
    parts: dict[str, str]
    results: tuple[ArrayType, ...]
    program_bytes: int
    evicted: bool = False
    aliases: OrderedDict[bytes, None] = field(default_factory=OrderedDict)

    @property
    def result_bytes(self) -> int:
        """Bytes of all results."""
        return sum(result.nbytes for result in self.results)


@dataclass(frozen=True)
class Found:
    """A program, and how it was found.

    Attributes:
        program: the program.
        plan: what it does, with the reason why this call's strategy is what it is.
        answer: hit or miss, and why.
    """

    program: CachedProgram
    plan: kernel_pb2.Plan
    answer: kernel_pb2.CacheAnswer

    @cached_property
    def plan_field(self) -> bytes:
        """The plan as the field of an `ExecuteResponse`, to be appended to the bytes of its other fields.

        It is large beside a small call's arrays, and the same in every answer.
        """
        return kernel_service_pb2.ExecuteResponse(plan=self.plan).SerializeToString()


Words = tuple[bytes, tuple[ArrayType | None, ...]]
"""A call as its sender said it: the bytes of its message, and the types of its operands."""


def call_digest(call: kernel_pb2.KernelCall, operands: Sequence[array_pb2.ArrayType]) -> bytes:
    """What a call is looked up by: all that was said, with "auto" and unset specs in their places.

    Many such digests may lead to one program. Values are no part of it.
    """
    sha = hashlib.sha256()
    for message in (call, *operands):
        data = message.SerializeToString(deterministic=True)
        sha.update(len(data).to_bytes(8, "little"))
        sha.update(data)
    return sha.digest()


@dataclass(eq=False)
class _Preparation:
    """A compilation that calls wait for.

    Attributes:
        command: what was sent to the mesh.
        found: what the calls wait for.
        evicted: keys evicted since the command was sent.
    """

    command: link_pb2.Prepare
    found: Future[Found] = field(default_factory=Future)
    evicted: set[str] = field(default_factory=set)


class ProgramCache:
    """Least-recently-used programs of one session, bounded by count and bytes.

    The front end decides what the mesh forgets, and tells it in the order of launches; so a program found
    here and not evicted when its execution is sent is there when the execution arrives.

    Args:
        session: the mesh that holds the programs.
        max_programs: the most that are kept.
        max_bytes: the most bytes they may take together, at a guess.
        max_call_bytes: the most bytes of operands and results of one call.
    """

    def __init__(self, session: MeshSession, max_programs: int, max_bytes: int, max_call_bytes: int) -> None:
        self._session = session
        self._max_programs = max_programs
        self._max_bytes = max_bytes
        self._max_call_bytes = max_call_bytes
        self._by_key: OrderedDict[str, CachedProgram] = OrderedDict()
        self._by_call: dict[bytes, Found] = {}
        self._by_words: OrderedDict[Words, tuple[kernel_pb2.KernelCall, bytes]] = OrderedDict()
        self._preparing: dict[bytes, _Preparation] = {}
        self._bytes = 0

    def recall(self, words: Words) -> tuple[kernel_pb2.KernelCall, Found] | None:
        """The completed call and the program of one that was said in the same words not long ago."""
        with self._session.order:
            completed, digest = self._by_words.get(words, _UNKNOWN)
            found = self._by_call.get(digest)
            if found is None:
                return None
            self._by_words.move_to_end(words)
            self._by_key.move_to_end(found.program.key)
            return completed, found

    def remember(self, words: Words, completed: kernel_pb2.KernelCall, operands: Sequence[array_pb2.ArrayType]) -> None:
        """Makes `recall` know a call, unless its words are long."""
        if len(words[0]) > _MAX_WORDS_BYTES:
            return
        with self._session.order:
            self._by_words[words] = completed, call_digest(completed, operands)
            if len(self._by_words) > _MAX_WORDS:
                self._by_words.popitem(last=False)

    def find(self, call: kernel_pb2.KernelCall, operands: Sequence[array_pb2.ArrayType]) -> Found | Future[Found]:
        """The program of a call, or the future of it: one compilation runs however many ask.

        Raises:
            SessionEndedError: the mesh is gone.
            CallError: too many programs are being compiled.
        """
        digest = call_digest(call, operands)
        with self._session.order:
            known = self._by_call.get(digest)
            if known is not None:
                self._by_key.move_to_end(known.program.key)
                return known
            preparation = self._preparing.get(digest)
            if preparation is None:
                if len(self._preparing) >= _MAX_PREPARING:
                    raise CallError(
                        Reason.SERVER_BUSY,
                        f"the mesh compiles {_MAX_PREPARING} programs already; repeat the call when some are done",
                        metadata={"limit": "programs being compiled"},
                    )
                prepare = link_pb2.Prepare(call=call, operands=operands, max_call_bytes=self._max_call_bytes)
                # Kept before it is sent: the answer may be there by the time that sending returns.
                preparation = self._preparing[digest] = _Preparation(prepare)
                self._send(digest, preparation)
            return preparation.found

    def _send(self, digest: bytes, preparation: _Preparation) -> None:
        try:
            answer = self._session.command(link_pb2.FrontEndMessage(prepare=preparation.command))
        except BaseException:
            del self._preparing[digest]
            raise
        answer.add_done_callback(lambda done: self._prepared(digest, preparation, done))

    def _prepared(self, digest: bytes, preparation: _Preparation, answer: Future[link_pb2.WorkerMessage]) -> None:
        try:
            with self._session.order:
                prepared = answer.result().prepared
                if prepared.plan.key_digest in preparation.evicted:
                    # The mesh found the program before it read that it should forget it: ask once more.
                    preparation.evicted.clear()
                    self._send(digest, preparation)
                    return
                outcome = self._insert(digest, prepared)
        except SessionEndedError:
            preparation.found.set_exception(mesh_restarted())
        except Exception as error:  # noqa: BLE001  # whatever it is, nobody may wait for ever
            preparation.found.set_exception(error)
        else:
            preparation.found.set_result(outcome)
        finally:
            if preparation.found.done():
                with self._session.order:
                    self._preparing.pop(digest, None)

    def _insert(self, digest: bytes, prepared: link_pb2.Prepared) -> Found:
        key = prepared.plan.key_digest
        program = self._by_key.get(key)
        if program is not None:  # known by other words, such as another strategy than "auto"
            answer = _HIT
        else:
            answer = kernel_pb2.CacheAnswer(
                outcome=kernel_pb2.CACHE_OUTCOME_MISS, explanation=self._explain(prepared.plan)
            )
            results = decode_operand_types([result.type for result in prepared.plan.results])
            program = CachedProgram(
                key=key,
                kernel=prepared.plan.kernel,
                parts={part.label: part.value for part in prepared.plan.key},
                results=tuple(r for r in results if r is not None),
                program_bytes=prepared.program_bytes,
            )
            self._bytes += program.program_bytes
        self._by_key[key] = program
        self._by_key.move_to_end(key)
        self._by_call[digest] = Found(program, prepared.plan, _HIT)
        program.aliases[digest] = None
        if len(program.aliases) > _MAX_ALIASES:
            del self._by_call[program.aliases.popitem(last=False)[0]]
        while len(self._by_key) > self._max_programs or (self._bytes > self._max_bytes and len(self._by_key) > 1):
            self._evict()
        return Found(program, prepared.plan, answer)

    def _evict(self) -> None:
        key, program = self._by_key.popitem(last=False)
        program.evicted = True
        self._bytes -= program.program_bytes
        for alias in program.aliases:
            del self._by_call[alias]
        for preparation in self._preparing.values():
            preparation.evicted.add(key)
        self._session.tell(link_pb2.FrontEndMessage(evict=link_pb2.Evict(key_digest=key)))

    def _explain(self, plan: kernel_pb2.Plan) -> str:
        """Why this key was not there: what differs from the nearest key that is."""
        parts = {part.label: part.value for part in plan.key}
        nearest = min(
            (_differences(parts, p.parts) for p in reversed(self._by_key.values()) if p.kernel == plan.kernel),
            key=len,
            default=None,
        )
        if nearest is None:
            return f"no program of kernel {plan.kernel} was cached"
        told = "; ".join(
            f"{label}: {parts.get(label, 'none')} here, {other} there" for label, other in nearest[:_MAX_TOLD]
        )
        more = f"; and {len(nearest) - _MAX_TOLD} more" if len(nearest) > _MAX_TOLD else ""
        return f"the nearest cached program differs in {told}{more}"


_HIT = kernel_pb2.CacheAnswer(outcome=kernel_pb2.CACHE_OUTCOME_HIT)


def _differences(ours: dict[str, str], theirs: dict[str, str]) -> list[tuple[str, str]]:
    return [
        (label, theirs.get(label, "none"))
        for label in dict.fromkeys([*ours, *theirs])
        if ours.get(label) != theirs.get(label)
    ]
