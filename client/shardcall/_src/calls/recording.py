"""Records calls, and sends several as one program."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from shardcall._src.calls.call_memo import CallMemo, are_plain
from shardcall._src.calls.call_request import AUTO, CallRequest
from shardcall._src.calls.call_sender import CallSender
from shardcall._src.calls.pending_call import PendingCall, SubmittedResult, lost_in_fork
from shardcall._src.calls.recorded_graph import (
    RecordedGraph,
    RecordedNode,
    RecordedResult,
    Template,
    common_location,
    placements_of,
)
from shardcall._src.calls.recorded_sending import RecordedCallSender
from shardcall._src.device_arrays.array_version import Owner
from shardcall._src.device_arrays.call_sites import call_site
from shardcall._src.device_arrays.remote_array import RemoteArray, settle_others
from shardcall._src.rpc.threads import check_not_exiting, start_thread
from shardcall._src.rpc.wakeup import Wakeup
from shardcall._src.transfer.upload import Value as Operand
from shardcall_core.functions.elementwise import BINARY, UNARY
from shardcall_core.functions.reductions import WITH_WHERE
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.graphs.graph import parameters_of
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.element_types import NATIVE_DTYPES
from shardcall_core.wire.forks import begin_anew_in_children

FUSABLE = frozenset(
    (
        *UNARY,
        *BINARY,
        *WITH_WHERE,
        *("where", "clip", "roll", "shift", "diff", "getitem", "transpose", "expand_dims", "squeeze", "broadcast_to"),
        *("astype", "argmax", "argmin"),
    )
)
"""The functions whose calls are recorded: they have one result, whose layout is decided without the compiler."""

_BY_COMPONENTS = frozenset(
    (
        *(
            "add",
            "subtract",
            "negative",
            "positive",
            "conjugate",
            "real",
            "imag",
            "equal",
            "not_equal",
            "where",
            "astype",
        ),
        *("roll", "shift", "diff", "getitem", "transpose", "expand_dims", "squeeze", "broadcast_to"),
    )
)
"""The functions of complex numbers that compute no product: how one is rounded depends on the program."""

_SMALL = (np.ndarray, np.generic, bool, int, float, complex)
_MAX_OPERAND_BYTES = 4096
_MAX_TEMPLATES = 1024
_IDLE_S = 0.02


class Recorder:
    """Records the calls of a client; safe to use from several threads at once.

    Each thread has calls of its own. They are sent when something needs a result, when a call of the same place in the
    caller's code comes again, and when nothing is recorded for some time.

    Args:
        sender: sends the calls.
        memo: the messages of the client's calls.
        max_seconds: the longest timeout.
    """

    def __init__(self, sender: CallSender, memo: CallMemo, max_seconds: float) -> None:
        self.sending = RecordedCallSender(sender, memo, max_seconds)
        self._sender = sender
        self._templates: dict[Hashable, Template] = {}
        self._numbers = itertools.count()  # of templates: programs are known by them
        self._closed = False
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Resets the object in a forked child: recorded calls are its parent's."""
        for graph in tuple(getattr(self, "_graphs", ())):
            for node in (*graph.sending, *graph.nodes):
                if not node.result.is_sent:
                    call = PendingCall(self._sender.pending, node.template.kernel, node.template.types, 0.0, str(node))
                    call.fail(lost_in_fork())
                    call.is_raised = True  # nobody but who reads the result is to learn of it
                    node.result.actual = SubmittedResult(call, 0)
            graph.sending = ()
            graph.begin_anew()
        self._graphs: weakref.WeakSet[RecordedGraph] = weakref.WeakSet()
        self._lock = threading.Lock()  # guards the templates, the graphs and the start of the thread
        self._local = threading.local()  # the graph of each thread
        self._timer: threading.Thread | None = None
        self._is_recording = Wakeup()  # set while something may be recorded, and by `close`

    def find(self, key: Hashable) -> Template | None:
        """Returns the template of a kind of calls; None if it is not known, or its calls are not recorded."""
        return self._templates.get(key)

    def add_template(self, key: Hashable, call: CallRequest, parameters: Mapping[str, Any], result: Array) -> Template:
        """Returns the template of a kind of calls that are recorded from now on."""
        with self._lock:
            if (template := self._templates.get(key)) is not None:
                return template  # of another thread
            while len(self._templates) >= _MAX_TEMPLATES:
                del self._templates[next(iter(self._templates))]
            template = Template(
                next(self._numbers),
                call.message.kernel,
                parameters_of(list(parameters.items())),
                tuple(call.types),
                result,
            )
            template.add(placements_of(call.operands), call.message)
            self._templates[key] = template
        return template

    def record(self, owner: Owner, template: Template, operands: Sequence[Operand | None]) -> RemoteArray | None:
        """Records a call; returns its result, or None for a call that must be sent by itself.

        Args:
            owner: the client.
            template: what it has in common with others of its kind.
            operands: its operands; arrays of this process are not changed later.

        Raises:
            ClientClosedError: if Python exits.
        """
        check_not_exiting()
        graph = self._thread_graph()
        settle_others(operands, owner)
        for operand in operands:
            if isinstance(operand, RemoteArray):
                if not self._sender.is_here(operand):
                    return None  # it is refused with the reason
                pending = operand._version.pending
                if type(pending) is RecordedResult and pending.graph is not graph:
                    pending.begin()
        site, line = call_site()
        with graph.lock:
            location = common_location(operands)
            if location is None:
                return None
            if not graph.accepts(site, operands, location):
                self._send(graph)
                if (location := common_location(operands)) is None:
                    return None
            committed = location[0]
            values = tuple(graph.value(operand, is_committed=committed) for operand in operands)
            result = RecordedResult(graph, len(graph.nodes))
            node = RecordedNode(template, values, result, line, committed=committed)
            array = self._sender.new_result(owner, template.result, result, committed=committed)
            node.version = weakref.ref(array._version)
            graph.add(node, site, location)
        if not self._is_recording.is_set():
            self._start()
        return array

    def flush(self) -> None:
        """Sends the calls of this thread."""
        graph = getattr(self._local, "graph", None)
        if graph is not None and graph.nodes:
            self._send(graph)

    def flush_all(self) -> None:
        """Sends the calls of all threads, and waits while another thread sends some."""
        for graph in self._all():
            if graph.nodes or graph.sending:
                self._send(graph)

    @property
    def has_open_calls(self) -> bool:
        """True if a call was not sent yet."""
        return any(graph.nodes or graph.sending for graph in tuple(self._graphs))

    def close(self) -> None:
        """Forgets the recorded calls; returns the results that the caller has."""
        self._closed = True
        self._is_recording.set()
        for graph in self._all():
            with graph.lock:
                self.sending.abandon(graph)

    def _send(self, graph: RecordedGraph, *, is_idle: bool = False) -> None:
        check_not_exiting()
        with graph.lock:
            if graph.nodes:
                is_cut, graph.is_cut = graph.is_cut or is_idle, is_idle
                self.sending.send(graph, is_cut=is_cut)

    def _thread_graph(self) -> RecordedGraph:
        graph: RecordedGraph | None = getattr(self._local, "graph", None)
        if graph is None:
            graph = self._local.graph = RecordedGraph(self._send)
            with self._lock:
                self._graphs.add(graph)
        return graph

    def _all(self) -> list[RecordedGraph]:
        with self._lock:
            return list(self._graphs)

    def _start(self) -> None:
        if self._timer is None and not self._closed:
            with self._lock:
                if self._timer is None:
                    arguments = weakref.ref(self), self._is_recording
                    self._timer = start_thread("shardcall-recording", _send_when_idle, arguments)
        self._is_recording.set()

    def send_idle(self) -> bool:
        """Sends what was recorded some time ago; returns False when there is no more to do, for ever."""
        self._is_recording.clear()
        for graph in self._all():
            if not graph.nodes:
                continue
            if time.monotonic() - graph.touched_s < _IDLE_S:
                self._is_recording.set()
            else:
                self._send(graph, is_idle=True)
        return not self._closed


