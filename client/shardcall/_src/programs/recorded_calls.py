"""Calls that are recorded and not sent yet."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from shardcall._src.device_arrays.array_version import ArrayVersion
from shardcall._src.device_arrays.call_sites import Line
from shardcall._src.programs.pending_calls import PendingCall, PendingCalls
from shardcall._src.programs.program_builder import ProgramBuilder, needed_nodes, sources_of
from shardcall._src.programs.templates import Template
from shardcall._src.transfer.upload import Value as Operand
from shardcall_core.graphs.graph import SLICES, Constant, Value, values_of
from shardcall_core.locks import rlock
from shardcall_core.types.mesh import Mesh

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
        recording: the calls of the thread that recorded it; None once it was sent, or has failed.
        number: its index in its batch.
        committed: whether its result is committed to its devices.
    """

    def __init__(
        self,
        calls: PendingCalls,
        template: Template,
        recording: CallRecording,
        number: int,
        timeout_s: float,
        line: Line,
        location: Location,
    ) -> None:
        super().__init__(calls, template.kernel, template.types, timeout_s, line, location[1])
        self.template = template
        self.recording: CallRecording | None = recording
        self.number = number
        self.committed = location[0]

    @property
    def kept(self) -> ArrayVersion | None:
        """Its result, if the caller has it."""
        return next((version for result in self.results if (version := result()) is not None), None)

    @property
    def is_recorded(self) -> bool:
        """True if it was not sent yet."""
        return self.recording is not None

    @property
    def is_undone(self) -> bool:
        """As of other calls; False for one whose sending was interrupted, and which is sent again."""
        return self.recording is None and super().is_undone

    def begin(self) -> None:
        """Sends it, if it was not sent, or failed as part of a program."""
        if (recording := self.recording) is not None:
            recording.send(recording)  # or waits while another thread does
        elif self.resend is not None:
            super().begin()  # or waits while another thread does


Bounds: TypeAlias = tuple[tuple[int, bytes], ...]
"""Bounds of slices: the numbers of the inputs that they are, and their bytes."""


