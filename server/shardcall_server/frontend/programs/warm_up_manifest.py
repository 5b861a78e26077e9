"""The file that names calls whose programs are to be made before the server is ready."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from shardcall import Array, Mesh, P, ShardcallError
from shardcall._src.calls import calls
from shardcall._src.types.specs import PartitionSpec
from shardcall._src.wire.private_files import PrivateFileError, read_file
from shardcall.v1 import array_pb2, kernel_pb2
from shardcall_server.errors import did_you_mean, shorten
from shardcall_server.settings import SettingsError

T = TypeVar("T")
_KEYS = ("kernel", "operands", "mesh", "device_ids", "in_specs", "out_specs", "strategy", "parameters")
_TYPE = re.compile(r"\s*([A-Za-z0-9_]+)\s*\[([0-9,\s]*)\]\s*")
_SPEC = re.compile(r"\s*P\((.*)\)\s*", re.DOTALL)
_MAX_CALLS = 1024
_MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class NamedCall:
    """A call without values that the file names.

    Attributes:
        name: what errors call it: the file, its place there and its kernel.
        call: as a client would send it; without a mesh where that is left to the server.
        operands: the types of its operands.
    """

    name: str
    call: kernel_pb2.KernelCall
    operands: tuple[array_pb2.ArrayType, ...]


def read_keys(path: Path) -> list[NamedCall]:
    """The calls that a file names, checked as a client checks them; the kernels' own checks come later.

    Raises:
        SettingsError: the file cannot be read, or one of its calls is none; says which and why.
    """
    try:
        content = tomllib.loads(read_file(path, _MAX_BYTES, is_secret=False, allow_sticky=True).decode())
    except (OSError, PrivateFileError) as error:
        raise SettingsError(f"the file {path} of setting warm cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the file {path} of setting warm is not TOML: {error}") from None
    if unknown := sorted(content.keys() - {"call"}):
        raise SettingsError(f"{path} has {unknown[0]!r}; write every call as a table [[call]]")
    entries = content.get("call", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SettingsError(f"{path}: write every call as a table [[call]], with double brackets")
    if len(entries) > _MAX_CALLS:
        raise SettingsError(f"{path} names {len(entries)} calls; at most {_MAX_CALLS} are allowed")
    return [_named(f"{path}, call {number}", entry) for number, entry in enumerate(entries, 1)]


def _named(place: str, entry: Mapping[str, Any]) -> NamedCall:
    kernel = entry.get("kernel")
    name = f"{place} ({shorten(kernel)})" if isinstance(kernel, str) else place
    try:
        call, operands = _call(entry)
    except (ShardcallError, ValueError) as error:
        raise SettingsError(f"{name}: {error}") from None
    return NamedCall(name, call, operands)


def _call(entry: Mapping[str, Any]) -> tuple[kernel_pb2.KernelCall, tuple[array_pb2.ArrayType, ...]]:
    for key in entry:
        if key not in _KEYS:
            raise ValueError(f"{key!r} is no key of a call; {did_you_mean(key, _KEYS)}")
    for key in ("kernel", "operands"):
        if key not in entry:
            raise ValueError(f"{key} is missing; give it, and of the others what differs from the default")
    mesh = _of_class(entry, "mesh", dict, {})
    device_ids = _of_class(entry, "device_ids", list, [])
    if device_ids and not mesh:
        raise ValueError("device_ids is given without mesh; give both, such as mesh = { x = 2 }")
    prepared = calls.prepare(
        entry["kernel"],
        [_type(text) for text in _of_class(entry, "operands", list, [])],
        _of_class(entry, "parameters", dict, {}),
        mesh=Mesh(mesh, device_ids=device_ids or None) if mesh else None,
        in_specs=[_spec(text) for text in _of_class(entry, "in_specs", list, [])],
        out_specs=[_spec(text) for text in _of_class(entry, "out_specs", list, [])],
        strategy=entry.get("strategy", calls.AUTO),
    )
    operands = prepared.type_messages()
    while operands and operands[-1] == array_pb2.ArrayType():  # as the server says that one is left out
        del operands[-1]
    return prepared.message, tuple(operands)


def _of_class(entry: Mapping[str, Any], key: str, kind: type[T], default: T) -> T:
    value = entry.get(key, default)
    if not isinstance(value, kind):
        written = "a list, with brackets" if kind is list else "a table, such as { x = 8 }"
        raise ValueError(f"{key} is {shorten(repr(value))}; write {written}")
    return value


def _type(text: object) -> Array | None:
    """An operand as messages and plans write its type; None for one left out."""
    return _parsed(text, "an operand", 'its type, such as "float64[4096,4096]", or "" for one left out', _read_type)


def _spec(text: object) -> PartitionSpec | None:
    """A spec as Python writes it; None for one left to the server."""
    return _parsed(text, "a spec", '\'P("x", None)\', or "" for the default', _read_spec)


def _parsed(text: object, what: str, allowed: str, read: Callable[[str], T]) -> T | None:
    if text == "":
        return None
    try:
        if isinstance(text, str):
            return read(text)
    except ShardcallError:  # some are TypeErrors
        raise
    except (SyntaxError, TypeError, RecursionError, MemoryError):  # of what is between the brackets
        pass
    raise ValueError(f"{what} is {shorten(repr(text))}; write {allowed}")


def _read_type(text: str) -> Array:
    found = _TYPE.fullmatch(text)
    if not found:
        raise TypeError
    sizes: Sequence[str] = [size for size in found[2].replace(" ", "").split(",") if size]
    return Array(tuple(map(int, sizes)), found[1])


def _read_spec(text: str) -> PartitionSpec:
    found = _SPEC.fullmatch(text)
    if not found:
        raise TypeError
    inner = found[1].strip()
    try:
        entries = ast.literal_eval(f"({inner.rstrip(',')},)") if inner else ()
    except ValueError:  # no literals
        raise TypeError from None
    return P(*entries)
