import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from shardcall.chunk_codec import Chunk, decode_answer, encode_chunk
from shardcall.v1 import array_pb2, kernel_service_pb2, timing_pb2

INDICES = st.integers(0, 2**32 - 1)
OFFSETS = st.integers(0, 2**64 - 1)


@given(INDICES, OFFSETS, st.binary(min_size=1, max_size=300))
def test_an_encoded_chunk_is_what_protobuf_writes(index, offset, data):
    chunk = array_pb2.TensorChunk(index=index, offset=offset, data=data)
    expected = kernel_service_pb2.ExecuteStreamRequest(chunk=chunk).SerializeToString()
    assert encode_chunk(index, offset, np.frombuffer(data, np.uint8)) == expected


@given(INDICES, OFFSETS, st.binary(max_size=300))
def test_a_decoded_chunk_is_what_protobuf_wrote(index, offset, data):
    chunk = array_pb2.TensorChunk(index=index, offset=offset, data=data)
    decoded = decode_answer(kernel_service_pb2.ExecuteStreamResponse(chunk=chunk).SerializeToString())
    assert isinstance(decoded, Chunk)
    assert (decoded.index, decoded.offset, decoded.data.tobytes()) == (index, offset, data)


@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda tail: b"\x12" + bytes((len(tail),)) + tail))
def test_any_bytes_are_read_as_protobuf_reads_them(message):
    try:
        expected = kernel_service_pb2.ExecuteStreamResponse.FromString(message)
    except DecodeError:
        with pytest.raises(DecodeError):
            decode_answer(message)
        return
    decoded = decode_answer(message)
    if isinstance(decoded, Chunk):
        chunk = expected.chunk
        assert (decoded.index, decoded.offset, decoded.data.tobytes()) == (chunk.index, chunk.offset, chunk.data)
    else:
        assert decoded == expected


def test_data_is_not_copied_on_the_way_in():
    chunk = array_pb2.TensorChunk(index=1, offset=2, data=b"data")
    message = kernel_service_pb2.ExecuteStreamResponse(chunk=chunk).SerializeToString()
    assert np.shares_memory(decode_answer(message).data, np.frombuffer(message, np.uint8))


def test_other_messages_stay_what_they_are():
    timing = kernel_service_pb2.ExecuteStreamResponse(timing=timing_pb2.Timing(total_seconds=1.0))
    assert decode_answer(timing.SerializeToString()) == timing
    assert decode_answer(b"") == kernel_service_pb2.ExecuteStreamResponse()
