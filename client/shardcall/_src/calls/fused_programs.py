"""The programs that recorded calls are sent as."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from shardcall._src.calls.recorded_graph import RecordedNode
from shardcall._src.graphs.canonical import canonical
from shardcall._src.graphs.graph import Graph, Node, Value, to_text
from shardcall._src.types.arrays import Array

_MOST = 256
_MOST_NEW = 16
_USES_FOR_ANOTHER = 4


@dataclass
class FusedProgram:
    """A program for recorded calls.

    Attributes:
        text: the text of its graph.
        inputs: for each of its operands the index of that input of the recorded calls.
        nodes: the indices of the recorded calls that results need, in order.
        is_proven: True if the server has run it.
        is_refused: True if the server has refused it: the calls are sent one by one.
    """

    text: str
    inputs: list[int]
    nodes: list[int]
    is_proven: bool = False
    is_refused: bool = False


class FusedPrograms:
    """The programs of a client's recorded calls, by the calls.

    A client that records other calls again and again would have programs compiled that nothing runs a second time. So
    it may have some programs, and more as those are used.
    """

    def __init__(self) -> None:
        self._programs: dict[Hashable, FusedProgram] = {}
        self._proven: set[tuple[str, tuple[Array, ...]]] = set()
        self._new = self._uses = 0

    def get(self, nodes: Sequence[RecordedNode], results: Sequence[int]) -> FusedProgram:
        """Returns the program of recorded calls.

        Args:
            nodes: the calls.
            results: the indices of those whose results are kept.
        """
        key = tuple(node.key for node in nodes), tuple(results)
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = _program(nodes, results)
            while len(self._programs) > _MOST:
                del self._programs[next(iter(self._programs))]
        return program

    def may_run(self, program: FusedProgram, *, is_cut: bool) -> bool:
        """Returns True if a program is to be run, and counts it.

        Args:
            program: the program.
            is_cut: True if the calls are an accidental part of those that the caller repeats.
        """
        if program.is_refused:
            return False
        if program.is_proven:
            self._uses += 1
            return True
        if is_cut or self._new >= _MOST_NEW + self._uses // _USES_FOR_ANOTHER:
            return False
        self._new += 1
        return True


def _program(nodes: Sequence[RecordedNode], results: Sequence[int]) -> FusedProgram:
    needed, waiting = set(results), list(results)
    while waiting:
        for value in nodes[waiting.pop()].operands:
            if value is not None and value.node >= 0 and value.node not in needed:
                needed.add(value.node)
                waiting.append(value.node)
    parts = [Node(node.template.kernel, node.operands, node.template.parameters) for node in nodes]
    graph, inputs = canonical(Graph(tuple(parts), tuple(Value(i, 0) for i in results)))
    return FusedProgram(to_text(graph), inputs, sorted(needed))
