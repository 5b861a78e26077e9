"""Calls that are recorded and not sent yet, and the results that stand for them."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from shardcall._src.calls.call_memo import CallMemo
from shardcall._src.calls.call_request import CallRequest, prepare
from shardcall._src.calls.pending_call import SubmittedResult
from shardcall._src.device_arrays.array_version import ArrayVersion
from shardcall._src.device_arrays.remote_array import RemoteArray, snapshot
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.threads import check_not_exiting
from shardcall._src.transfer.upload import Value as Operand
from shardcall.v1 import kernel_pb2
from shardcall_core.graphs.graph import NodeParameter, Value
from shardcall_core.locks import check_held, rlock
from shardcall_core.placements.placement import MeshPlacement
from shardcall_core.types.arrays import Array
from shardcall_core.types.errors import ShardcallError

MAX_NODES = 64
"""The most calls that are recorded before they are sent."""

MAX_INPUTS = 48
"""The most operands that they have together."""

_MAX_MESSAGES = 16

Location: TypeAlias = tuple[bool, Hashable]
"""The commitment of an array and its mesh; a stand-in for the mesh where that is not known yet."""


@dataclass(frozen=True)
class Template:
    """The common part of recorded calls of one kind.

    Attributes:
        number: another one for each kind.
        kernel: the name of the kernel.
        parameters: the static parameters by name, in alphabetical order.
        types: the types of the operands; None for one left out.
        result: the type of the result.
        messages: the messages of such calls, by the placements of their operands (`placements_of`).
    """

    number: int
    kernel: str
    parameters: tuple[tuple[str, NodeParameter], ...]
    types: tuple[Array | None, ...]
    result: Array
    messages: dict[Hashable, kernel_pb2.KernelCall] = field(default_factory=dict, compare=False, repr=False)

    def request(self, operands: Sequence[Operand | None], memo: CallMemo) -> CallRequest:
        """Returns a call of this kind; its message is built once for operands that are placed alike.

        Raises:
            ShardcallError: of the class that fits, if an operand is lost, or they are on different devices.
        """
        key = placements_of(operands)
        if any(isinstance(operand, RemoteArray) and operand._version.lost for operand in operands):
            message = None
        else:
            message = self.messages.get(key)
        if message is not None:
            return CallRequest(message, tuple(operands), _commits(operands))
        call = prepare(self.kernel, operands, dict(self.parameters), memo=memo)
        self.add(key, call.message)
        return call

    def add(self, key: Hashable, message: kernel_pb2.KernelCall) -> None:
        """Stores a message for operands of the placements ``key``."""
        if len(self.messages) >= _MAX_MESSAGES:
            self.messages.clear()
        self.messages[key] = message


class RecordedNode:
    """A recorded call.

    Attributes:
        template: what calls of its kind have in common.
        operands: the inputs and nodes of its graph that it takes; None for one left out.
        version: its result, while the caller has it.
        result: what the array waits for.
        line: the file and line of the call.
        committed: whether its result is committed to its devices.
    """

    __slots__ = ("committed", "line", "operands", "result", "template", "version")

    def __init__(
        self,
        template: Template,
        operands: tuple[Value | None, ...],
        result: RecordedResult,
        line: tuple[str, int],
        *,
        committed: bool,
    ) -> None:
        self.template = template
        self.operands = operands
        self.result = result
        self.line = line
        self.committed = committed
        self.version: weakref.ref[ArrayVersion] | None = None

    @property
    def key(self) -> Hashable:
        """The part of the key of a program that this call decides."""
        return self.template.number, self.operands

    def __str__(self) -> str:
        return f"{self.line[0]}:{self.line[1]}"


class RecordedGraph:
    """The recorded calls of one thread.

    Attributes:
        lock: held while it changes or is sent, and so while a new program is answered.
        nodes: the calls, in order.
        sending: the calls that are no longer among them, while a thread sends them.
        inputs: their operands that are no results of recorded calls.
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
        self.sending: Sequence[RecordedNode] = ()

    def begin_anew(self) -> None:
        """Forgets the calls, with a new lock."""
        self.lock = rlock("the lock of a thread's recorded calls", 10)
        with self.lock:
            self.clear()

    def clear(self) -> None:
        """Forgets the calls."""
        check_held(self.lock)
        self.nodes: list[RecordedNode] = []
        self.inputs: list[Operand] = []
        self.sites: set[Hashable] = set()
        self.location: Location | None = None
        self._numbers: dict[int, int] = {}

    def accepts(self, site: Hashable, operands: Sequence[Operand | None], location: Location) -> bool:
        """Returns False if a call has to be the first of another graph.

        Args:
            site: its place in the caller's code.
            operands: its operands.
            location: the location of its result.
        """
        if site in self.sites or len(self.nodes) >= MAX_NODES or len(self.inputs) + len(operands) > MAX_INPUTS:
            return False
        return self.location in (None, location)

    def value(self, operand: Operand | None, *, is_committed: bool) -> Value | None:
        """Returns what an operand is in this graph: an earlier result, or an input, which it becomes.

        Args:
            operand: the operand.
            is_committed: whether the result of its call is committed.
        """
        check_held(self.lock)
        if operand is None:
            return None
        if not isinstance(operand, RemoteArray):
            self.inputs.append(operand)
            return Value(-1, len(self.inputs) - 1)
        version = operand._version
        pending = version.pending
        if type(pending) is RecordedResult and pending.graph is self and pending.actual is None:
            return Value(pending.node, 0)
        number = self._numbers.get(id(version))
        if number is None:
            number = len(self.inputs)
            self.inputs.append(snapshot(operand))
            # One that is not committed moves for each call anew, as that call wants it.
            if version.committed or not is_committed:
                self._numbers[id(version)] = number
        return Value(-1, number)

    def add(self, node: RecordedNode, site: Hashable, location: Location) -> None:
        """Adds a call."""
        check_held(self.lock)
        self.nodes.append(node)
        self.sites.add(site)
        self.location = location
        self.touched_s = time.monotonic()


