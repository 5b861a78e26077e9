"""The worker's side of files: boxes of blocks, their parts that are contiguous in a file, and chunks."""

import itertools
import os
import sys

import numpy as np
from rows import rows
from server.conftest import refused

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.link import block_checksums
from shardcall_server.mesh import array_files, zarr_files
from shardcall_server.mesh.array_files import ArrayFile, FolderSource, boxes, run_offsets
from shardcall_server.mesh.zarr_files import ZarrFolder, boxes_of


def blocks(*edges):
    """The blocks between edges along every axis, in an order that is not theirs."""
    axes = [list(itertools.pairwise(along)) for along in edges]
    return list(itertools.product(*axes))[::-1]


@rows(
    ("separate", "shape", "expected"),
    [
        (blocks((0, 2, 4, 6, 8)), (7,), [((0, 7),)]),
        (blocks((0, 2, 4), (0, 3, 6)), (4, 5), [((0, 4), (0, 5))]),
        (blocks((0, 2, 4), (3, 6)), (4, 6), [((0, 4), (3, 6))]),
        (blocks((0, 2), (0, 2)) + blocks((4, 6), (0, 2)), (8, 2), [((0, 2), (0, 2)), ((4, 6), (0, 2))]),
        (blocks((0, 2), (0, 2)) + blocks((2, 4), (2, 4)), (4, 4), [((0, 2), (0, 2)), ((2, 4), (2, 4))]),
        (blocks((8, 12, 16)), (7,), []),
        (blocks((0, 1), (0, 0)), (1, 0), []),
        ([()], (), [()]),
        ([], (3,), []),
    ],
)
def test_neighbors_are_joined_without_padding(separate, shape, expected):
    assert boxes(separate, shape) == expected


def elements_in(bounds, shape, dtype=int):
    """Numbers of a shape, and those of them inside bounds."""
    elements = np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)
    return elements, elements[(*(slice(low, high) for low, high in bounds), ...)].reshape(-1)


@rows(
    ("bounds", "shape", "count"),
    [
        ((), (), 1),
        (((0, 7),), (7,), 1),
        (((2, 5),), (7,), 1),
        (((2, 5), (0, 4)), (7, 4), 1),
        (((2, 5), (1, 3)), (7, 4), 3),
        (((0, 7), (1, 3), (0, 5)), (7, 4, 5), 7),
        (((3, 5), (1, 3), (1, 2)), (7, 4, 5), 4),
        (((3, 4), (2, 3), (1, 4)), (7, 4, 5), 1),
    ],
)
def test_runs_are_the_elements_of_a_box_in_order(bounds, shape, count):
    _, inside = elements_in(bounds, shape)
    offsets = run_offsets(bounds, shape)
    assert len(offsets) == count
    np.testing.assert_array_equal((offsets[:, None] + np.arange(inside.size // count)).reshape(-1), inside)


@rows(
    ("bounds", "shape"),
    [(((1, 9), (2, 3)), (9, 4)), (((3, 4), (0, 7), (1, 3), (0, 2)), (5, 7, 4, 2)), (((2, 9),), (9,)), ((), ())],
)
def test_boxes_of_many_runs_are_read_in_parts(bounds, shape, tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "_MAX_RUNS", 3)
    elements, inside = elements_in(bounds, shape, np.uint8)
    (tmp_path / "a").write_bytes(b"12" + elements.tobytes())
    data = np.empty(inside.nbytes, np.uint8)
    with open(tmp_path / "a", "rb") as file:
        ArrayFile(file.fileno(), 2).read(bounds, shape, 1, data)
    np.testing.assert_array_equal(data, inside)


@rows(
    ("bounds", "shape"),
    [
        ((), ()),
        (((0, 1),), (7,)),
        (((300, 5000),), (9000,)),
        (((2, 5), (0, 700)), (7, 700)),
        (((2, 5), (100, 300)), (7, 700)),
        (((0, 0), (0, 700)), (7, 700)),
    ],
)
def test_a_process_checks_the_blocks_of_the_header_and_of_its_elements(bounds, shape, monkeypatch):
    monkeypatch.setattr(array_files, "held_blocks", lambda _: [bounds])
    monkeypatch.setattr(block_checksums, "BLOCK_BYTES", 1024)
    _, inside = elements_in(bounds, shape)
    bytes_inside = 128 + 8 * inside[:, None] + np.arange(8)
    needed = {0, *(bytes_inside // 1024).reshape(-1).tolist()}
    source = FolderSource(ArrayType(shape, np.dtype(np.float64)), -1, "a.npy", 128)
    checked = source._blocks(None)
    assert needed <= {*checked} <= {0, *range(min(needed - {0}, default=0), max(needed) + 1)}


@rows(
    ("shape", "steps", "count"),
    [((7, 5), (2, 3), 8), ((), (), 1), ((0, 3), (1, 3), 0), ((4,), (9,), 1), ((3, 0, 2), (1, 1, 1), 0)],
)
def test_boxes_cover_an_array_once(shape, steps, count):
    covered, boxes = np.zeros(shape, int), list(boxes_of(shape, steps))
    for box in boxes:
        covered[(*(slice(low, high) for low, high in box), ...)] += 1
    assert (covered == 1).all()
    assert len(boxes) == count


@rows(
    ("shape", "chunk", "steps"),
    [
        ((4096, 4096), (16, 16), [64, 4096]),
        ((4096, 4096), (1, 4096), [256, 4096]),
        ((4096, 4096), (4096, 4096), [4096, 4096]),
        ((7, 5), (20, 30), [7, 5]),
        ((1 << 20,), (1,), [1024]),
        ((3, 0), (1, 1), [1, 1]),
        ((), (), []),
    ],
)
def test_small_chunks_are_read_together(shape, chunk, steps):
    assert zarr_files._steps(ArrayType(shape, np.dtype(np.float64)), chunk) == steps


def test_a_server_without_tensorstore_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    with refused(Reason.FILES_UNAVAILABLE, r"pip install '\.\[server,zarr\]'"):
        ZarrFolder(0, "{}").open()


def test_a_directory_that_was_removed_is_noticed(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    with refused(Reason.FILE_NOT_FOUND, "was replaced or removed while it was read"):
        ZarrFolder(fd, "{}").check_present()
    os.close(fd)
