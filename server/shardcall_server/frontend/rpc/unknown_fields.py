"""Refusal of requests with fields that this server does not have, since their senders are newer.

Protobuf ignores such fields: an option would be without effect, an operand would be left out, and an item of a stream
would have no answer. Clients do not send fields with their default value, so a newer client that uses nothing new is
served.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

from google.protobuf import empty_pb2
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from shardcall_core.call_error import CallError, Reason
from shardcall_core.versions import newer_sender

M = TypeVar("M", bound=Message)


def refuse_unknown_fields(*messages: Message) -> None:
    """Refuses messages that have unknown fields, in 0.7 µs each; messages in them are not checked.

    Raises:
        CallError: NOT_SUPPORTED.
    """
    for message in messages:
        if len(fields := UnknownFieldSet(message)):
            raise _refusal(message, fields)


def checked_copy(message: M) -> M:
    """Returns a copy of a message, which must not be large; a part of a message keeps all of its memory.

    Raises:
        CallError: NOT_SUPPORTED if the message, or one in it, has unknown fields.
    """
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    if copy.ByteSize() != message.ByteSize():
        _refuse_in(message)
    return copy


def refused_item(item: Message) -> tuple[CallError, int]:
    """Returns the refusal of an item of a kind that this server does not have, and its number; 0 if it has none.

    By the contract, the number of an item that is answered is in its field 1.

    Raises:
        CallError: MALFORMED_REQUEST if the item is empty.
    """
    fields = UnknownFieldSet(item)
    if not len(fields):
        raise CallError(Reason.MALFORMED_REQUEST, "an item of a frame is empty; set one of its fields")
    number = 0
    if isinstance(data := fields[0].data, bytes):
        with suppress(DecodeError):
            parts = UnknownFieldSet(empty_pb2.Empty.FromString(data))
            numbers = (parts[i] for i in range(len(parts)))
            number = next((part.data for part in numbers if (part.field_number, part.wire_type) == (1, 0)), 0)
    return _refusal(item, fields), number


def _refuse_in(message: Message) -> None:
    """Refuses a message, or the first one in it, that has unknown fields."""
    refuse_unknown_fields(message)
    for field, value in message.ListFields():
        if field.message_type is not None:
            parts = (value,) if isinstance(value, Message) else value.values() if isinstance(value, Mapping) else value
            for part in parts:
                if isinstance(part, Message):  # values of a map may be something else
                    _refuse_in(part)


def _refusal(message: Message, fields: UnknownFieldSet) -> CallError:
    return newer_sender(f"{message.DESCRIPTOR.name} has the field {fields[0].field_number}")
