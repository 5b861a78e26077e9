"""Valid requests changed at random: fields set to values at the edge of their range, and bytes torn apart.

The same seed and number make the same change.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_BITS = [0, 1, 2, 3, 7, 8, 9, 16, 31, 32, 33, 64, 65, 255, 1 << 16, 2**31 - 1, 2**31, 2**32, 2**40, 2**53, 2**62]
_SIGNED = [*_BITS, *(-n for n in _BITS), 2**63 - 1, -(2**63)]
_TEXTS = ["", "x", "y", "auto", "diff", "sum", "matmul", "halo", "axis", "n", "shape", "\0", "é", "💥", "%s%n", "../x"]
_BYTES = [b"", b"\0", b"x" * 15, bytes(16), b"x" * 17, bytes(64), b"\xff" * 64, bytes(1 << 17)]
_FLOATS = [0.0, -0.0, -1.0, 1.5, 1e308, 5e-324, float("nan"), float("inf"), float("-inf")]
_ENUMS = [*range(21), -1, 2**31 - 1]
_MANY = 70
_DEEP = b"\x0b" * 150
_TYPES = {
    FieldDescriptor.CPPTYPE_INT32: [n for n in _SIGNED if -(2**31) <= n < 2**31],
    FieldDescriptor.CPPTYPE_INT64: _SIGNED,
    FieldDescriptor.CPPTYPE_UINT32: [*(n for n in _BITS if n < 2**32), 2**32 - 1],
    FieldDescriptor.CPPTYPE_UINT64: [*_BITS, 2**63, 2**64 - 64, 2**64 - 1],
    FieldDescriptor.CPPTYPE_DOUBLE: _FLOATS,
    FieldDescriptor.CPPTYPE_FLOAT: _FLOATS,
    FieldDescriptor.CPPTYPE_BOOL: [False, True],
    FieldDescriptor.CPPTYPE_ENUM: _ENUMS,
    FieldDescriptor.CPPTYPE_STRING: _TEXTS,
}


@dataclass(frozen=True)
class ValidRequest:
    """The messages of a request that the server would serve; their class names the method."""

    messages: tuple[Message, ...]

    @property
    def method(self) -> str:
        return type(self.messages[0]).__name__.removesuffix("Request")


@dataclass(frozen=True)
class MutatedRequest:
    """A changed request."""

    method: str
    messages: tuple[bytes, ...]

    def __str__(self) -> str:
        return f"{self.method} {[message[:1000].hex() for message in self.messages[:9]]}"


class Mutations:
    """Changes of valid requests.

    Args:
        valid: the requests.
        seed: the seed of the changes.
    """

    def __init__(self, valid: Sequence[ValidRequest], seed: str) -> None:
        self._valid = valid
        self._seed = seed
        parts = [part for request in valid for message in request.messages for part in _parts(message)]
        self._donors: dict[str, list[Message]] = {}
        for part in parts:
            self._donors.setdefault(part.DESCRIPTOR.full_name, []).append(part)

    def __getitem__(self, number: int) -> MutatedRequest:
        chance = random.Random(f"{self._seed}:{number}")
        request = chance.choice(self._valid)
        messages = [_copy(message) for message in request.messages]
        draw = chance.random()
        if draw < 0.75:
            for _ in range(chance.choice([1, 1, 1, 2, 3])):
                self.change(chance, chance.choice(messages))
        data = [message.SerializeToString() for message in messages]
        if draw >= 0.7:
            for _ in range(chance.choice([1, 1, 2, 5])):
                i = chance.randrange(len(data))
                data[i] = self.tear(chance, data[i])
        if len(data) > 1 and chance.random() < 0.2:
            data = _reordered(chance, data)
        return MutatedRequest(request.method, tuple(data))

    def tear(self, chance: random.Random, data: bytes) -> bytes:
        """Returns the bytes of a message with others in them, or without some."""
        other = chance.choice(self._valid).messages[0].SerializeToString()
        begin = chance.randrange(len(other) + 1)
        return chance.choice(_TEARS)(chance, data, other[begin : begin + chance.randrange(1, 200)])

    def change(self, chance: random.Random, message: Message) -> None:
        """Changes a field of a message, or of one in it."""
        self._change(chance, chance.choice([*_parts(message)]))

    def _change(self, chance: random.Random, part: Message) -> None:
        fields = part.DESCRIPTOR.fields
        if not fields:
            return
        field = chance.choice(fields)
        if chance.random() < 0.15:
            part.ClearField(field.name)
        elif _is_map(field):
            self._change_map(chance, getattr(part, field.name), field)
        elif field.is_repeated:
            self._change_list(chance, getattr(part, field.name), field)
        elif field.message_type:
            getattr(part, field.name).CopyFrom(self._donor(chance, field))
        else:
            setattr(part, field.name, _scalar(chance, field))

    def _change_list(self, chance: random.Random, items, field: FieldDescriptor) -> None:
        match chance.randrange(4):
            case 0 if items:
                del items[chance.randrange(len(items))]
            case 1 if items:
                more = items[-1] if field.message_type or chance.random() < 0.5 else _scalar(chance, field)
                items.extend([more] * chance.choice([1, 1, 2, 28, _MANY, 300]))
            case 2 if items and not field.message_type:
                items[chance.randrange(len(items))] = _scalar(chance, field)
            case _:
                items.append(self._donor(chance, field) if field.message_type else _scalar(chance, field))

    def _change_map(self, chance: random.Random, entries, field: FieldDescriptor) -> None:
        value_field = field.message_type.fields_by_name["value"]
        key = chance.choice([*entries, *_TEXTS])
        if key in entries and chance.random() < 0.2:
            del entries[key]
        else:
            entries[key].CopyFrom(self._donor(chance, value_field))

    def _donor(self, chance: random.Random, field: FieldDescriptor) -> Message:
        """A part of the same kind of another request, sometimes changed once more."""
        donors = self._donors.get(field.message_type.full_name)
        donor = _copy(chance.choice(donors)) if donors else field.message_type._concrete_class()
        if chance.random() < 0.5:
            self._change(chance, donor)
        return donor


def _parts(message: Message) -> Iterator[Message]:
    """A message and all that are in it."""
    yield message
    for field, value in message.ListFields():
        if not field.message_type:
            continue
        inner = value.values() if _is_map(field) else value if field.is_repeated else [value]
        for part in inner:
            if isinstance(part, Message):
                yield from _parts(part)


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _copy(message: Message) -> Message:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def _scalar(chance: random.Random, field: FieldDescriptor):
    if field.type == FieldDescriptor.TYPE_BYTES:
        return chance.choice([*_BYTES, chance.randbytes(chance.choice([1, 16, 32, 64]))])
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING and chance.random() < 0.1:
        return "x" * chance.choice([64, 65, 4096, 4097, 70_000])
    return chance.choice(_TYPES[field.cpp_type])


def _reordered(chance: random.Random, data: list[bytes]) -> list[bytes]:
    i, j = chance.randrange(len(data)), chance.randrange(len(data))
    match chance.randrange(4):
        case 0:
            del data[i]
        case 1:
            data.insert(i, data[j])
        case 2:
            data[i], data[j] = data[j], data[i]
        case 3:
            data += [data[-1]] * _MANY
    return data


def _flip(chance: random.Random, data: bytes, other: bytes) -> bytes:
    if not data:
        return other
    i = chance.randrange(len(data))
    return data[:i] + bytes([data[i] ^ 1 << chance.randrange(8)]) + data[i + 1 :]


def _insert(chance: random.Random, data: bytes, other: bytes) -> bytes:
    i = chance.randrange(len(data) + 1)
    return data[:i] + chance.choice([other, chance.randbytes(5), b"\xff" * 11, _DEEP]) + data[i:]


def _delete(chance: random.Random, data: bytes, other: bytes) -> bytes:
    i = chance.randrange(len(data) + 1)
    return data[:i] + data[i + chance.randrange(1, 9) :]


def _truncate(chance: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _splice(chance: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: chance.randrange(len(data) + 1)] + other


_TEARS: list[Callable[[random.Random, bytes, bytes], bytes]] = [_flip, _flip, _insert, _delete, _truncate, _splice]