class RecordedBatch(ProgramBuilder[Operand]):
    """Recorded calls that are sent together; as the nodes of a program their operands are its inputs.

    Attributes:
        calls: the calls.
        location: the location of all results; None while there is none.
        sites: the positions of the calls in the caller's code.
        kept: the results that the caller has, or that calls of a later batch need, by the indices of their calls; empty
            before they are sent.
        has_begun: True once a thread has begun to send them.
    """

    def __init__(self, calls: Sequence[RecordedCall] = (), location: Location | None = None) -> None:
        super().__init__()
        self.calls = [*calls]
        self.location = location
        self.sites: set[Hashable] = set()
        self.kept: dict[int, ArrayVersion] = {}
        self.has_begun = False

    @property
    def mesh(self) -> Mesh | None:
        """The mesh of all results; None if it is not known yet."""
        mesh = self.location and self.location[1]
        return mesh if isinstance(mesh, Mesh) else None

    def accepts(self, site: Hashable, count: int, location: Location) -> bool:
        """Returns False if a call has to be the first of another batch.

        Args:
            site: its position in the caller's code.
            count: the number of its operands.
            location: the location of its result.
        """
        if site in self.sites or len(self.calls) >= MAX_NODES or len(self.inputs) + count > MAX_INPUTS:
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
        if not isinstance(operand, ArrayVersion):
            return self.add_input(object(), operand)
        call = operand.pending
        if type(call) is RecordedCall and call.number < len(self.calls) and self.calls[call.number] is call:
            return Value(call.number, 0)
        number = self.keys.get(id(operand))
        if number is not None:
            return Value(-1, number)
        # One that is not committed moves for each call anew, as that call wants it.
        key: object = id(operand) if operand.committed or not is_committed else object()
        return self.add_input(key, operand)

    def add(self, call: RecordedCall, operands: tuple[Value | None, ...], site: Hashable, location: Location) -> None:
        """Adds a call.

        Args:
            call: the call.
            operands: its operands.
            site: its position in the caller's code.
            location: the location of its result.
        """
        try:
            self.add_node(call.template.node_of(operands))
            self.calls.append(call)
            self.sites.add(site)
            self.location = location
        except BaseException:  # this thread was interrupted
            for items in (self.nodes, self.calls):
                del items[call.number :]
            raise

    @property
    def replaced(self) -> list[int]:
        """The indices of the calls whose results writes have replaced, which a failure may bring back."""
        return [i for i, call in enumerate(self.calls) if call.written is not None and call.written() is not None]

    def has_operands_of(self, index: int) -> bool:
        """Returns whether the caller still has all that a result is computed from; None stands for what it has not."""
        values = [value for i in needed_nodes(self.nodes, [index]) for value in values_of(self.nodes[i])]
        return all(self.inputs[value.number] is not None for value in values if value.node < 0)

    def _later(self, count: int) -> list[int]:
        """Returns the indices of the calls behind the first ones that are sent, the others being needed by nothing."""
        return [i for i in needed_nodes(self.nodes, [*self.kept, *self.replaced]) if i >= count]

    def results_before(self, count: int) -> list[int]:
        """Returns the indices of the first calls whose results are kept, or that later ones need.

        Args:
            count: the number of the first calls.
        """
        operands = {value.node for i in self._later(count) for value in values_of(self.nodes[i])}
        return sorted(i for i in {*operands, *self.kept} if 0 <= i < count)

    def bounds(self, count: int) -> Bounds:
        """Returns the inputs that are bounds of slices in the first calls, by their numbers, and their bytes."""
        numbers = [node.operands[-1] for node in self.nodes[:count] if node.kernel in SLICES]
        arrays = [(v.number, self.inputs[v.number]) for v in numbers if isinstance(v, Value) and v.node < 0]
        return tuple((number, array.tobytes()) for number, array in arrays if type(array) is np.ndarray)

    def constants(self, bounds: Bounds) -> dict[int, Constant]:
        """Returns bounds as constants of a program."""
        arrays = ((number, self.inputs[number]) for number, _ in bounds)
        return {number: Constant.of(array) for number, array in arrays if isinstance(array, np.ndarray)}

    def parts(self, count: int, new_result: Callable[[int], ArrayVersion]) -> tuple[RecordedBatch, RecordedBatch]:
        """Returns the first calls, and the later ones that are sent; what these need of the first is kept.

        Args:
            count: the number of the first calls.
            new_result: makes the result of a call by its index, which the caller has dropped.
        """
        later = {i: number for number, i in enumerate(self._later(count))}
        first, rest = RecordedBatch(self.calls[:count]), RecordedBatch([self.calls[i] for i in later])
        first.location = rest.location = self.location
        first.nodes, first.inputs = self.nodes[:count], self.inputs
        for node in (self.nodes[i] for i in later):
            operands: list[Value | None] = []
            for value in sources_of(node):
                if value is None or value.node >= count:
                    operands.append(value and Value(later[value.node], 0))
                else:
                    if value.node >= 0 and value.node not in self.kept:
                        self.kept[value.node] = new_result(value.node)
                    item = self.kept[value.node] if value.node >= 0 else self.inputs[value.number]
                    operands.append(rest.add_input(value, item))
            rest.add_node(node._replace(operands=tuple(operands)))
        first.kept = {i: self.kept[i] for i in sorted(self.kept) if i < count}
        rest.kept = {later[i]: version for i, version in self.kept.items() if i >= count}
        return first, rest


class CallRecording:
    """The recorded calls of one thread.

    Attributes:
        lock: held while a call is recorded or the calls are sent, and so while a new program is answered.
        batch: the calls.
        unsent: batches before it that a thread sends, or was interrupted while it did.
        is_cut: True if calls before them were sent because nothing was recorded for some time.
        touched_s: the time of the last call.

    Args:
        send: sends the calls, if there are any.
    """

    def __init__(self, send: Callable[[CallRecording], None]) -> None:
        self.send = send
        self.begin_anew()
        self.is_cut = False
        self.touched_s = 0.0

    def begin_anew(self) -> None:
        """Forgets the calls, with a new lock."""
        self.lock = rlock("the lock of a thread's recorded calls", 10)
        self.batch = RecordedBatch()
        self.unsent: list[RecordedBatch] = []

    @property
    def is_sent_by_this_thread(self) -> bool:
        """True while this thread sends the calls, and what it runs for that has none to send."""
        return bool(self.lock._is_owned())  # type: ignore[attr-defined]  # which a Condition uses

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to send."""
        return not self.batch.calls and not self.unsent

    @property
    def calls(self) -> list[RecordedCall]:
        """All calls that were not sent."""
        return [call for batch in (*self.unsent, self.batch) for call in batch.calls if call.recording is not None]


def common_location(operands: Iterable[Operand]) -> Location | None:
    """Returns the location of a call's result; None if its operands do not decide it: they are at several places."""
    common: Location | None = None
    is_one = True
    for operand in operands:
        if isinstance(operand, ArrayVersion):
            call = operand.pending  # read first: another thread may set both
            mesh = call.mesh if isinstance(call, PendingCall) else None
            placed = operand.placed
            location = operand.committed, mesh if placed is None else placed.mesh
            if common is None or (operand.committed and not common[0]):
                common, is_one = location, True
            elif operand.committed == common[0]:
                is_one = is_one and location == common
    return common if is_one else None
