"""The programs of one session, as the calls of clients find them."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from concurrent.futures import Future

from shardcall_server.frontend.programs.cache_entry import CachedProgram, CacheEntry
from shardcall_server.frontend.programs.call_history import CallHistory
from shardcall_server.frontend.programs.counts import ProgramCounts
from shardcall_server.frontend.programs.keys import AbstractCall, RequestKey
from shardcall_server.frontend.programs.program_compiler import ProgramCompiler
from shardcall_server.frontend.programs.program_table import ProgramLimits
from shardcall_server.frontend.workers.session import MeshSession

_MAX_REQUESTS = 1024
_MAX_REQUEST_BYTES = 4096


class ProgramCache:
    """Finds the programs of calls, also by the requests as their senders wrote them.

    Args:
        limits: bounds of its programs.
        counts: counts compilations, loads and evictions.
        call_history: counts the calls; None if they are not counted.

    Attributes:
        call_history: as above; callers that find a program without `get` count it.
        compiler: compiles what is not cached.
        table: the programs that the mesh holds.
    """

    def __init__(
        self,
        session: MeshSession,
        limits: ProgramLimits,
        counts: ProgramCounts | None = None,
        call_history: CallHistory | None = None,
    ) -> None:
        self.compiler = ProgramCompiler(session, limits, counts or ProgramCounts())
        self.table = self.compiler.table
        self._launch_lock = session.launch_lock
        self.call_history = call_history
        self._requests: OrderedDict[RequestKey, AbstractCall] = OrderedDict()

    def __len__(self) -> int:
        return len(self.table)

    def latest(self, count: int) -> list[CachedProgram]:
        """Returns the programs that were used last, at most ``count``."""
        with self._launch_lock:
            return list(itertools.islice(self.table, count))

    def get(self, request: RequestKey) -> tuple[AbstractCall, CacheEntry] | None:
        """Returns the completed call of a recent request, and its entry."""
        with self._launch_lock:
            call = self._requests.get(request)
            entry = self.table.get(call.key) if call else None
            if call is None or entry is None:
                return None
            self._requests.move_to_end(request)
        if self.call_history is not None:
            self.call_history.touch(call.key)
        return call, entry

    def alias(self, request: RequestKey, call: AbstractCall) -> None:
        """Makes `get` find a call by the request that led to it, unless the request is long."""
        if len(request.message) > _MAX_REQUEST_BYTES:
            return
        with self._launch_lock:
            self._requests[request] = call
            if len(self._requests) > _MAX_REQUESTS:
                self._requests.popitem(last=False)

    def get_or_compile(
        self, call: AbstractCall, owner: str = "", connection: str = "", weight: int = 1
    ) -> CacheEntry | Future[CacheEntry]:
        """As `ProgramCompiler.get_or_compile`; counts the call in the history if it is not refused."""
        entry = self.compiler.get_or_compile(call, owner, connection, weight)
        if self.call_history is not None:
            self.call_history.add_when_compiled(call, entry)
        return entry
