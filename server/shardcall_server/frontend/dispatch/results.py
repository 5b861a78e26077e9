"""Delivery of results: in a message, in chunks, in the caller's segment, or as resident arrays."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from shardcall._src.wire.chunk_codec import CarrierClass, encode_chunk
from shardcall.v1 import kernel_pb2, kernel_service_pb2
from shardcall_server.errors import CallError
from shardcall_server.frontend.memory.call_buffers import CallBuffers
from shardcall_server.frontend.memory.resident_array_table import Reservation, ResidentArray, ResidentArrayTable
from shardcall_server.frontend.workers.running import Running
from shardcall_server.kernels.layout import ArrayType
from shardcall_server.link.wire import decode_operand_types, encode_array_type
from shardcall_worker.v1 import link_pb2


@dataclass(frozen=True)
class Results:
    """The results of a command.

    Attributes:
        types: the types of the results.
        buffers: the buffers that they are gathered to.
    """

    types: Sequence[ArrayType]
    buffers: CallBuffers

    @property
    def travelling_bytes(self) -> int:
        """Bytes of results that are sent in messages."""
        in_messages = not self.buffers.segment_id and not any(to.HasField("array_id") for to in self.buffers.results)
        return sum(kind.nbytes for kind in self.types) if in_messages else 0

    def inline(self, executed: link_pb2.Executed) -> list[kernel_service_pb2.Result]:
        """Returns the results as parts of one message."""
        if self.buffers.segment_id:
            return self.announced()
        return [
            kernel_service_pb2.Result(
                type=encode_array_type(kind),
                inline=kernel_service_pb2.InlineTensor(data=self._bytes(i, executed).tobytes()),
            )
            for i, kind in enumerate(self.types)
        ]

    def announced(self) -> list[kernel_service_pb2.Result]:
        """Returns the results without their bytes, which are in the segment or follow as chunks."""
        if not self.buffers.segment_id:
            streamed = kernel_service_pb2.StreamedTensor()
            return [kernel_service_pb2.Result(type=encode_array_type(kind), streamed=streamed) for kind in self.types]
        return [
            kernel_service_pb2.Result(
                type=encode_array_type(kind),
                segment=kernel_service_pb2.SegmentRegion(segment_id=self.buffers.segment_id, offset=to.span.offset),
            )
            for kind, to in zip(self.types, self.buffers.results, strict=True)
        ]

    def chunks(self, carrier: CarrierClass, running: Running, chunk_bytes: int) -> Iterator[bytes]:
        """Yields messages with chunks of the results, each serialized, as soon as its bytes are gathered."""
        if self.buffers.segment_id:
            return
        before = 0
        for index, (kind, to) in enumerate(zip(self.types, self.buffers.results, strict=True)):
            if not to.HasField("span"):
                data = self._bytes(index, running.finish().executed)
                yield from _pieces(partial(encode_chunk, carrier, index), data, chunk_bytes)
                continue
            for offset in range(0, kind.nbytes, chunk_bytes):
                size = min(chunk_bytes, kind.nbytes - offset)
                running.wait_for(before + offset + size)
                piece = self.buffers.view(to.span, kind.nbytes)[offset : offset + size]
                yield encode_chunk(carrier, index, offset, piece)
            before += kind.nbytes

    def _bytes(self, index: int, executed: link_pb2.Executed) -> np.ndarray:
        to = self.buffers.results[index]
        if to.HasField("span"):
            return self.buffers.view(to.span, self.types[index].nbytes)
        return np.frombuffer(executed.inline_results[index], np.uint8)


def _pieces(encode: Any, data: np.ndarray, chunk_bytes: int) -> Iterator[bytes]:
    for offset in range(0, data.size, chunk_bytes):
        yield encode(offset, data[offset : offset + chunk_bytes])


@contextmanager
def reserved(
    array_table: ResidentArrayTable, lease_id: bytes, plan: kernel_pb2.Plan, owner: str, *, keep: bool
) -> Iterator[list[Reservation]]:
    """Reserves device memory for resident results; reservations that the body does not commit are cancelled."""
    if not keep:
        yield []
        return
    with ExitStack() as stack:
        yield [
            stack.enter_context(array_table.reserve(lease_id, placed_bytes(result, plan), owner))
            for result in plan.results
        ]


async def commit(
    running: Running,
    reservations: Sequence[Reservation],
    plan: kernel_pb2.Plan,
    check: Callable[[], Awaitable[None]],
    handles: Sequence[bytes] = (),
    launched: Callable[[Sequence[ResidentArray]], None] | None = None,
) -> list[kernel_service_pb2.Result]:
    """Waits for resident results and returns them with their handles.

    Args:
        running: the command that makes them.
        reservations: the reservation of each.
        plan: the plan of the call.
        check: raises CallError if an operand turns out not to have been computed.
        handles: the handles that the client chose.
        launched: called with the results, which are in the table before they are computed; None for afterwards.
    """
    kept: list[ResidentArray] = []

    async def finish() -> None:
        try:
            await running.answer()
        finally:
            await check()  # that an operand was not computed explains more

    def add(computed: Future[object] | None) -> None:
        kinds = decode_operand_types([result.type for result in plan.results])
        chosen = handles or [b""] * len(reservations)
        for reservation, kind, placement, handle in zip(reservations, kinds, plan.results, chosen, strict=True):
            assert kind is not None
            nbytes = placed_bytes(placement, plan)
            kept.append(reservation.commit(running.epoch, kind, plan.mesh, placement, nbytes, handle, computed))

    with running.deleted_unless_done([reservation.array_id for reservation in reservations]):
        if launched is None:
            await finish()
            add(None)
        else:
            computed: Future[object] = Future()
            try:
                try:
                    add(computed)
                except CallError:
                    await running.answer()  # an error of the mesh explains more
                    raise
                launched(kept)
                await finish()
            except BaseException as error:
                for reservation, resident in zip(reservations, kept, strict=False):
                    reservation.withdraw(resident)
                computed.set_exception(error)
                raise
            computed.set_result(None)
    return [
        kernel_service_pb2.Result(
            type=resident.placement.type, resident=kernel_service_pb2.ResidentArray(handle=resident.handle)
        )
        for resident in kept
    ]


def placed_bytes(placement: kernel_pb2.ArrayPlacement, plan: kernel_pb2.Plan) -> int:
    """Returns the bytes that an array takes on the devices, counting copies on several of them."""
    (kind,) = decode_operand_types([placement.type])
    assert kind is not None
    return ArrayType(tuple(placement.block_shape), kind.dtype).nbytes * len(plan.mesh.device_ids)
