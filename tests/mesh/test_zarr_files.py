"""The worker's side of Zarr files: parts of arrays, and a server without tensorstore."""

import os
import sys

import numpy as np
from rows import rows
from server.refusals import refused

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.mesh import zarr_files
from shardcall_server.mesh.zarr_files import ZarrFolder, boxes_of


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
