"""The calls that came lately, and how often: what the next start of the mesh makes ready first."""

from __future__ import annotations

import base64
import json
import math
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from google.protobuf.message import DecodeError

from shardcall._src.wire import private_files
from shardcall._src.wire.private_files import PrivateFileError
from shardcall.v1 import array_pb2, kernel_pb2
from shardcall_server.errors import CallError
from shardcall_server.frontend.programs.cache_entry import CacheEntry
from shardcall_server.frontend.programs.keys import AbstractCall, CallKey
from shardcall_server.link.wire import check_counts

_FILE_NAME = "hot.json"
_FORMAT = 1
_MAX_CALLS = 256
_MAX_CALL_BYTES = 8192
_MAX_FILE_BYTES = 8 << 20
_WRITE_EVERY_S = 60.0
_BETWEEN_WRITES_S = 2.0  # where calls are new
_FADING = 0.5  # what a start leaves of the counts of those before


@dataclass
class CountedCall:
    """A call without its values.

    Attributes:
        call: with nothing about its mesh left open.
        operands: the types of its operands.
        count: how often it came; earlier starts of the server count less.
        used: when it came last, as a Unix time.
        devices: what mesh it ran on, such as "cpu 8".
    """

    call: kernel_pb2.KernelCall
    operands: tuple[array_pb2.ArrayType, ...]
    count: float = 0.0
    used: float = 0.0
    devices: str = ""


class CallHistory:
    """The calls used lately, the most recent ones of all servers that share a directory.

    A file that is damaged or cannot be written costs only that the next start makes less ready.

    Args:
        directory: where the file is; empty for none: then worker restarts know the calls, and no later start does.
    """

    def __init__(self, directory: str) -> None:
        self._file = Path(directory, _FILE_NAME) if directory else None
        self._lock = threading.Lock()
        self._calls: OrderedDict[CallKey, CountedCall] = OrderedDict()  # the one used last is the last
        self._forgotten: set[CallKey] = set()
        self._warned = False
        self._ending = threading.Event()
        self._has_new = threading.Event()
        self._has_changed = False
        self.devices = ""
        """The mesh that calls run on now, such as "cpu 8"."""
        try:
            self._calls = self._read(_FADING)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            self._warn("what was called before is not known, and made ready when it is called", error)
        self._writer = threading.Thread(target=self._write_now_and_then, name="hot-calls", daemon=True)
        self._writer.start()

    def add(self, call: AbstractCall) -> None:
        """Counts a call whose program was found or made."""
        if self.touch(call.key) or call.call.ByteSize() > _MAX_CALL_BYTES:
            return
        counted = CountedCall(call.call, tuple(call.operands), 1.0, time.time(), self.devices)
        with self._lock:
            self._calls.setdefault(call.key, counted)
            self._forgotten.discard(call.key)
            while len(self._calls) > _MAX_CALLS:
                self._calls.popitem(last=False)
            self._has_changed = True
        self._has_new.set()

    def add_when_compiled(self, call: AbstractCall, entry: CacheEntry | Future[CacheEntry]) -> None:
        """Counts a call when its program is there, and not if it is refused."""
        if not isinstance(entry, Future):
            self.add(call)
        elif not self.touch(call.key):
            entry.add_done_callback(lambda done: None if done.exception() else self.add(call))

    def touch(self, digest: CallKey) -> bool:
        """Counts a call that is known, and tells whether it is."""
        with self._lock:
            known = self._calls.get(digest)
            if known is None:
                return False
            known.count += 1.0
            known.used, known.devices = time.time(), self.devices
            self._calls.move_to_end(digest)
            self._has_changed = True
        return True

    def forget(self, digest: CallKey) -> None:
        """Leaves a call out, until it comes again."""
        with self._lock:
            self._calls.pop(digest, None)
            self._forgotten.add(digest)
            self._has_changed = True
        self._has_new.set()

    def hottest(self) -> list[tuple[CallKey, CountedCall]]:
        """The calls of the present mesh by their digests, those first that came most often."""
        with self._lock:
            here = [(digest, call) for digest, call in self._calls.items() if call.devices == self.devices]
        return sorted(here, key=lambda item: (-item[1].count, -item[1].used))

    def close(self) -> None:
        """Writes what is not written yet."""
        self._ending.set()
        self._has_new.set()
        self._writer.join()

    def _write_now_and_then(self) -> None:
        while not self._ending.is_set():
            self._has_new.wait(_WRITE_EVERY_S)
            self._has_new.clear()
            self._write()
            self._ending.wait(_BETWEEN_WRITES_S)
        self._write()

    def _write(self) -> None:
        if self._file is None or not self._has_changed:
            return
        others: OrderedDict[CallKey, CountedCall] = OrderedDict()
        with suppress(OSError, ValueError):  # what other servers have added; a damaged file is written over
            others = self._read(1.0)
        with self._lock:
            self._has_changed = False
            kept = {**{d: call for d, call in others.items() if d not in self._forgotten}, **self._calls}
            known = sorted(kept.values(), key=lambda call: call.used)[-_MAX_CALLS:]
            text = json.dumps({"format": _FORMAT, "calls": [_encode(call) for call in known]})
        try:
            private_files.write_file(self._file, text.encode())
        except (OSError, PrivateFileError) as error:
            self._warn("the calls that came lately will not be known to the next start", error)

    def _read(self, fading: float) -> OrderedDict[CallKey, CountedCall]:
        if self._file is None:
            return OrderedDict()
        text = private_files.read_file(self._file, _MAX_FILE_BYTES, is_secret=False)
        try:
            stored = json.loads(text)
            if stored["format"] != _FORMAT:
                raise ValueError(f"its format is {stored['format']!r} and this server's is {_FORMAT}")
            calls = sorted((_decode(item) for item in stored["calls"][:_MAX_CALLS]), key=lambda call: call.used)
        except (ValueError, TypeError, KeyError, AttributeError, DecodeError, CallError, RecursionError) as error:
            raise ValueError(f"{_FILE_NAME} is damaged or another program's: {error!r}") from None
        for call in calls:
            call.count *= fading
        return OrderedDict((AbstractCall(call.call, call.operands).key, call) for call in calls)

    def _warn(self, what: str, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            structlog.get_logger().warning(what, reason=str(error))


def _encode(call: CountedCall) -> dict[str, Any]:
    return {
        "call": _text(call.call.SerializeToString(deterministic=True)),
        "operands": [_text(operand.SerializeToString(deterministic=True)) for operand in call.operands],
        "count": call.count,
        "used": call.used,
        "devices": call.devices,
    }


def _decode(stored: Any) -> CountedCall:
    call = kernel_pb2.KernelCall.FromString(_bytes(stored["call"]))
    operands = tuple(array_pb2.ArrayType.FromString(_bytes(operand)) for operand in stored["operands"])
    check_counts(call, len(operands))
    count, used = float(stored["count"]), float(stored["used"])
    if not (0 <= count < math.inf and 0 <= used < math.inf):
        raise ValueError("a number is no number")
    return CountedCall(call, operands, count, min(used, time.time()), str(stored["devices"]))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
