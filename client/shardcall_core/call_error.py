"""`CallError`, the exception that code below the servicers raises for the caller to see.

It depends on neither gRPC nor protobuf: `frontend/rpc/status.py` converts it to a gRPC status, and
`mesh/worker.py` sends it over the link.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

_MAX_COMPARED = 64  # characters; the time of a comparison grows with their square
_MAX_LISTED = 12  # names in a message

DEVICES_FAILED = "the devices could not be started"
"""The event of the worker's log line whose reason ends a start."""

LISTING_OF_KERNELS = "client.kernels(), or shardcall kernels,"
MAX_KERNEL_NAME = 1024
"""The most characters of a kernel's name."""
"""The way to list the kernels, for `did_you_mean`."""


class Reason(enum.StrEnum):
    """Reasons for which a call fails; the names of `shardcall.v1.ErrorReason` without their prefix."""

    @staticmethod
    def _generate_next_value_(name: str, _start: int, _count: int, _last: list[str]) -> str:
        return name

    MALFORMED_REQUEST = enum.auto()
    KERNEL_NOT_FOUND = enum.auto()
    UNKNOWN_PARAMETER = enum.auto()
    INVALID_PARAMETER = enum.auto()
    AXIS_OUT_OF_RANGE = enum.auto()
    INVALID_OPERAND = enum.auto()
    INVALID_SHAPE = enum.auto()
    SIZE_MISMATCH = enum.auto()
    UNSUPPORTED_ELEMENT_TYPE = enum.auto()
    INVALID_MESH = enum.auto()
    NOT_ENOUGH_DEVICES = enum.auto()
    UNKNOWN_MESH_AXIS = enum.auto()
    MESH_AXIS_REUSED = enum.auto()
    SPEC_TOO_LONG = enum.auto()
    UNKNOWN_STRATEGY = enum.auto()
    STRATEGY_UNSUPPORTED = enum.auto()
    CALL_TOO_LARGE = enum.auto()
    STREAM_REQUIRED = enum.auto()
    SERVER_BUSY = enum.auto()
    OUT_OF_HOST_MEMORY = enum.auto()
    OUT_OF_DEVICE_MEMORY = enum.auto()
    DEADLINE_EXCEEDED = enum.auto()
    CANCELLED = enum.auto()
    MESH_RESTARTED = enum.auto()
    MESH_NOT_READY = enum.auto()
    SERVER_DRAINING = enum.auto()
    NOT_SUPPORTED = enum.auto()
    COMPILE_FAILED = enum.auto()
    INTERNAL = enum.auto()
    ARRAY_LOST = enum.auto()
    SEGMENT_NOT_FOUND = enum.auto()
    RESIDENT_LIMIT = enum.auto()
    TOKEN_REQUIRED = enum.auto()
    SCOPE_MISSING = enum.auto()
    QUOTA_EXCEEDED = enum.auto()
    EXECUTE_LIMIT = enum.auto()
    COMPILE_LIMIT = enum.auto()
    PROGRAM_REFUSED = enum.auto()
    REQUEST_ID_REUSED = enum.auto()
    PROFILE_STATE = enum.auto()
    INVALID_VALUE = enum.auto()
    PARAMETER_TYPE = enum.auto()
    OPERAND_COUNT = enum.auto()
    TRANSFER_REQUIRED = enum.auto()
    KERNEL_FAILED_KNOWN_ANSWERS = enum.auto()
    STREAM_IDLE = enum.auto()
    INDEX_OUT_OF_RANGE = enum.auto()
    INVALID_MATRIX = enum.auto()
    NAME_TAKEN = enum.auto()
    FILE_NOT_FOUND = enum.auto()
    FILE_DAMAGED = enum.auto()
    FILE_LIMIT = enum.auto()
    FILES_UNAVAILABLE = enum.auto()
    ARRAY_READ_ONLY = enum.auto()


OF_VALUES = frozenset({Reason.INVALID_VALUE, Reason.INDEX_OUT_OF_RANGE, Reason.INVALID_MATRIX})
"""The reasons of refusals that depend on the values of operands."""


class CallError(Exception):
    """The failure of a call, with a message that its sender can act on.

    Args:
        reason: the kind of failure; decides the gRPC status and the client's exception class.
        message: the value that was received, the values that are allowed, and the remedy.
        field: the part of the request at fault, as the caller knows it: ``operand 0``, ``axis``, ``mesh``.
        metadata: further values for programs to read.
    """

    def __init__(
        self, reason: Reason, message: str, *, field: str = "", metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field
        self.metadata = dict(metadata or {})

    def copy(self) -> CallError:
        """Returns the error to be kept or raised again: without the traceback, which has the call and its messages."""
        return CallError(self.reason, self.message, field=self.field, metadata=self.metadata)


def shorten(value: object, limit: int = 120) -> str:
    """Returns a value's repr; a long one is cut off and followed by its length.

    A status with its details must stay below 4 KiB, and a client may send values of any length.
    """
    text = value if isinstance(value, str) else repr(value)
    if len(text) <= limit and text.isprintable():
        return text
    suffix = f"… ({len(text)} characters)" if len(text) > limit else ""
    prefix = text[: max(0, limit - len(suffix))] if suffix else text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in prefix) + suffix


def kernel_name_refusal(name: str) -> CallError:
    """Returns the error of a name that is too long for a kernel."""
    return CallError(
        Reason.KERNEL_NOT_FOUND,
        f"there is no kernel {shorten(name)!r}; a name has at most {MAX_KERNEL_NAME} characters, and "
        f"{LISTING_OF_KERNELS} lists all",
        field="kernel",
    )


def did_you_mean(name: str, valid_names: Iterable[str], listing: str = "") -> str:
    """Returns a sentence with the valid name that is most similar, or with all of them if none is similar.

    Args:
        name: the name that was given.
        valid_names: the names that are allowed.
        listing: how to list them, instead of a list that is too long for a message.
    """
    valid_names = sorted(valid_names)
    near = get_close_matches(name[:_MAX_COMPARED], valid_names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    if listing and len(valid_names) > _MAX_LISTED:
        return f"{listing} lists all {len(valid_names)}"
    return f"there are: {', '.join(valid_names) or 'none'}"
