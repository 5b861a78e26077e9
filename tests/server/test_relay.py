"""Transfers of commands and arrays to a worker without shared memory, and back: a test stands for the agent."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import rows
from server.conftest import on_threads

from shardcall.v1 import kernel_pb2, server_info_service_pb2
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, block_shape, padded_shape
from shardcall_core.wire.chunk_codec import Chunk, decode
from shardcall_server.frontend.hosts import pieces as pieces_module
from shardcall_server.frontend.hosts import relay
from shardcall_server.frontend.hosts.pieces import Scatter, as_bytes, pieces
from shardcall_server.frontend.hosts.relay import RelayedLink
from shardcall_server.frontend.workers.block_table import BlockTable
from shardcall_server.link.framing import LinkClosedError, LinkFullError
from shardcall_server.link.wire import encode_array_type, encode_mesh, encode_spec
from shardcall_worker.v1 import host_service_pb2, link_pb2

CHUNK = 64
DTYPES = [np.float64, np.bool_, np.uint8, np.complex128, ml_dtypes.bfloat16, ml_dtypes.int4]


@pytest.fixture(autouse=True, scope="module")
def small_chunks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces_module, "CHUNK_BYTES", CHUNK)
        yield


@st.composite
def views(draw: st.DrawFn) -> np.ndarray:
    """A part of an array of zeros, contiguous or not."""
    full_shape = draw(st.lists(st.integers(0, 12), max_size=3))
    part = [slice(*sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n))))) for n in full_shape]
    view: np.ndarray = np.zeros(full_shape, draw(st.sampled_from(DTYPES)))[(*part, ...)]
    return view


def fill(view: np.ndarray, seed: int) -> bytes:
    """Fills a view with values of its type; returns its elements in row-major order."""
    view[...] = np.random.default_rng(seed).integers(0, 2, view.shape).astype(view.dtype)
    return view.tobytes()


@settings(max_examples=300, deadline=None)
@given(view=views(), seed=st.integers(0, 99))
def test_the_pieces_are_the_elements_in_row_major_order_and_no_larger_than_a_chunk(view, seed):
    expected = fill(view, seed)
    buffers = [as_bytes(piece) for piece in pieces(view)]
    assert b"".join(data.tobytes() for data in buffers) == expected
    assert all(0 < data.size <= CHUNK for data in buffers)


@settings(max_examples=300, deadline=None)
@given(
    targets=st.lists(st.tuples(st.integers(0, 70), views()), max_size=4),
    cuts=st.lists(st.integers(0, 2000), max_size=12),
    beyond=st.integers(0, 70),
    seed=st.integers(0, 99),
)
def test_bytes_reach_their_offsets_however_they_are_cut(targets, cuts, beyond, seed):
    expected = [fill(view, seed + i) for i, (_, view) in enumerate(targets)]
    run = b"".join(b"\xee" * gap + data for (gap, _), data in zip(targets, expected, strict=True))
    due = len(run)
    for _, view in targets:
        view[...] = 0
    run += b"\xdd" * beyond
    scatter = Scatter(targets)
    ends = sorted({min(cut, len(run)) for cut in cuts} | {len(run)})
    begin = 0
    for end in ends:
        assert scatter.is_complete == (begin >= due)
        scatter.write(np.frombuffer(run[begin:end], np.uint8))
        begin = end
    assert scatter.is_complete
    assert [view.tobytes() for _, view in targets] == expected


def test_large_arrays_are_views_not_copies():
    array = np.arange(100, dtype=np.float64)
    assert all(np.shares_memory(piece, array) for piece in pieces(array))
    assert np.shares_memory(as_bytes(array), array)


def test_a_piece_that_is_not_contiguous_is_copied_when_it_is_complete():
    out = np.zeros((4, 4), np.uint8)
    scatter = Scatter([(0, out[:, 1:3])])
    scatter.write(np.arange(1, 8, dtype=np.uint8))
    assert not out.any()
    assert not scatter.is_complete
    scatter.write(np.array([8], np.uint8))
    assert scatter.is_complete
    np.testing.assert_array_equal(out[:, 1:3].reshape(-1), np.arange(1, 9))


START_ID = 7
CARRIER: Any = host_service_pb2.JoinResponse
AXES = MeshAxes((("x", 8),))
ROWS: Spec = (("x",), ())
TABLE = BlockTable([server_info_service_pb2.Device(id=i, process_index=i // 2) for i in range(8)])
EXECUTED = link_pb2.Executed()
Arrays = list[tuple[ArrayType, Spec]]


def placement(array_type: ArrayType, spec: Spec, axes: MeshAxes = AXES) -> kernel_pb2.ArrayPlacement:
    return kernel_pb2.ArrayPlacement(
        type=encode_array_type(array_type),
        spec=encode_spec(spec),
        padded_shape=padded_shape(array_type.shape, spec, axes),
        block_shape=block_shape(array_type.shape, spec, axes),
    )


class Exchange:
    """One Execute of operands and results in one file, with one process of four.

    Args:
        operands, results: each with its spec.
        process: which.
    """

    def __init__(self, operands: Arrays, results: Arrays, process: int = 0) -> None:
        self.queue: list[Any] = []
        self.link = RelayedLink(START_ID, process, self.queue.append)
        self.plan = kernel_pb2.Plan(
            mesh=encode_mesh(AXES, tuple(range(8))),
            operands=[placement(array_type, spec) for array_type, spec in operands],
            results=[placement(array_type, spec) for array_type, spec in results],
        )
        array_types = [array_type for array_type, _ in [*operands, *results]]
        ends = np.cumsum([0, *(-(-array_type.nbytes // 64) * 64 for array_type in array_types)])
        self.memory = memory = np.random.default_rng(1).integers(0, 255, int(ends[-1]), np.uint8)
        self.file: Any = SimpleNamespace(memory_id=5, fd=-1, nbytes=memory.size)
        self.file.view = lambda begin, nbytes: memory[begin : begin + nbytes]
        spans = [link_pb2.MemorySpan(memory_id=5, offset=int(end)) for end in ends[:-1]]
        n = len(operands)
        self.message = link_pb2.FrontEndMessage(
            call_id=3,
            sequence=9,
            execute=link_pb2.Execute(
                key_digest="k",
                operands=[link_pb2.TensorData(span=span) for span in spans[:n]],
                results=[link_pb2.ResultDestination(span=span) for span in spans[n:]],
            ),
        )
        self.arrays = [
            np.ndarray(array_type.shape, array_type.dtype, buffer=memory, offset=span.offset)
            for array_type, span in zip(array_types, spans, strict=True)
        ]
        self.operands, self.results = self.arrays[:n], self.arrays[n:]

    def send(self) -> Exchange:
        self.link.send_with_data(self.message, self.plan, TABLE, [self.file])
        return self

    def deliver(self) -> list[host_service_pb2.JoinResponse | Chunk]:
        """Returns the messages that the agent receives."""
        return [decode(CARRIER, message) for outgoing in self.queue for message in outgoing]

    def agent_memory(self) -> tuple[host_service_pb2.HostCommand, link_pb2.FrontEndMessage, np.ndarray]:
        """Handles a command as an agent does: its operands are complete when the last chunk ends at their end."""
        first, *chunks = self.deliver()
        command = first.command
        memory = np.zeros(max(command.operand_bytes, command.result_begin + command.result_bytes), np.uint8)
        end = 0
        for chunk in chunks:
            assert end <= chunk.offset, "in order"
            end = chunk.offset + chunk.data.size
            memory[chunk.offset : end] = chunk.data
        assert end == command.operand_bytes
        return command, link_pb2.FrontEndMessage.FromString(command.front_end_message), memory

    def answer(self, **answer: Any) -> None:
        self.link.take_message(link_pb2.WorkerMessage(call_id=3, **answer).SerializeToString())


F8 = np.dtype(np.float64)
BYTES = ArrayType((13, 5), np.dtype(np.uint8)), ROWS
OPERANDS = {
    "rows": [(ArrayType((16, 5), F8), ROWS)],
    "padded rows": [(ArrayType((13, 5), F8), ROWS)],
    "columns": [(ArrayType((7, 16), F8), ((), ("x",)))],
    "replicated": [(ArrayType((7, 16), F8), ((), ()))],
    "two": [BYTES, (ArrayType((16,), F8), (("x",),))],
    "one of which a host has padding only": [BYTES, (ArrayType((2,), F8), (("x",),))],
    "one without elements": [BYTES, (ArrayType((0, 3), F8), ROWS)],
    "a scalar": [(ArrayType((), F8), ())],
}


@rows("process", range(4))
@rows("name", OPERANDS)
def test_a_host_gets_the_blocks_that_its_devices_hold_and_no_more(name, process):
    exchange = Exchange(OPERANDS[name], [], process).send()
    command, message, memory = exchange.agent_memory()
    assert (command.start_id, message.call_id, message.sequence) == (START_ID, 3, 9)
    held_bytes = 0
    operands = zip(message.execute.operands, exchange.operands, exchange.plan.operands, strict=True)
    for data, array, array_placement in operands:
        array_type, held = TABLE.held(array_placement, exchange.plan.mesh, process)
        assert data.blocks.memory_id == 0
        for piece in held:
            assert (data.blocks.offset + piece.offset) % 64 == 0
            got = piece.view(memory[data.blocks.offset :], array_type.dtype)
            np.testing.assert_array_equal(got, piece.of(array))
            held_bytes += piece.nbytes
    assert 0 <= command.operand_bytes - held_bytes < 64 * (len(OPERANDS[name]) * 2 + 1)


@rows("process", range(4))
@rows("name", OPERANDS)
def test_results_reach_their_offsets_and_nothing_else_is_touched(name, process):
    exchange = Exchange([(ArrayType((3, 3), F8), ROWS)], OPERANDS[name], process)
    expected = exchange.memory.copy()
    exchange.send()
    command, message, memory = exchange.agent_memory()
    assert command.result_begin % 64 == 0 or not command.result_bytes
    rng = np.random.default_rng(2)
    for i, array_placement in enumerate(message.execute.results):
        array_type, result_pieces = TABLE.gathered(exchange.plan.results[i], exchange.plan.mesh, process)
        offset = exchange.message.execute.results[i].span.offset
        array = np.ndarray(array_type.shape, array_type.dtype, buffer=expected, offset=offset)
        for piece in result_pieces:
            block = rng.integers(0, 100, piece.shape).astype(array_type.dtype)
            piece.view(memory[array_placement.blocks.offset :], array_type.dtype)[...] = block
            piece.of(array)[...] = block
    come = memory[command.result_begin : command.result_begin + command.result_bytes]
    cuts = sorted(random.Random(3).sample(range(come.size), min(5, come.size)))
    for part in np.split(come, cuts):
        exchange.link.take_chunk(3, part)
    exchange.answer(executed=EXECUTED)
    assert exchange.memory.tobytes() == expected.tobytes()
    exchange.link.close()
    assert [link_pb2.WorkerMessage.FromString(body).call_id for ((body, _),) in exchange.link.batches()] == [3]


def test_commands_go_in_the_order_of_sending_and_their_operands_follow_them():
    exchange = Exchange(OPERANDS["rows"], [])
    exchange.link.send(b"first")
    exchange.send()
    exchange.link.send(b"last")
    messages = exchange.deliver()
    assert [i for i, message in enumerate(messages) if not isinstance(message, Chunk)] == [0, 1, len(messages) - 1]
    assert messages[0].command.front_end_message == b"first"
    assert len(messages) > 4


def test_nothing_is_read_from_memory_or_written_to_it_once_the_link_is_closed():
    for sent in (0, 2):
        exchange = Exchange(OPERANDS["rows"], OPERANDS["rows"]).send()
        before = exchange.memory.tobytes()
        outgoing = iter(exchange.queue[0])
        for _ in range(sent):
            next(outgoing)
        exchange.link.close()
        assert list(outgoing) == []
        with pytest.raises(LinkClosedError):
            exchange.link.send(b"late")
        exchange.link.take_chunk(3, np.full(64, 0xAA, np.uint8))
        exchange.answer(executed=EXECUTED)
        assert exchange.memory.tobytes() == before
        assert list(exchange.link.batches()) == []


def test_closing_waits_for_the_copy_in_progress():
    exchange = Exchange([], OPERANDS["rows"]).send()
    copying, may_go_on, closed = threading.Event(), threading.Event(), threading.Event()

    def write(data: np.ndarray) -> None:
        copying.set()
        may_go_on.wait()
        assert not closed.is_set()

    exchange.link._results[3] = SimpleNamespace(write=write, is_complete=True)  # type: ignore[assignment]
    taking = threading.Thread(target=exchange.link.take_chunk, args=[3, np.zeros(1, np.uint8)])
    closing = threading.Thread(target=lambda: (exchange.link.close(), closed.set()))
    taking.start()
    copying.wait()
    closing.start()
    assert not closed.wait(0.1)
    may_go_on.set()
    taking.join()
    closing.join()


def test_results_of_a_command_that_was_answered_are_thrown_away():
    exchange = Exchange([], OPERANDS["rows"]).send()
    exchange.answer(compiling=link_pb2.Compiling())
    exchange.link.take_message(link_pb2.WorkerMessage(heartbeat=link_pb2.Heartbeat()).SerializeToString())
    assert exchange.link._results.keys() == {3}, "what comes before an answer is none"
    exchange.answer(failure=link_pb2.Failure(reason="INTERNAL"))
    before = exchange.memory.tobytes()
    exchange.link.take_chunk(3, np.full(64, 0xAA, np.uint8))
    exchange.link.take_chunk(99, np.full(64, 0xAA, np.uint8))
    assert exchange.memory.tobytes() == before
    assert exchange.link._results == {}, "a command that failed would keep its memory for ever"


@rows("come", [0, 1, 64])
def test_an_answer_whose_results_have_not_come_is_refused(come):
    """Their offsets hold another call's bytes."""
    exchange = Exchange([], OPERANDS["rows"]).send()
    exchange.link.take_chunk(3, np.zeros(come, np.uint8))
    with pytest.raises(ValueError, match="before its results"):
        exchange.answer(executed=EXECUTED)
    assert not exchange.link.readable
    with pytest.raises(DecodeError):
        exchange.link.take_message(b"\xff\xff")


