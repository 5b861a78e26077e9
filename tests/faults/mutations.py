"""Valid requests of every method, and changes of them at random: fields at the edge of their range, and torn bytes.

The same seed and number make the same change.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from end_to_end.messages import mesh, operand, spec, tensor
from faults.bad_input_rows import F32, I32, X8, call, inline_operand
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from shardcall.v1 import array_pb2, kernel_pb2
from shardcall.v1 import array_service_pb2 as arrays
from shardcall.v1 import file_service_pb2 as files
from shardcall.v1 import kernel_service_pb2 as kernels
from shardcall.v1 import segment_service_pb2 as segments
from shardcall.v1 import server_info_service_pb2 as infos

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


_X = np.arange(24.0).reshape(6, 4)
_X2 = mesh(x=2)
_SEED = tensor(element_type=I32)
_STREAMED = kernels.Operand(type=tensor(6, 4), streamed={})


def _calls() -> list[tuple[kernel_pb2.KernelCall, list[array_pb2.ArrayType]]]:
    x, two = [tensor(6, 4)], [tensor(8, 8), tensor(8, 8)]
    return [
        (call(), x),
        (call("diff", {"axis": 0, "n": 2}, mesh=X8, in_specs=[spec("x", None)]), [*x, tensor()]),
        (call("shift", {"shift": 1, "axis": 0, "mode": "periodic"}, mesh=_X2), x),
        (call("gradient", {"axis": (0,), "edge_order": 2}), x),
        (call("laplacian", {"axes": (0, 1), "boundary": "zero"}, mesh=mesh(x=2, y=2)), x),
        (call("cumsum", {"axis": 0, "dtype": "float64"}, mesh=X8), x),
        (call("convolve", {"mode": "same", "axis": 0}, mesh=_X2), [*x, tensor(3)]),
        (call("matmul", {}, mesh=mesh(a=4, b=2), in_specs=[spec("a", None), spec(None, "b")]), two),
        (call("einsum", {"subscripts": "ij,jk->ik"}, mesh=X8), two),
        (call("collective_matmul", {"axis_name": "x"}, mesh=X8, strategy="ring"), two),
        (call("uniform", {"shape": (4, 3), "dtype": "float32"}), [_SEED]),
        (call("randint", {"shape": 8, "dtype": "int32"}), [_SEED] * 3),
        (call("permutation", {"axis": 0}), [_SEED, *x]),
        (call("stack", {"axis": 1}, mesh=_X2), [*x, *x, *x]),
        (call("sum", {"axis": (0, 1), "keepdims": True}, mesh=X8), x),
        (call("std", {"axis": 0, "ddof": 1}), x),
        (call("add", mesh=mesh(0, 1, x=2)), [tensor(6, 4), tensor(4)]),
        (call("where"), [tensor(6, element_type=1), tensor(6), tensor(6)]),
        (call("transpose", {"axes": (1, 0)}, mesh=X8, out_specs=[spec("x", None)]), x),
        (call("reshard", mesh=X8, out_specs=[spec(None, "x")]), x),
    ]


def _filled(array_type: array_pb2.ArrayType) -> kernels.Operand:
    size = {1: 1, I32: 4}.get(array_type.element_type, 8) * int(np.prod(array_type.shape))
    return inline_operand(array_type.shape, bytes(size), array_type.element_type)


def _executions(handle: bytes, lease_id: bytes) -> Iterator[Message]:
    for asked, array_types in _calls():
        yield kernels.ExecuteRequest(call=asked, operands=map(_filled, array_types))
    plain, scalar = operand(_X), inline_operand((), bytes(8))
    resident = kernels.Operand(resident={"handle": handle})
    for asked in (call(), call("diff", {"axis": 0}, mesh=X8), call("diff", {"n": 3})):
        for operands in ([plain], [plain, scalar], [resident]):
            yield kernels.ExecuteRequest(call=asked, operands=operands)
    yield kernels.ExecuteRequest(call=call(), operands=[resident], refuse_transfers=True)
    narrow = inline_operand((6, 4), _X.astype(np.float32).tobytes(), F32)
    yield kernels.ExecuteRequest(call=call(), operands=[narrow], keep_results=True, lease_id=lease_id)


def _arrays(handle: bytes, lease_id: bytes) -> Iterator[Message]:
    header = arrays.PutArrayHeader(array=operand(_X), mesh=_X2, spec=spec("x", None), lease_id=lease_id)
    yield arrays.PutArrayRequest(header=header)
    yield arrays.GetArrayRequest(handle=handle)
    yield arrays.DescribeArrayRequest(handle=handle)
    yield arrays.NameArrayRequest(handle=bytes(16), name="u", keep_seconds=1)
    yield arrays.OpenArrayRequest(name="u")
    yield arrays.ShareArrayRequest(name="u", principal="guest")
    yield arrays.UnshareArrayRequest(name="u", principal="guest")
    yield arrays.ListArraysRequest(lease_id=lease_id)
    yield arrays.RenewLeaseRequest(lease_id=lease_id)
    yield arrays.DeleteArraysRequest(handles=[bytes(16), b"x" * 16])
    for name in ("a/b.npy", "a/b.zarr"):
        yield files.SaveArrayRequest(handle=handle, name=name)
        yield files.LoadArrayRequest(name=name, mesh=_X2, spec=spec("x", None), lease_id=lease_id)
    yield files.SaveCheckpointRequest()
    yield files.ListFilesRequest(prefix="a")
    yield files.RemoveFileRequest(name="a/c.npy")


def _streams(lease_id: bytes) -> Iterator[tuple[Message, ...]]:
    def chunk(request, begin=0, end=None):
        return request(chunk=array_pb2.TensorChunk(offset=begin, data=_X.tobytes()[begin:end]))

    request = kernels.ExecuteStreamRequest
    opening = request(header=kernels.ExecuteRequest(call=call(), operands=[_STREAMED]))
    yield opening, chunk(request)
    yield opening, chunk(request, 0, 64), chunk(request, 64)
    put = arrays.PutArrayRequest
    yield put(header=arrays.PutArrayHeader(array=_STREAMED, lease_id=lease_id)), chunk(put)


def valid_requests(handle: bytes, lease_id: bytes) -> list[ValidRequest]:
    """Requests of every method that anybody may call, but those of models and recordings.

    Args:
        handle: an array on the mesh.
        lease_id: the lease for those that are made.
    """
    messages = [
        *(
            plan(call=c, operands=types)
            for plan in (kernels.PlanRequest, kernels.CompileRequest)
            for c, types in _calls()
        ),
        kernels.PlanRequest(call=call(), operands=[tensor(6, 4)], handles=[handle]),
        *_executions(handle, lease_id),
        *_arrays(handle, lease_id),
        kernels.ListKernelsRequest(),
        kernels.DescribeKernelRequest(kernel="diff"),
        segments.OpenSegmentRequest(size_bytes=1 << 21),
        infos.GetServerInfoRequest(),
        infos.GetUsageRequest(),
        infos.GetProgressRequest(request_ids=["a", "b"]),
    ]
    return [*(ValidRequest((message,)) for message in messages), *map(ValidRequest, _streams(lease_id))]
