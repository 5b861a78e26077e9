"""Calls that are recorded and not sent yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeAlias

from shardcall._src.device_arrays.array_version import ArrayVersion
from shardcall._src.device_arrays.call_sites import Line
from shardcall._src.programs.pending_calls import PendingCall, PendingCalls
from shardcall._src.programs.program_builder import ProgramBuilder
from shardcall._src.programs.templates import Template
from shardcall._src.transfer.upload import Value as Operand
from shardcall_core.graphs.graph import Value
from shardcall_core.locks import rlock

MAX_NODES = 64
"""The most calls that are recorded before they are sent."""

MAX_INPUTS = 48
"""The most operands that they have together."""

Location: TypeAlias = tuple[bool, Hashable]
"""The commitment of an array and its mesh; a stand-in for the mesh where that is not known yet."""


class RecordedCall(PendingCall):
    """A call that is recorded, to be sent alone or as part of a program.

    Attributes:
        template: the common part of such calls.
        graph: the recorded calls that it is one of; None once it was sent, or has failed.
        number: its index among them.
        committed: whether its result is committed to its devices.
    """

    def __init__(
        self,
        calls: PendingCalls,
        template: Template,
        graph: RecordedGraph,
        number: int,
        timeout_s: float,
        line: Line,
        location: Location,
    ) -> None:
        super().__init__(calls, template.kernel, template.types, timeout_s, line, location[1])
        self.template = template
        self.graph: RecordedGraph | None = graph
        self.number = number
        self.committed = location[0]

    @property
    def kept(self) -> ArrayVersion | None:
        """Its result, if the caller has it."""
        return self.results[0]() if self.results else None

    def begin(self) -> None:
        """Sends it, if it was not sent, or failed as part of a program."""
        if (graph := self.graph) is not None:
            graph.send(graph)  # or waits while another thread does
        elif self.resend is not None:
            super().begin()  # or waits while another thread does


class RecordedGraph:
    """The recorded calls of one thread.

    Attributes:
        lock: held while it changes or is sent, and so while a new program is answered.
        calls: the calls, in order.
        sending: the calls that are no longer among them, while a thread sends them.
        builder: the program of the calls, whose inputs are their operands.
        sites: the positions of the calls in the caller's code.
        location: the location of all results; None while there is none.
        is_cut: True if calls before them were sent because nothing was recorded for some time.
        touched_s: the time of the last call.

    Args:
        send: sends the calls, if there are any.
    """

    def __init__(self, send: Callable[[RecordedGraph], None]) -> None:
        self.send = send
        self.begin_anew()
        self.is_cut = False
        self.touched_s = 0.0
        self.sending: Sequence[RecordedCall] = ()

    def begin_anew(self) -> None:
        """Forgets the calls, with a new lock."""
        self.lock = rlock("the lock of a thread's recorded calls", 10)
        with self.lock:
            self.clear()

    def clear(self) -> None:
        """Forgets the calls; the lock is held."""
        self.calls: list[RecordedCall] = []
        self.builder: ProgramBuilder[Operand] = ProgramBuilder()
        self.sites: set[Hashable] = set()
        self.location: Location | None = None

    def accepts(self, site: Hashable, count: int, location: Location) -> bool:
        """Returns False if a call has to be the first of another graph.

        Args:
            site: its position in the caller's code.
            count: the number of its operands.
            location: the location of its result.
        """
        if site in self.sites or len(self.calls) >= MAX_NODES or len(self.builder.inputs) + count > MAX_INPUTS:
            return False
        return self.location in (None, location)

    def value(self, operand: Operand, *, is_committed: bool) -> Value | None:
        """Returns what an operand is in the program: an earlier result, or an input, which it becomes.

        Args:
            operand: the operand.
            is_committed: whether the result of its call is committed.
        """
        if operand is None:
            return None
        builder = self.builder
        if not isinstance(operand, ArrayVersion):
            return builder.add_input(object(), operand)
        call = operand.pending
        if type(call) is RecordedCall and call.graph is self:
            return Value(call.number, 0)
        number = builder.keys.get(id(operand))
        if number is not None:
            return Value(-1, number)
        # One that is not committed moves for each call anew, as that call wants it.
        key: object = id(operand) if operand.committed or not is_committed else object()
        return builder.add_input(key, operand)

    def add(self, call: RecordedCall, operands: tuple[Value | None, ...], site: Hashable, location: Location) -> None:
        """Adds a call.

        Args:
            call: the call.
            operands: its operands.
            site: its position in the caller's code.
            location: the location of its result.
        """
        template, builder = call.template, self.builder
        try:
            builder.add_node(template.node._replace(operands=operands))
            self.calls.append(call)
        except BaseException:  # this thread was interrupted
            for items in (builder.nodes, self.calls):
                del items[call.number :]
            raise
        self.sites.add(site)
        self.location = location
        self.touched_s = time.monotonic()


def common_location(operands: Iterable[Operand]) -> Location | None:
    """Returns the location of a call's result; None if its operands do not decide it: they are at several places."""
    committed, others = set[Location](), set[Location]()
    for operand in operands:
        if isinstance(operand, ArrayVersion):
            call = operand.pending  # read first: another thread may set both
            mesh = call.mesh if isinstance(call, PendingCall) else None
            placed = operand.placed
            location = operand.committed, mesh if placed is None else placed.mesh
            (committed if operand.committed else others).add(location)
    locations = committed or others
    return locations.pop() if len(locations) == 1 else None
