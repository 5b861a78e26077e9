"""The messages of a streamed call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardcall import arrays
from shardcall.arrays import NDArray
from shardcall.chunk_codec import encode_chunk
from shardcall.v1 import kernel_pb2, kernel_service_pb2

# An operand of this size or less rides in the header: a message of its own would cost more than its bytes.
_RIDES_ALONG_BYTES = 64 * 2**10


def unary_request(call: kernel_pb2.KernelCall, operands: Sequence[NDArray | None]) -> kernel_service_pb2.ExecuteRequest:
    """Returns a call with everything in one message."""
    return kernel_service_pb2.ExecuteRequest(call=call, operands=[_inline(operand) for operand in operands])


def stream_requests(
    call: kernel_pb2.KernelCall, operands: Sequence[NDArray | None], inline_bytes: int, chunk_bytes: int
) -> Iterator[bytes]:
    """Yields the header, then the chunks of every operand that does not ride in it, as bytes of their messages.

    Args:
        call: all but the arrays.
        operands: row-major, little-endian; None for one left out.
        inline_bytes: what may ride in the header, all operands together.
        chunk_bytes: the most bytes of one chunk.
    """
    messages, streamed = [], []
    room = inline_bytes
    for index, operand in enumerate(operands):
        if operand is None or operand.nbytes <= min(room, _RIDES_ALONG_BYTES):
            messages.append(_inline(operand))
            room -= 0 if operand is None else operand.nbytes
        else:
            kind = arrays.to_proto(arrays.type_of(operand))
            messages.append(kernel_service_pb2.Operand(type=kind, streamed=kernel_service_pb2.StreamedTensor()))
            streamed.append((index, operand))
    header = kernel_service_pb2.ExecuteRequest(call=call, operands=messages)
    yield kernel_service_pb2.ExecuteStreamRequest(header=header).SerializeToString()
    for index, operand in streamed:
        yield from _chunks(index, operand, chunk_bytes)


def _inline(operand: NDArray | None) -> kernel_service_pb2.Operand:
    if operand is None:
        return kernel_service_pb2.Operand()
    return kernel_service_pb2.Operand(
        type=arrays.to_proto(arrays.type_of(operand)),
        inline=kernel_service_pb2.InlineTensor(data=operand.tobytes()),
    )


def _chunks(index: int, operand: NDArray, chunk_bytes: int) -> Iterator[bytes]:
    view = arrays.as_bytes_view(operand)
    for offset in range(0, view.size, chunk_bytes):
        yield encode_chunk(index, offset, view[offset : offset + chunk_bytes])
