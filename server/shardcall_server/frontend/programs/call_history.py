"""Recent calls and their counts, by which the next start of the mesh compiles programs ahead."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import structlog
from google.protobuf import json_format

from shardcall.v1 import array_pb2, kernel_pb2
from shardcall_core.call_error import CallError
from shardcall_core.wire import private_files
from shardcall_core.wire.private_files import PrivateFileError
from shardcall_server.frontend.programs.cache_entry import CacheEntry
from shardcall_server.frontend.programs.keys import AbstractCall, CallKey
from shardcall_server.link.wire import check_counts

FILE_NAME = "call_history.json"
MAX_FILE_BYTES = 8 << 20
_FORMAT = 1
_MAX_CALLS = 256
_MAX_CALLS_OF_FILE = 1024
_MAX_CALL_BYTES = 8192
_WRITE_EVERY_S = 60.0
_BETWEEN_WRITES_S = 2.0  # where calls are new
_MAX_REASON = 500
_FIELDS = {"call", "operands", "has_resident_arrays", "count", "used", "devices"}
_FADING = 0.5  # the weight of counts from before a start


@dataclass
class HistoryEntry:
    """A call and its use.

    Attributes:
        call: the call, completed.
        count: the number of times that it came; those before the server's start count less.
        used: its last use, as a Unix time.
        devices: the platform and number of devices that it ran on, such as "cpu 8"; empty for any.
    """

    call: AbstractCall
    count: float = 0.0
    used: float = 0.0
    devices: str = ""

    @cached_property
    def content(self) -> dict[str, Any]:
        """The call in the JSON form of its messages."""
        call, *operands = (
            json_format.MessageToDict(message, preserving_proto_field_name=True)
            for message in (self.call.call, *self.call.operands)
        )
        resident = {"has_resident_arrays": True} if self.call.has_resident_arrays else {}
        return {"call": call, "operands": operands, **resident}


class CallHistory:
    """The calls used lately, the most recent ones of all servers that share a directory.

    If the file is damaged or cannot be written, the next start only compiles fewer programs ahead.

    Args:
        directory: the folder of the file; empty for none. Without a file, the history outlasts restarts of the mesh
            and ends with the server.
        max_calls: the limit of calls that are kept.
    """

    def __init__(self, directory: str, max_calls: int = _MAX_CALLS) -> None:
        self._max_calls = max_calls
        self._file = Path(directory, FILE_NAME) if directory else None
        self._lock = threading.Lock()  # guards the next two; the file is read and written without it
        self._calls: OrderedDict[CallKey, HistoryEntry] = OrderedDict()  # the one used last is the last
        self._removed: set[CallKey] = set()
        self._in_file: OrderedDict[CallKey, HistoryEntry] = OrderedDict()
        self._version: tuple[int, ...] = ()  # of the file that these calls were read from or written to
        self._warned = False
        self._closing = threading.Event()  # ends the thread
        self._has_new = threading.Event()  # wakes the thread: a call is new, or it is to end
        self._has_changed = False
        self.devices = ""
        """The platform and number of devices of the present mesh."""
        try:
            self._calls = self._read(_FADING)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            self._warn("the call history is not used, and programs are compiled when they are called", error)
        self._writer = threading.Thread(target=self._write_at_intervals, name="call-history", daemon=True)
        self._writer.start()

    def add(self, call: AbstractCall) -> None:
        """Counts a call whose program was cached or compiled."""
        if self.touch(call.key) or call.call.ByteSize() > _MAX_CALL_BYTES:
            return
        with self._lock:
            self._calls.setdefault(call.key, HistoryEntry(call, 1.0, time.time(), self.devices))
            self._removed.discard(call.key)
            while len(self._calls) > self._max_calls:
                self._calls.popitem(last=False)
            self._has_changed = True
        self._has_new.set()

    def add_when_compiled(self, call: AbstractCall, entry: CacheEntry | Future[CacheEntry]) -> None:
        """Counts a call once its program is compiled; does not count one that is refused."""
        if not isinstance(entry, Future):
            self.add(call)
        elif not self.touch(call.key):
            entry.add_done_callback(lambda done: None if done.exception() else self.add(call))

    def touch(self, key: CallKey) -> bool:
        """Counts a call that is in the history; returns whether it is."""
        with self._lock:
            counted = self._calls.get(key)
            if counted is None:
                return False
            counted.count += 1.0
            counted.used, counted.devices = time.time(), self.devices
            self._calls.move_to_end(key)
            self._has_changed = True
        return True

    def remove(self, key: CallKey) -> None:
        """Leaves out a call until it comes again."""
        with self._lock:
            self._calls.pop(key, None)
            self._removed.add(key)
            self._has_changed = True
        self._has_new.set()

    def by_frequency(self) -> list[HistoryEntry]:
        """Returns the calls of the present devices, the most frequent first."""
        with self._lock:
            here = [counted for counted in self._calls.values() if counted.devices == self.devices]
        return sorted(here, key=lambda counted: (-counted.count, -counted.used))

    def close(self) -> None:
        """Writes the file once more."""
        self._closing.set()
        self._has_new.set()
        self._writer.join()

    def _write_at_intervals(self) -> None:
        while not self._closing.is_set():
            self._has_new.wait(_WRITE_EVERY_S)
            self._has_new.clear()
            self._write()
            self._closing.wait(_BETWEEN_WRITES_S)
        self._write()

    def _write(self) -> None:
        if self._file is None or not self._has_changed:
            return
        if self._version != _version(self._file):  # another server has written it
            try:
                self._in_file = self._read(1.0)
            except (FileNotFoundError, ValueError):  # a damaged file is written over
                self._in_file.clear()
            except OSError as error:  # the other server's calls are not written over
                self._warn("the call history cannot be read, and is not written", error)
                return
        with self._lock:
            self._has_changed = False
            calls = {**{key: c for key, c in self._in_file.items() if key not in self._removed}, **self._calls}
        latest = sorted(calls.values(), key=lambda counted: counted.used)[-self._max_calls :]
        items = [{**c.content, "count": c.count, "used": c.used, "devices": c.devices} for c in latest]
        try:
            private_files.write_file(self._file, json.dumps({"format": _FORMAT, "calls": items}).encode())
            self._in_file = OrderedDict((counted.call.key, counted) for counted in latest)
            self._version = _version(self._file)
        except (OSError, PrivateFileError) as error:
            self._has_changed = True
            self._warn("the call history cannot be written, and the next start will not know it", error)

    def _read(self, fading: float) -> OrderedDict[CallKey, HistoryEntry]:
        if self._file is None:
            return OrderedDict()
        calls = decode_calls(private_files.read_file(self._file, MAX_FILE_BYTES, is_secret=False))[: self._max_calls]
        for counted in calls:
            counted.count *= fading
        return OrderedDict((counted.call.key, counted) for counted in sorted(calls, key=lambda counted: counted.used))

    def _warn(self, event: str, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            structlog.get_logger().warning(event, reason=str(error))


def decode_calls(text: bytes) -> list[HistoryEntry]:
    """Returns the calls of a history, or of a file in the same form: counts, times and devices may be missing there.

    Raises:
        ValueError: names the call that is wrong.
    """
    label = "the file"
    try:
        content = json.loads(text)
        if content["format"] != _FORMAT:
            raise ValueError(f"its format is {content['format']!r} and this server's is {_FORMAT}")
        calls = []
        for number, item in enumerate(content["calls"], 1):
            label = f"call {number}"
            if number > _MAX_CALLS_OF_FILE:
                raise ValueError(f"at most {_MAX_CALLS_OF_FILE} calls are allowed")
            calls.append(_decode(item))
    except KeyError as error:
        raise ValueError(f"{label} has no {error}") from None
    except (
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        json_format.Error,
        CallError,
    ) as error:
        raise ValueError(f"{label} cannot be read: {' '.join(str(error).split())[:_MAX_REASON]}") from None
    return calls


def _decode(item: Any) -> HistoryEntry:
    if unknown := sorted(set(item) - _FIELDS):
        raise ValueError(f"{unknown[0]!r} is unknown; allowed are {', '.join(sorted(_FIELDS))}")
    call = json_format.ParseDict(item["call"], kernel_pb2.KernelCall())
    operands = [json_format.ParseDict(operand, array_pb2.ArrayType()) for operand in item["operands"]]
    check_counts(call, len(operands))
    while operands and not operands[-1].element_type:  # omitted at the end, as in calls
        operands.pop()
    abstract = AbstractCall(call, tuple(operands), item.get("has_resident_arrays") is True)
    count, used = float(item.get("count", 0)), float(item.get("used", 0))
    if not (0 <= count < math.inf and 0 <= used < math.inf):
        raise ValueError("count or used is negative or not finite")
    return HistoryEntry(abstract, count, min(used, time.time()), str(item.get("devices", "")))


def _version(file: Path) -> tuple[int, ...]:
    """Returns values that change whenever a file is replaced; empty if there is no file."""
    try:
        status = file.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size
