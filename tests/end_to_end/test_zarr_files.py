"""Zarr arrays in the files of the server: saved, loaded, read by zarr and xarray, damaged, replaced and cut off."""

import json
from pathlib import Path

import numpy as np
import pytest
from end_to_end.filing import read, refused, same
from rows import rows

import shardcall as sc
from shardcall import P

pytest.importorskip("tensorstore")
zarr = pytest.importorskip("zarr")
codecs = pytest.importorskip("zarr.codecs")

X = np.arange(35.0).reshape(7, 5)
LINE, GRID = sc.Mesh(x=8), sc.Mesh(x=4, y=2)


def write(path: Path, x: np.ndarray, **options: object) -> None:
    """Writes an array by zarr, with all its chunks."""
    zarr.create_array(path, shape=x.shape, dtype=x.dtype, overwrite=True, **options)[...] = x


def tree_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@rows(
    ("mesh", "spec", "chunk", "count"),
    [
        (LINE, P("x", None), (1, 5), 7),
        (LINE, P(None, "x"), (7, 1), 5),
        (GRID, P("x", "y"), (2, 3), 8),
        (GRID, P(("y", "x"), None), (1, 5), 7),
        (GRID, P(None, "y"), (7, 3), 2),
        (GRID, P(None, None), (7, 5), 1),
        (sc.Mesh(x=1), P(None, None), (7, 5), 1),
    ],
)
def test_every_block_of_a_device_is_a_chunk_that_zarr_reads_and_every_sharding_loads(mesh, spec, chunk, count, filing):
    saved = filing.client.save(filing.client.put(X, mesh=mesh, spec=spec), "runs/a.zarr")
    path = filing.folder / "runs/a.zarr"
    assert (saved.name, saved.nbytes, saved.type) == ("runs/a.zarr", tree_bytes(path), sc.Array((7, 5), "float64"))
    assert zarr.open_array(path, mode="r").chunks == chunk
    assert len(filing.files()) == count + 1
    same(read(path), X)
    write(filing.folder / "b.zarr", X * 2, chunks=(2, 2))
    loaded = filing.client.load("b.zarr", mesh=mesh, spec=spec)
    assert (loaded.mesh.axes, loaded.spec) == (mesh.axes, spec)
    same(loaded.get(), X * 2)
    assert float(loaded.sum()) == X.sum() * 2  # padding is zero
    same(filing.client.load("runs/a.zarr").get(), X)
    filing.client.remove_file("b.zarr")


@rows(
    ("dtype", "fill"), [("float32", np.nan), ("float64", -np.inf), ("int16", -7), ("bool", True), ("complex64", 2 - 1j)]
)
def test_a_chunk_that_is_missing_has_the_fill_value(dtype, fill, filing):
    array = zarr.create_array(
        filing.folder / "a.zarr", shape=(7, 5), chunks=(2, 5), dtype=dtype, fill_value=fill, overwrite=True
    )
    array[2:4] = 1
    same(filing.client.load("a.zarr", mesh=LINE, spec=P("x")).get(), read(filing.folder / "a.zarr"))


def test_a_file_is_replaced(filing):
    (filing.folder / "b.zarr").write_bytes(b"a file")
    filing.client.save(filing.client.put(X)[2:, 1] + 1, "b.zarr")
    same(read(filing.folder / "b.zarr"), X[2:, 1] + 1)


def test_links_are_not_followed(filing, tmp_path):
    client, outside = filing.client, tmp_path / "outside"
    write(outside / "a.zarr", X)
    (filing.folder / "link").symlink_to(outside)
    (filing.folder / "a.zarr").symlink_to(outside / "a.zarr")
    for name in ("link/a.zarr", "a.zarr"):
        assert refused(lambda name=name: client.load(name)) == "FILE_NOT_FOUND"
        assert not client.remove_file(name)
    assert client.files() == []
    client.save(client.put(X * 2), "a.zarr")  # replaces the link
    assert not (filing.folder / "a.zarr").is_symlink()
    same(read(outside / "a.zarr"), X)
    same(read(filing.folder / "a.zarr"), X * 2)
    for inside in ("zarr.json", "c/0/0", "c/0", "c"):
        write(filing.folder / "b.zarr", X, chunks=(7, 5))
        path = filing.folder / "b.zarr" / inside
        path.rename(tmp_path / "moved")
        path.symlink_to(tmp_path / "moved")
        assert refused(lambda: client.load("b.zarr")) in ("FILE_DAMAGED", "INVALID_PARAMETER")
        path.unlink()
        (tmp_path / "moved").rename(path)


