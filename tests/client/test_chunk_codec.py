"""The hand-made codec against the generated code, for all four messages that carry chunks."""

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from shardcall.v1 import array_pb2, array_service_pb2, kernel_service_pb2
from shardcall_core.wire.chunk_codec import Chunk, decode, encode_chunk

CARRIERS = (
    kernel_service_pb2.ExecuteStreamRequest,
    kernel_service_pb2.ExecuteStreamResponse,
    array_service_pb2.PutArrayRequest,
    array_service_pb2.GetArrayResponse,
)
ALL = pytest.mark.parametrize("carrier", CARRIERS, ids=lambda carrier: carrier.DESCRIPTOR.name)


def varint(number, padding=0):
    """A number as a varint, with as many bytes more than it needs."""
    out = bytearray()
    while number > 0x7F or padding > 0:
        padding -= number <= 0x7F
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def delimited(tag, content, padding=0):
    return bytes((tag,)) + varint(len(content), padding) + content


def numbers(largest=2**64 - 1):
    return st.builds(varint, st.integers(0, largest), st.integers(0, 10))


# Fields of a chunk and of what is around it: known, unknown, of a wrong kind, numbers longer than need be.
PIECES = st.one_of(
    st.builds(lambda number: b"\x08" + number, numbers()),
    st.builds(lambda number: b"\x10" + number, numbers()),
    st.builds(delimited, st.just(0x1A), st.binary(max_size=80), st.integers(0, 10)),
    st.builds(delimited, st.just(0x7A), st.binary(max_size=20)),
    st.builds(lambda number: b"\x20" + number, numbers()),
    st.binary(max_size=3),
)
CHUNKS = st.lists(PIECES, max_size=5).map(b"".join)
MESSAGES = st.one_of(
    st.lists(
        st.builds(delimited, st.sampled_from([0x12, 0x12, 0x12, 0x0A, 0x1A, 0x22]), CHUNKS, st.integers(0, 10)),
        max_size=3,
    ).map(b"".join),
    st.tuples(st.builds(delimited, st.just(0x12), CHUNKS), st.binary(max_size=3)).map(b"".join),
    st.builds(lambda message, cut: message[:-cut], st.builds(delimited, st.just(0x12), CHUNKS), st.integers(1, 9)),
    st.binary(max_size=40),
)


@ALL
@given(index=st.integers(0, 2**32 - 1), offset=st.integers(0, 2**64 - 1), data=st.binary(max_size=300))
@example(index=0, offset=0, data=b"")
@example(index=1, offset=2, data=b"data")
def test_a_chunk_is_encoded_as_protobuf_writes_it_and_decoded_without_a_copy(carrier, index, offset, data):
    message = carrier(chunk=array_pb2.TensorChunk(index=index, offset=offset, data=data)).SerializeToString()
    assert encode_chunk(carrier, index, offset, np.frombuffer(data, np.uint8)) == message
    decoded = decode(carrier, message)
    assert isinstance(decoded, Chunk)
    assert (decoded.index, decoded.offset, decoded.data.tobytes()) == (index, offset, data)
    assert not data or np.shares_memory(decoded.data, np.frombuffer(message, np.uint8))


@ALL
@given(message=MESSAGES)
@example(message=b"\x12\x02\x1a\x00")
@example(message=delimited(0x12, b"\x1a" + varint(3, 9) + b"abc"))
@example(message=delimited(0x12, delimited(0x1A, b"abc"), padding=10))
def test_any_bytes_are_read_as_protobuf_reads_them(carrier, message):
    try:
        expected = carrier.FromString(message)
    except DecodeError:
        with pytest.raises(DecodeError):
            decode(carrier, message)
        return
    decoded = decode(carrier, message)
    if expected.WhichOneof("message") == "chunk":
        chunk = expected.chunk
        assert isinstance(decoded, Chunk)
        assert (decoded.index, decoded.offset, decoded.data.tobytes()) == (chunk.index, chunk.offset, chunk.data)
    else:
        assert decoded == expected
