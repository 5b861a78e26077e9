"""The programs that recorded calls are sent as, and which of their numbers are constants."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from shardcall._src.calls.call_memo import CallMemo
from shardcall._src.programs.pending_calls import PendingCall
from shardcall._src.programs.program_builder import needed_nodes
from shardcall._src.programs.recorded_calls import Bounds, RecordedBatch
from shardcall_core.graphs.graph import Graph, Value

_MAX = 256
_MAX_NEW = 64
_USES_FOR_ANOTHER = 4


@dataclass
class FusedProgram:
    """A program for recorded calls.

    Attributes:
        graph: its graph.
        inputs: for each of its operands the index of that input of the recorded calls.
        count: the number of the recorded calls.
        nodes: the indices of those that results need, in order.
        depends_on: for each recorded call with a result the others with results that it needs.
        is_proven: True if the server has run it.
        is_refused: True if the server has refused it: the calls are sent one by one.
        is_repeated: True if the calls were to be sent before.
        latest: a call that its latest run answers.
    """

    graph: Graph
    inputs: list[int]
    count: int
    nodes: list[int]
    depends_on: Mapping[int, list[int]]
    is_proven: bool = False
    is_refused: bool = False
    is_repeated: bool = False
    latest: weakref.ref[PendingCall] | None = None


class FusedPrograms:
    """The programs of a client's recorded calls, by the calls; safe to use from several threads at once.

    A client that records other calls again and again would have programs compiled that nothing runs a second time. So
    it may have some programs, and more as those are used.

    Bounds of slices are constants of a program, so that the compiler computes slices in one pass with what takes them.
    When the same calls come with other bounds, as in a loop, they get a program that takes the bounds.
    """

    def __init__(self) -> None:
        self._programs = CallMemo[FusedProgram](_MAX)
        self._bounds = CallMemo[Bounds](_MAX)  # the first ones of calls
        self._lengths: set[int] = set()
        self._new = self._uses = 0

    def get(self, batch: RecordedBatch) -> FusedProgram:
        """Returns the program of recorded calls, of those whose results are kept."""
        calls, bounds = _key(batch, len(batch.calls), [*batch.kept]), batch.bounds(len(batch.calls))
        constants = bounds if self._bounds.add(calls, bounds) == bounds else ()
        key = calls, constants
        return self._programs.find(key) or self._programs.add(key, _program(batch, constants))

    def find_beginning(self, batch: RecordedBatch) -> int | None:
        """Returns the number of calls at the beginning that a program runs which the server has; None if none does.

        So what follows the last iteration of a loop does not need another program of the whole iteration.
        """
        for count in sorted(self._lengths, reverse=True):
            if count < len(batch.calls):
                calls, bounds = _key(batch, count, batch.results_before(count)), batch.bounds(count)
                for constants in (bounds, ()):
                    program = self._programs.find((calls, constants))
                    if program is not None and program.is_proven:
                        return count
        return None

    def may_run(self, program: FusedProgram, *, is_cut: bool) -> bool:
        """Returns True if a program is to be run, and counts it.

        Args:
            program: the program.
            is_cut: True if the calls are an accidental part of those that the caller repeats.
        """
        if program.is_refused:
            return False
        latest = None if program.latest is None else program.latest()
        if latest is not None and latest.is_failed:
            program.is_proven = False  # such as on the mesh before a restart
        if program.is_proven:
            self._uses += 1
            return True
        if is_cut or self._new >= _MAX_NEW + self._uses // _USES_FOR_ANOTHER:
            return False
        self._new += 1
        return True

    def add_run(self, program: FusedProgram, call: PendingCall) -> None:
        """Notes that a program has run.

        Args:
            program: the program.
            call: a call that the run answers.
        """
        program.latest = weakref.ref(call)
        if not program.is_proven and not call.is_failed:
            program.is_proven = True
            self._lengths.add(program.count)


def _key(batch: RecordedBatch, count: int, results: Sequence[int]) -> Hashable:
    """Returns the key of the first calls, of which some results are kept."""
    nodes = [
        (call.template.number, node.operands) for call, node in zip(batch.calls[:count], batch.nodes, strict=False)
    ]
    return tuple(nodes), tuple(results), batch.mesh


def _program(batch: RecordedBatch, bounds: Bounds) -> FusedProgram:
    """Returns the program of recorded calls, of which some bounds of slices are constants."""
    results, nodes = batch.kept, batch.nodes
    form = batch.form((Value(i, 0) for i in results), batch.constants(bounds))
    depends_on = {i: [k for k in needed_nodes(nodes, [i]) if k in results and k != i] for i in results}
    return FusedProgram(form.graph, list(form.inputs), len(nodes), needed_nodes(nodes, results), depends_on)