def change(path: Path, changes: dict[str, object]) -> None:
    node = json.loads((path / "zarr.json").read_text()) | changes
    (path / "zarr.json").write_text(json.dumps({key: value for key, value in node.items() if value is not ...}))


@rows(
    ("changes", "reason"),
    [
        ({"zarr_format": 2}, "FILE_DAMAGED"),
        ({"node_type": "group"}, "FILE_DAMAGED"),
        ({"shape": [7]}, "FILE_DAMAGED"),
        ({"shape": [10**18, 10**18]}, "INVALID_SHAPE"),
        ({"shape": [10**9, 10**5]}, "FILE_DAMAGED"),
        ({"codecs": [{"name": "lz77"}]}, "FILE_DAMAGED"),
        ({"codecs": [{"name": "bytes", "configuration": {"endian": "middle"}}]}, "FILE_DAMAGED"),
        ({"fill_value": [1.0, 2.0]}, "FILE_DAMAGED"),
        ({"storage_transformers": [{"name": "http"}]}, "FILE_DAMAGED"),
        ({"data_type": "string"}, "UNSUPPORTED_ELEMENT_TYPE"),
        ({"data_type": "uint4"}, "UNSUPPORTED_ELEMENT_TYPE"),
        ({"data_type": "float32"}, "FILE_DAMAGED"),
        ({"data_type": "bool", "fill_value": False}, "FILE_DAMAGED"),
    ],
)
def test_damaged_and_foreign_metadata_are_refused(changes, reason, filing):
    pids, path = filing.running.worker_pids(), filing.folder / "a.zarr"
    write(path, X, chunks=(7, 5), compressors=None)
    change(path, changes)
    assert refused(lambda: filing.client.load("a.zarr")) == reason
    assert [file.name for file in filing.client.files()] == ["a.zarr"]
    filing.client.save(filing.client.put(X), "a.zarr")
    same(filing.client.load("a.zarr").get(), X)
    assert filing.running.worker_pids() == pids


def test_an_array_that_does_not_fit_is_refused_by_the_limits_of_arrays(filing):
    path = filing.folder / "a.zarr"
    write(path, X, chunks=(7, 5))
    change(
        path,
        {
            "shape": [1 << 20, 1 << 23],
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1 << 10, 1 << 13]}},
        },
    )
    assert refused(lambda: filing.client.load("a.zarr")) in ("RESIDENT_LIMIT", "QUOTA_EXCEEDED", "OUT_OF_DEVICE_MEMORY")


@rows("size", [0, 1, 100, 279])
def test_a_chunk_that_was_cut_off_is_refused(size, filing):
    for compressors in (None, codecs.ZstdCodec(), codecs.GzipCodec(), codecs.BloscCodec(typesize=8)):
        write(filing.folder / "a.zarr", np.random.default_rng(1).random((7, 5)), chunks=(7, 5), compressors=compressors)
        chunk = filing.folder / "a.zarr/c/0/0"
        chunk.write_bytes(chunk.read_bytes()[: min(size, chunk.stat().st_size - 1)])
        assert refused(lambda: filing.client.load("a.zarr")) == "FILE_DAMAGED"


@rows("position", [0, 100, 279, 280, 283])
def test_a_bit_that_changes_in_a_saved_chunk_is_refused(position, filing):
    x = np.random.default_rng(1).random((7, 5))
    filing.client.save(filing.client.put(x, mesh=sc.Mesh(x=1)), "a.zarr")
    chunk = filing.folder / "a.zarr/c/0/0"
    data = bytearray(chunk.read_bytes())
    data[position] ^= 1
    chunk.write_bytes(data)
    assert refused(lambda: filing.client.load("a.zarr")) == "FILE_DAMAGED"