def _send_when_idle(recorder: weakref.ref[Recorder], is_recording: Wakeup) -> None:
    pause = threading.Event()  # never set: the thread sleeps by it
    while True:
        if not is_recording.wait(1.0):
            if recorder() is None:
                return
            continue
        pause.wait(_IDLE_S)
        one = recorder()
        if one is None or not one.send_idle():
            return
        del one


def call_key_of(
    name: str, operands: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[Hashable, list[Operand | None]] | None:
    """Returns the key of a call's template and its operands; None for a call that is not recorded.

    Of recorded calls an operand is on the mesh, and the others are small; these are copied.
    """
    if name not in FUSABLE or len(operands) > len(FUNCTIONS[name].operands):
        return None
    parts: list[Hashable] = [name]
    values: list[Operand | None] = []
    is_on_mesh = False
    for operand in operands:
        if type(operand) is RemoteArray:
            is_on_mesh = True
            values.append(operand)
            parts.append((operand._version.type.shape, operand._version.type.dtype))
        elif operand is None:
            values.append(None)
            parts.append(None)
        elif (value := _copied(operand)) is not None:
            values.append(value)
            parts.append((value.shape, value.dtype, 0))
        else:
            return None
    if not is_on_mesh or not are_plain(keywords.values()):
        return None
    while values[-1] is None:
        values.pop()
    parts += [(key, type(item), item) for key, item in keywords.items()]
    return tuple(parts), values


def _copied(operand: Any) -> NDArray | None:
    """Returns a copy of a small operand, which the caller may change before it is sent; None for any other."""
    if not isinstance(operand, _SMALL) or getattr(operand, "nbytes", 0) > _MAX_OPERAND_BYTES:
        return None
    value = np.array(operand)
    return value if value.dtype in NATIVE_DTYPES and type(operand) is not np.ma.MaskedArray else None


def is_recorded(call: CallRequest, keywords: Mapping[str, Any]) -> bool:
    """Returns True for a call of a function that may be recorded, by its parameters and the types of its operands."""
    name, types = call.message.kernel, call.types
    if not keywords.keys() <= FUNCTIONS[name].defaults.keys() or call.message.strategy not in ("", AUTO):
        return False
    if name == "power" and types[-1] is not None and types[-1].dtype.kind == "i":
        return False  # whose values may be refused
    if name not in _BY_COMPONENTS and any(
        operand_type is not None and operand_type.dtype.kind == "c" for operand_type in types
    ):
        return False
    x = types[0]
    return not (name == "roll" and keywords.get("axis") is None and x is not None and x.ndim > 1)
