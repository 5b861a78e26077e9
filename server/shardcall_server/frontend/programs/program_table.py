"""The table of the programs that a mesh holds."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shardcall_core.locks import check_held
from shardcall_server.frontend.programs.cache_entry import HIT, CachedProgram, CacheEntry
from shardcall_server.frontend.programs.keys import CallKey, ProgramKey
from shardcall_server.settings import client_share

_PLAN_FACTOR = 15  # the memory of a plan, in bytes of its message; a program of 600 nodes has 57 kB


@dataclass(frozen=True)
class ProgramLimits:
    """Bounds of a mesh's programs.

    Attributes:
        max_programs: programs that are kept.
        max_bytes: their estimated bytes together, with the plans of their calls.
        max_call_bytes: bytes of operands and results of one call.
        max_device_bytes: bytes on the devices while a program runs; 0 for what the devices have.
        max_aliases: calls that find one program.
    """

    max_programs: int
    max_bytes: int
    max_call_bytes: int
    max_device_bytes: int = 0
    max_aliases: int = 64


class ProgramTable:
    """Least-recently-used programs, bounded by count and bytes, and the calls that find them.

    If one client had more than three quarters of the programs compiled, its own are evicted first.

    Args:
        on_evict: called with every program that is evicted.
        launch_lock: the launch lock of the session; callers hold it, except for the numbers of programs and `version`.

    Attributes:
        version: changes when a call finds another entry, or none.
    """

    def __init__(
        self, limits: ProgramLimits, on_evict: Callable[[CachedProgram], None], launch_lock: threading.RLock
    ) -> None:
        self._launch_lock = launch_lock
        self._limits = limits
        self._on_evict = on_evict
        self._programs: OrderedDict[ProgramKey, CachedProgram] = OrderedDict()
        self._entries: dict[CallKey, CacheEntry] = {}
        self._owners: Counter[str] = Counter()  # of the programs
        self._bytes = 0  # of the programs, and of large plans
        self.version = 0

    def __len__(self) -> int:
        return len(self._programs)

    def __iter__(self) -> Iterator[CachedProgram]:
        """Yields the programs, the most recently used first."""
        check_held(self._launch_lock)
        return reversed(self._programs.values())

    def by_owner(self) -> dict[str, int]:
        """Returns the number of programs that each client had compiled; those of the server itself under ""."""
        return dict(self._owners)

    def peek(self, call: CallKey) -> CacheEntry | None:
        """Returns the entry of a call, and leaves the order of use as it is."""
        check_held(self._launch_lock)
        return self._entries.get(call)

    def get(self, call: CallKey) -> CacheEntry | None:
        """Returns the entry of a call, whose program then is the most recently used."""
        check_held(self._launch_lock)
        entry = self._entries.get(call)
        if entry is not None:
            self._programs.move_to_end(entry.program.key)
        return entry

    def touch(self, program: CachedProgram) -> None:
        """Makes a program that is not evicted the most recently used."""
        check_held(self._launch_lock)
        self._programs.move_to_end(program.key)

    def get_program(self, key: ProgramKey) -> CachedProgram | None:
        """Returns the program of a key."""
        check_held(self._launch_lock)
        return self._programs.get(key)

    def add(self, program: CachedProgram) -> None:
        """Makes a program, new or not, the most recently used, and evicts those beyond the bounds."""
        check_held(self._launch_lock)
        if program.key not in self._programs:
            self._programs[program.key] = program
            self._owners[program.owner] += 1
            self._bytes += program.program_bytes
        self._programs.move_to_end(program.key)
        self._evict_excess()

    def _evict_excess(self) -> None:
        while len(self) > self._limits.max_programs or (self._bytes > self._limits.max_bytes and len(self) > 1):
            self._evict(self._eviction_victim())

    def alias(self, call: CallKey, entry: CacheEntry) -> None:
        """Makes a call find a program, unless that has been evicted."""
        check_held(self._launch_lock)
        program = entry.program
        if program.evicted:
            return
        self.version += 1
        before = self._entries.get(call)
        self._entries[call] = CacheEntry(program, entry.plan, HIT)
        nbytes = _PLAN_FACTOR * entry.plan.ByteSize()
        self._bytes += nbytes - program.aliases.get(call, 0)
        program.aliases[call] = nbytes
        if before is not None and before.program is not program:
            self._remove_alias(before.program, call)
        if len(program.aliases) > self._limits.max_aliases:
            oldest, nbytes = program.aliases.popitem(last=False)
            del self._entries[oldest]
            self._bytes -= nbytes
        self._evict_excess()

    def pin(self, program: CachedProgram) -> None:
        """Keeps a program without aliases until it is unpinned; the bounds still apply."""
        check_held(self._launch_lock)
        program.pins += 1

    def unpin(self, program: CachedProgram) -> None:
        """Ends a `pin`; evicts a program that is neither pinned nor aliased."""
        check_held(self._launch_lock)
        program.pins -= 1
        self._evict_unused(program)

    def _remove_alias(self, program: CachedProgram, call: CallKey) -> None:
        self._bytes -= program.aliases.pop(call, 0)
        self._evict_unused(program)

    def _evict_unused(self, program: CachedProgram) -> None:
        if not program.aliases and not program.pins and not program.evicted:
            self._evict(program)

    def _eviction_victim(self) -> CachedProgram:
        """Returns the least recently used program, of a client that has more than its share if there is one."""
        owner, count = Counter(program.owner for program in self).most_common(1)[0]
        has_too_many = count > client_share(len(self))
        return next(p for p in self._programs.values() if not has_too_many or p.owner == owner)

    def _evict(self, program: CachedProgram) -> None:
        del self._programs[program.key]
        self.version += 1
        program.evicted = True
        self._owners[program.owner] -= 1
        if not self._owners[program.owner]:
            del self._owners[program.owner]
        self._bytes -= program.program_bytes + sum(program.aliases.values())
        for call in program.aliases:
            del self._entries[call]
        self._on_evict(program)
