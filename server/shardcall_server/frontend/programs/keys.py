"""Keys of requests, calls and programs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, NewType

from shardcall.v1 import array_pb2, kernel_pb2
from shardcall_core.layouts.layout import ArrayType

ProgramKey = NewType("ProgramKey", str)
"""The digest of a compiled program's key, by which the mesh names the program."""

CallKey = NewType("CallKey", bytes)
"""The digest of a completed call: its message and the types of its operands."""

TuningKey = NewType("TuningKey", str)
"""The digest of a program's key with "auto" for the strategy."""


class RequestKey(NamedTuple):
    """A call as its sender wrote it.

    Attributes:
        message: the serialized call.
        operands: the types of its operands.
        has_resident_arrays: as in `AbstractCall`.
        placements: the mesh and the placement of each operand; empty for those that are not resident.
    """

    message: bytes
    operands: tuple[ArrayType | None, ...]
    has_resident_arrays: bool
    placements: tuple[bytes, ...] = ()


@dataclass(frozen=True, eq=False)
class AbstractCall:
    """A completed call without the values of its operands.

    Attributes:
        call: the call, with a mesh and a strategy, which may be "auto".
        operands: the types of its operands.
        has_resident_arrays: whether any operand or result stays on the mesh: the bound on what is transferred does
            not apply to it.
    """

    call: kernel_pb2.KernelCall
    operands: Sequence[array_pb2.ArrayType]
    has_resident_arrays: bool = False

    @cached_property
    def key(self) -> CallKey:
        """SHA-256 of all the above. Several keys may lead to one program."""
        sha = hashlib.sha256(b"resident" if self.has_resident_arrays else b"")
        for message in (self.call, *self.operands):
            data = message.SerializeToString(deterministic=True)
            sha.update(len(data).to_bytes(8, "little"))
            sha.update(data)
        return CallKey(sha.digest())
