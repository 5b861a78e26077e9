"""Records calls, and sends several as one program."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardcall._src.device_arrays.array_version import ArrayVersion, Owner
from shardcall._src.device_arrays.call_sites import call_site
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.programs.call_sender import CallSender
from shardcall._src.programs.pending_call import lost_in_fork
from shardcall._src.programs.recorded_calls import RecordedCall, RecordedGraph, common_location
from shardcall._src.programs.sending import RecordedCallSender
from shardcall._src.programs.templates import FUSABLE, Templates
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S, deadline_after
from shardcall._src.rpc.threads import check_not_exiting, start_thread
from shardcall._src.rpc.wakeup import Wakeup
from shardcall._src.transfer.upload import Value
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.types.element_types import NATIVE_DTYPES
from shardcall_core.wire.forks import begin_anew_in_children

_SMALL = (np.ndarray, np.generic, bool, int, float, complex)
_MAX_OPERAND_BYTES = 4096
_IDLE_S = 0.02


class Recorder:
    """Records the calls of a client; safe to use from several threads at once.

    Each thread has calls of its own. They are sent when something needs a result, when a call of the same position in
    the caller's code comes again, and when nothing is recorded for some time.

    Args:
        sender: sends the calls.
        templates: the templates of the client's calls.
        max_seconds: the longest timeout.
    """

    def __init__(self, sender: CallSender, templates: Templates, max_seconds: float) -> None:
        self._timeout_s = deadline_after(DEFAULT_TIMEOUT_S, max_seconds).timeout_s
        self.sending = RecordedCallSender(sender, templates.messages, self._timeout_s)
        self._sender = sender
        self._templates = templates
        self._closed = False
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Resets the object in a forked child: recorded calls are its parent's."""
        for graph in tuple(getattr(self, "_graphs", ())):
            for call in (*graph.sending, *graph.calls):
                if call.graph is not None:
                    call.graph = None
                    call.fail(lost_in_fork(), is_raised=True)
            graph.sending = ()
            graph.begin_anew()
        self._graphs: weakref.WeakSet[RecordedGraph] = weakref.WeakSet()
        self._lock = threading.Lock()  # guards the graphs and the start of the thread
        self._local = threading.local()  # the graph of each thread
        self._timer: threading.Thread | None = None
        self._is_recording = Wakeup()  # set while something may be recorded, and by `close`

    def record(
        self, owner: Owner, name: str, operands: Sequence[Any], keywords: Mapping[str, Any]
    ) -> RemoteArray | None:
        """Records a call without a mesh and specs; returns its result, or None for a call that must be sent by itself.

        Args:
            owner: the client.
            name: the name of the kernel.
            operands: the operands; arrays of this process are copied.
            keywords: the parameters.

        Raises:
            ClientClosedError: if Python exits.
            ShardcallError: for a call that the function does not accept.
        """
        if name not in FUSABLE or len(operands) > len(FUNCTIONS[name].operands):
            return None
        if (values := _values(operands)) is None:
            return None
        template = self._templates.find(name, values, keywords)
        if template is None or not template.is_fusable:
            return None
        check_not_exiting()
        graph: RecordedGraph = getattr(self._local, "graph", None) or self._new_graph()
        for value in values:
            if not isinstance(value, ArrayVersion):
                continue
            if value.owner is not owner and value.pending is not None:
                value.settled()  # its client may send it later than this one's calls
            if not self._sender.is_here(value):
                return None  # it is refused with the reason
            maker = value.pending
            if type(maker) is RecordedCall and maker.graph not in (None, graph):
                maker.begin()
        site, line = call_site()
        with graph.lock:
            if (location := common_location(values)) is None:
                return None
            if not graph.accepts(site, len(values), location):
                self._send(graph)
                if (location := common_location(values)) is None:
                    return None
            committed = location[0]
            inputs = tuple([graph.value(value, is_committed=committed) for value in values])
            number = len(graph.calls)
            call = RecordedCall(self._sender.pending, template, graph, number, self._timeout_s, line, location)
            version = self._sender.new_result(owner, template.results[0], call, committed=committed)
            graph.add(call, inputs, site, location)
        if not self._is_recording.is_set():
            self._start()
        return RemoteArray(version)

    def flush(self) -> None:
        """Sends the calls of this thread."""
        graph = getattr(self._local, "graph", None)
        if graph is not None and graph.calls:
            self._send(graph)

    def flush_all(self) -> None:
        """Sends the calls of all threads, and waits while another thread sends some."""
        for graph in self._all():
            if graph.calls or graph.sending:
                self._send(graph)

    @property
    def has_open_calls(self) -> bool:
        """True if a call was not sent yet."""
        return any(graph.calls or graph.sending for graph in tuple(self._graphs))

    def close(self) -> None:
        """Forgets the recorded calls, whose results are lost."""
        self._closed = True
        self._is_recording.set()
        for graph in self._all():
            with graph.lock:
                self.sending.abandon(graph)

    def _send(self, graph: RecordedGraph, *, is_idle: bool = False) -> None:
        check_not_exiting()
        with graph.lock:
            if graph.calls:
                is_cut, graph.is_cut = graph.is_cut or is_idle, is_idle
                self.sending.send(graph, is_cut=is_cut)

    def _new_graph(self) -> RecordedGraph:
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
            if not graph.calls:
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


def _values(operands: Sequence[Any]) -> list[Value] | None:
    """Returns the operands of a call, without those left out at its end; None if it is not recorded.

    An operand is on the mesh, and the others are small; these are copied, since the caller may change them.
    """
    values: list[Value] = []
    is_on_mesh = False
    for operand in operands:
        if type(operand) is RemoteArray:
            is_on_mesh = True
            values.append(operand._version)
        elif operand is None:
            values.append(None)
        elif isinstance(operand, _SMALL) and getattr(operand, "nbytes", 0) <= _MAX_OPERAND_BYTES:
            value = np.array(operand)
            if value.dtype not in NATIVE_DTYPES or type(operand) is np.ma.MaskedArray:
                return None
            values.append(value)
        else:
            return None
    if not is_on_mesh:
        return None
    while values[-1] is None:
        values.pop()
    return values
