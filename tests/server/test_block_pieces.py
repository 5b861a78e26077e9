"""Blocks as a sequence of bytes: cut into chunks, and reassembled however they are cut."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardcall_server.frontend.hosts import pieces as module
from shardcall_server.frontend.hosts.pieces import Scatter, as_bytes, pieces

CHUNK = 64
DTYPES = [np.float64, np.bool_, np.uint8, np.complex128, ml_dtypes.bfloat16, ml_dtypes.int4]


@pytest.fixture(autouse=True, scope="module")
def small_chunks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_BYTES", CHUNK)
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
