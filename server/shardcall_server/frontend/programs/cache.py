"""The programs that the mesh holds compiled, and which calls find them."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future

from shardcall.v1 import array_pb2, kernel_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.programs.auto import Decisions, Preparation
from shardcall_server.frontend.programs.autotuner import Autotuner
from shardcall_server.frontend.programs.cache_entry import HIT, CachedProgram, CacheEntry, Words, call_digest, miss
from shardcall_server.frontend.programs.call_history import CallHistory
from shardcall_server.frontend.programs.counts import ProgramCounts
from shardcall_server.frontend.programs.disk_use import DiskUse
from shardcall_server.frontend.workers.session import MeshSession, SessionEndedError, mesh_restarted
from shardcall_server.link.wire import decode_operand_types
from shardcall_server.settings import client_share
from shardcall_worker.v1 import link_pb2

_MAX_ALIASES = 64
_MAX_PREPARING = 64  # compilations go on when their callers have left
_MAX_PREPARING_PER_CLIENT = 48
_MAX_WORDS = 1024
_MAX_WORDS_BYTES = 4096
_UNKNOWN = (kernel_pb2.KernelCall(), b"")


class ProgramCache:
    """Least-recently-used programs of one session, bounded by count and bytes.

    Where one client had more than three quarters of the programs compiled, it is its own that go first.

    The front end decides what the mesh forgets, and tells it in the order of launches; so a program found
    here and not evicted when its execution is sent is there when the execution arrives.

    Args:
        session: the mesh that holds the programs.
        max_programs: the most that are kept.
        max_bytes: the most bytes they may take together, at a guess.
        max_call_bytes: the most bytes of operands and results of one call.
        autotuner: times strategies for calls that leave the choice to the server; None goes by the kernels' rules.
        max_device_bytes: the most that a program may take on the devices; 0 for what they have.
        hot: told what is called; None where nobody wants to know.
        disk_use: told what became of the programs looked for on disk.
        counts: of what happens to programs.
    """

    def __init__(
        self,
        session: MeshSession,
        max_programs: int,
        max_bytes: int,
        max_call_bytes: int,
        autotuner: Autotuner | None = None,
        max_device_bytes: int = 0,
        hot: CallHistory | None = None,
        disk_use: DiskUse | None = None,
        counts: ProgramCounts | None = None,
    ) -> None:
        self._session = session
        self._max_programs = max_programs
        self._max_bytes = max_bytes
        self._max_call_bytes = max_call_bytes
        self._max_device_bytes = max_device_bytes
        self._call_history = hot
        self._disk_use = disk_use
        self._counts = counts
        self._decisions = Decisions(self, session, autotuner) if autotuner else None
        self._by_key: OrderedDict[str, CachedProgram] = OrderedDict()
        self._by_call: dict[bytes, CacheEntry] = {}
        self._by_words: OrderedDict[Words, tuple[kernel_pb2.KernelCall, bytes]] = OrderedDict()
        self._preparing: dict[bytes, Preparation] = {}
        self._bytes = 0

    def recall(self, words: Words) -> tuple[kernel_pb2.KernelCall, CacheEntry] | None:
        """The completed call and the program of one that was said in the same words not long ago."""
        with self._session.launch_lock:
            completed, digest = self._by_words.get(words, _UNKNOWN)
            found = self._by_call.get(digest)
            if found is None:
                return None
            self._by_words.move_to_end(words)
            self._by_key.move_to_end(found.program.key)
        if self._call_history is not None:
            self._call_history.touch(digest)
        return completed, found

    def remember(self, words: Words, completed: kernel_pb2.KernelCall, operands: Sequence[array_pb2.ArrayType]) -> None:
        """Makes `recall` know a call, unless its words are long."""
        if len(words[0]) > _MAX_WORDS_BYTES:
            return
        with self._session.launch_lock:
            self._by_words[words] = completed, call_digest(completed, operands, stays=words[2])
            if len(self._by_words) > _MAX_WORDS:
                self._by_words.popitem(last=False)

    def __len__(self) -> int:
        return len(self._by_key)

    def find(
        self,
        call: kernel_pb2.KernelCall,
        operands: Sequence[array_pb2.ArrayType],
        owner: str = "",
        *,
        stays: bool = False,
    ) -> CacheEntry | Future[CacheEntry]:
        """The program of a call, or the future of it: one compilation runs however many ask.

        Args:
            call: what is to run, with its mesh.
            operands: their types.
            owner: whose compilation it is, if there has to be one; empty for the server's own.
            stays: whether some of its arrays stay on the mesh, so that they may be larger than what travels. The caller
                checks what does.

        Raises:
            SessionEndedError: the mesh is gone.
            CallError: too many programs are being compiled.
        """
        digest = call_digest(call, operands, stays=stays)
        found = self.look_up(digest, self._command(call, operands, stays=stays), owner)
        if self._call_history is not None:
            self._call_history.note_when_found(digest, call, operands, found)
        return found

    def prepare_ahead(
        self, call: kernel_pb2.KernelCall, operands: Sequence[array_pb2.ArrayType]
    ) -> CacheEntry | Future[CacheEntry]:
        """As `find`, for a call that nobody has made yet."""
        return self.look_up(call_digest(call, operands), self._command(call, operands))

    def _command(
        self, call: kernel_pb2.KernelCall, operands: Sequence[array_pb2.ArrayType], *, stays: bool = False
    ) -> link_pb2.Prepare:
        return link_pb2.Prepare(
            call=call,
            operands=operands,
            max_call_bytes=0 if stays else self._max_call_bytes,
            max_device_bytes=self._max_device_bytes,
        )

    def look_up(self, digest: bytes, prepare: link_pb2.Prepare, owner: str = "") -> CacheEntry | Future[CacheEntry]:
        """As `find`, for a command and what its program is to be found by."""
        with self._session.launch_lock:
            known = self._by_call.get(digest)
            if known is not None:
                self._by_key.move_to_end(known.program.key)
                return known
            preparation = self._preparing.get(digest)
            if preparation is None:
                self._check_room(owner)
                # Kept before it is sent: the answer may be there by the time that sending returns.
                preparation = self._preparing[digest] = Preparation(prepare, owner)
                self._send(digest, preparation)
            return preparation.found

    def known(self, digest: bytes) -> CacheEntry | None:
        """The program that a call finds without asking the mesh."""
        return self._by_call.get(digest)

    def name(self, digest: bytes, found: CacheEntry) -> None:
        """Has a call find a program from now on, unless that has been evicted."""
        program = found.program
        if program.evicted:
            return
        before = self._by_call.get(digest)
        self._by_call[digest] = CacheEntry(program, found.plan, HIT)
        program.aliases[digest] = None
        if before is not None and before.program is not program:
            self._forget_alias(before.program, digest)
        if len(program.aliases) > _MAX_ALIASES:
            del self._by_call[program.aliases.popitem(last=False)[0]]

    def unname(self, digest: bytes) -> None:
        """Has a call find nothing from now on."""
        found = self._by_call.pop(digest, None)
        if found is not None:
            self._forget_alias(found.program, digest)

    def go_on(self, digest: bytes) -> Future[CacheEntry] | None:
        """What the calls wait for that `Decisions` held; they are to be told by the caller."""
        preparation = self._preparing.pop(digest, None)
        return preparation.found if preparation else None

    def _check_room(self, owner: str) -> None:
        own = sum(preparation.owner == owner for preparation in self._preparing.values()) if owner else 0
        for reason, compiled, limit, whose in (
            (Reason.SERVER_BUSY, len(self._preparing), _MAX_PREPARING, "programs"),
            (Reason.QUOTA_EXCEEDED, own, _MAX_PREPARING_PER_CLIENT, "programs for this client"),
        ):
            if compiled >= limit:
                raise CallError(
                    reason,
                    f"the mesh compiles {limit} {whose} already; repeat the call when some are done",
                    metadata={"limit": "programs being compiled", "allowed": str(limit)},
                )

    def _send(self, digest: bytes, preparation: Preparation) -> None:
        try:
            answer = self._session.command(link_pb2.FrontEndMessage(prepare=preparation.command))
        except BaseException:
            del self._preparing[digest]
            raise
        answer.add_done_callback(lambda done: self._prepared(digest, preparation, done))

    def _prepared(self, digest: bytes, preparation: Preparation, answer: Future[link_pb2.WorkerMessage]) -> None:
        try:
            with self._session.launch_lock:
                outcome = self._outcome(digest, preparation, answer)
        except SessionEndedError:
            preparation.found.set_exception(mesh_restarted())
        except Exception as error:  # noqa: BLE001  # whatever it is, nobody may wait for ever
            preparation.found.set_exception(error)
        else:
            if outcome is not None:
                preparation.found.set_result(outcome)
        finally:
            if preparation.found.done():
                with self._session.launch_lock:
                    self._preparing.pop(digest, None)

    def _outcome(
        self, digest: bytes, preparation: Preparation, answer: Future[link_pb2.WorkerMessage]
    ) -> CacheEntry | None:
        """What an answer leads to; None where the mesh is asked once more, or strategies are timed first."""
        try:
            message = answer.result()
        except CallError as error:
            preparation.refused(error)
            self._send(digest, preparation)
            return None
        if message.WhichOneof("answer") == "candidates":
            choice = self._decisions.recall(message.candidates) if self._decisions else None
            preparation.choose_from(message.candidates, choice)
            self._send(digest, preparation)
            return None
        if message.prepared.plan.key_digest in preparation.evicted:
            # The mesh found the program before it read that it should forget it: ask once more.
            preparation.evicted.clear()
            self._send(digest, preparation)
            return None
        preparation.give_reason(message.prepared.plan)
        found = self._admit(message.prepared, preparation.owner)
        if self._decisions and self._decisions.hold(digest, preparation, found):
            return None
        self.name(digest, found)
        return found

    def _admit(self, prepared: link_pb2.Prepared, owner: str) -> CacheEntry:
        if self._disk_use is not None and prepared.HasField("program_store"):
            self._disk_use.note(self._session.epoch, prepared.program_store)
        key = prepared.plan.key_digest
        program = self._by_key.get(key)
        if program is not None:  # known by other words, such as another strategy than "auto"
            answer = HIT
        else:
            # Those of its own client: what others call is not told.
            answer = miss(prepared.plan, [known for known in reversed(self._by_key.values()) if known.owner == owner])
            answer.from_disk = prepared.from_disk
            results = decode_operand_types([result.type for result in prepared.plan.results])
            program = CachedProgram(
                key=key,
                kernel=prepared.plan.kernel,
                parts={part.label: part.value for part in prepared.plan.key},
                results=tuple(r for r in results if r is not None),
                program_bytes=prepared.program_bytes,
                device_bytes=prepared.device_bytes,
                owner=owner,
                known_answers=tuple(prepared.known_answers),
            )
            self._bytes += program.program_bytes
            if self._counts is not None:
                self._counts.admitted(from_disk=prepared.from_disk)
        self._by_key[key] = program
        self._by_key.move_to_end(key)
        while len(self._by_key) > self._max_programs or (self._bytes > self._max_bytes and len(self._by_key) > 1):
            self._evict(self._least_wanted())
        return CacheEntry(program, prepared.plan, answer)

    def _least_wanted(self) -> CachedProgram:
        """The least recently used program, of a client that has more than its share if there is one."""
        owner, count = Counter(program.owner for program in self._by_key.values()).most_common(1)[0]
        has_too_many = count > client_share(len(self._by_key))
        return next(p for p in self._by_key.values() if not has_too_many or p.owner == owner)

    def _forget_alias(self, program: CachedProgram, digest: bytes) -> None:
        program.aliases.pop(digest, None)
        if not program.aliases and not program.evicted:  # no call finds it any more
            self._evict(program)

    def _evict(self, program: CachedProgram) -> None:
        del self._by_key[program.key]
        program.evicted = True
        if self._counts is not None:
            self._counts.evicted += 1
        self._bytes -= program.program_bytes
        for alias in program.aliases:
            del self._by_call[alias]
        for preparation in self._preparing.values():
            preparation.evicted.add(program.key)
        self._session.notify(link_pb2.FrontEndMessage(evict=link_pb2.Evict(key_digest=program.key)))