@dataclass
class RecordedResult:
    """The result of a recorded call.

    Attributes:
        graph: the calls that it was recorded with.
        node: its index among them.
        actual: the result of the call that was sent; None before.
        placed: the placement, if the call was not submitted but run.
    """

    graph: RecordedGraph
    node: int
    actual: SubmittedResult | None = None
    placed: MeshPlacement | None = None

    @property
    def is_sent(self) -> bool:
        """True if the call was sent, or has failed."""
        return self.actual is not None or self.placed is not None

    @property
    def mesh(self) -> Hashable:
        """The mesh, or what stands for it."""
        if self.actual is not None:
            return self.actual.mesh
        if self.placed is not None:
            return self.placed.mesh
        return None if self.graph.location is None else self.graph.location[1]

    @property
    def is_done(self) -> bool:
        """True if the call was answered."""
        return self.placed is not None or (self.actual is not None and self.actual.is_done)

    @property
    def is_failed(self) -> bool:
        """True if the call failed."""
        return self.actual is not None and self.actual.is_failed

    def begin(self) -> None:
        """Sends the call, if it was not sent."""
        if not self.is_sent:
            check_not_exiting()
            with self.graph.lock:  # another thread may be sending it
                if not self.is_sent:
                    self.graph.send(self.graph)

    def dependent_failure(self, error: ShardcallError) -> ShardcallError:
        """Returns the error of a call that failed because this one did, for raising it."""
        return error if self.actual is None else self.actual.dependent_failure(error)

    def wait(self, deadline: Deadline | None) -> MeshPlacement:
        """Returns the placement, after the answer."""
        self.begin()
        if self.placed is not None:
            return self.placed
        assert self.actual is not None
        return self.actual.wait(deadline)


def placements_of(operands: Sequence[object]) -> Hashable:
    """Returns what the message of a call takes from its operands, beside their types."""
    parts: list[Hashable] = []
    for operand in operands:
        if isinstance(operand, RemoteArray):
            version = operand._version
            placed = version.placed
            parts.append((version.committed, placed and placed.mesh, placed and placed.placement.spec))
        else:
            parts.append(None)
    return tuple(parts)


def _commits(operands: Sequence[Operand | None]) -> bool:
    return any(isinstance(operand, RemoteArray) and operand._version.committed for operand in operands)


def location_of(array: RemoteArray) -> Location:
    """Returns the location of an array."""
    version = array._version
    pending = version.pending  # read first: another thread may set both
    if version.placed is not None:
        return version.committed, version.placed.mesh
    return version.committed, pending.mesh if isinstance(pending, SubmittedResult | RecordedResult) else None


def common_location(operands: Sequence[Operand | None]) -> Location | None:
    """Returns the location of a call's result; None if its operands do not decide it: they are at several places."""
    locations = {location_of(operand) for operand in operands if isinstance(operand, RemoteArray)}
    locations = {location for location in locations if location[0]} or locations
    return locations.pop() if len(locations) == 1 else None