def test_an_agent_that_does_not_read_has_only_so_much_kept_for_it(monkeypatch):
    monkeypatch.setattr(relay, "_MAX_WAITING_BYTES", 1000)
    exchange = Exchange([], [])
    for _ in range(2):
        assert exchange.link.has_capacity(1000)
        exchange.link.send(bytes(900))
        assert not exchange.link.has_capacity(500)
        with pytest.raises(LinkFullError):
            exchange.link.send(bytes(500))
        exchange.deliver()


def test_what_is_kept_is_counted_right_by_many_threads():
    exchange = Exchange([], [])

    def send_and_take(sends: bool) -> None:
        taken = 0
        while taken < 4000:
            if sends:
                exchange.link.send(b"x" * 100)
                taken += 8
            elif exchange.queue:
                list(exchange.queue.pop())
                taken += 1

    on_threads(send_and_take, [True] * 8 + [False])
    assert exchange.link._waiting_bytes == 0


def test_every_part_of_an_array_counts_as_a_heartbeat():
    exchange = Exchange(OPERANDS["rows"], OPERANDS["rows"]).send()
    command, _, memory = exchange.agent_memory()
    parts = exchange.link.moved_for(3)
    assert parts > 1
    exchange.link.take_chunk(3, memory[command.result_begin :])
    assert exchange.link.moved == exchange.link.moved_for(3) == parts + 1
    exchange.answer(executed=EXECUTED)
    assert (exchange.link.moved, exchange.link.moved_for(3)) == (parts + 1, 0)


def test_the_table_knows_meshes_of_some_of_the_devices_in_any_order():
    array_type = ArrayType((4, 2), F8)
    axes = MeshAxes((("x", 2),))
    mesh = encode_mesh(axes, (6, 1))
    array_placement = placement(array_type, ROWS, axes)
    assert [TABLE.held(array_placement, mesh, p)[1] for p in (1, 2)] == [[], []]
    assert [piece.bounds for piece in TABLE.held(array_placement, mesh, 3)[1]] == [((0, 2), (0, 2))]
    assert [piece.bounds for piece in TABLE.gathered(array_placement, mesh, 0)[1]] == [((2, 4), (0, 2))]


def test_the_table_is_bounded():
    table = BlockTable([server_info_service_pb2.Device(id=0)])
    axes = MeshAxes((("x", 1),))
    for n in range(3000):
        table.held(placement(ArrayType((n,), F8), (("x",),), axes), encode_mesh(axes, (0,)), 0)
    assert len(table._cache) <= 1024
