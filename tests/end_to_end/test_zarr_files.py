"""Zarr arrays in the files of the server: chunks, codecs and metadata, of this package and of zarr and xarray."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
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


@rows(
    "options",
    [
        {"chunks": (7, 5), "compressors": None},
        {"chunks": (1, 5), "compressors": codecs.GzipCodec(level=3)},
        {"chunks": (3, 5), "compressors": codecs.ZstdCodec(level=3, checksum=True)},
        {"chunks": (3, 3), "compressors": codecs.BloscCodec(cname="lz4", typesize=8)},
        {"chunks": (3, 2), "serializer": codecs.BytesCodec(endian="big")},
        {"chunks": (3, 2), "filters": [codecs.TransposeCodec(order=(1, 0))]},
        {"chunks": (2, 2), "shards": (4, 6), "compressors": codecs.GzipCodec()},
        {"chunks": (20, 30)},
        {"chunks": (3, 2), "chunk_key_encoding": {"name": "v2", "separator": "."}},
        {"chunks": (3, 2), "chunk_key_encoding": {"name": "default", "separator": "."}},
        {"chunks": (3, 2), "attributes": {"units": "m", "deep": [[1, {"a": None}]]}, "dimension_names": ("y", "x")},
    ],
)
def test_arrays_of_zarr_are_loaded_with_their_codecs(options, filing):
    write(filing.folder / "a.zarr", X, **options)
    same(filing.client.load("a.zarr", mesh=GRID, spec=P("x", "y")).get(), X)
    (file,) = filing.client.files()
    assert (file.nbytes, file.type) == (tree_bytes(filing.folder / "a.zarr"), sc.Array((7, 5), "float64"))


def test_xarray_opens_what_was_saved_and_what_it_wrote_is_loaded(filing):
    xarray, client = pytest.importorskip("xarray"), filing.client
    client.save(client.put(X, mesh=LINE, spec=P("x")), "runs/u.zarr")
    zarr.open_group(filing.folder / "runs", mode="a")
    with xarray.open_zarr(filing.folder / "runs", consolidated=False) as dataset:
        same(dataset["u.zarr"].to_numpy(), X)
    written = xarray.Dataset({"v": (("y", "x"), X * 2)}, {"y": np.arange(7)})
    written.to_zarr(filing.folder / "more/a.zarr", zarr_format=3, consolidated=False)
    same(client.load("more/a.zarr/v", mesh=LINE, spec=P(None, "x")).get(), X * 2)
    same(client.load("more/a.zarr/y").get(), np.arange(7))
    with pytest.raises(sc.InvalidRequestError, match="is a 'group' of Zarr, and the server reads arrays: name one"):
        client.load("more/a.zarr")
    assert refused(lambda: client.load("more/a.zarr/w")) == "FILE_NOT_FOUND"
    assert refused(lambda: client.load("more/a.zarr/v/c")) == "FILE_DAMAGED"
    for call in (lambda: client.save(client.put(X), "more/a.zarr/v"), lambda: client.remove_file("more/a.zarr/v")):
        assert refused(call) == "INVALID_PARAMETER"


def test_links_inside_an_array_are_not_followed(filing, tmp_path):
    for inside in ("zarr.json", "c/0/0", "c/0", "c"):
        write(filing.folder / "b.zarr", X, chunks=(7, 5))
        path = filing.folder / "b.zarr" / inside
        path.rename(tmp_path / "moved")
        path.symlink_to(tmp_path / "moved")
        assert refused(lambda: filing.client.load("b.zarr")) in ("FILE_DAMAGED", "INVALID_PARAMETER")
        path.unlink()
        (tmp_path / "moved").rename(path)


def change(path: Path, changes: dict[str, object]) -> None:
    node = json.loads((path / "zarr.json").read_text()) | changes
    (path / "zarr.json").write_text(json.dumps(node))


LARGE_CHUNKS = {"name": "regular", "configuration": {"chunk_shape": [1 << 10, 1 << 13]}}


@rows(
    ("changes", "reasons"),
    [
        ({"zarr_format": 2}, "FILE_DAMAGED"),
        ({"node_type": "group"}, "FILE_DAMAGED"),
        ({"shape": [7]}, "FILE_DAMAGED"),
        ({"shape": [10**18, 10**18]}, "INVALID_SHAPE"),
        ({"shape": [10**9, 10**5]}, "FILE_DAMAGED"),
        (
            {"shape": [1 << 20, 1 << 23], "chunk_grid": LARGE_CHUNKS},
            "RESIDENT_LIMIT QUOTA_EXCEEDED OUT_OF_DEVICE_MEMORY",
        ),
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
def test_damaged_and_foreign_metadata_are_refused(changes, reasons, filing):
    pids, path = filing.running.worker_pids(), filing.folder / "a.zarr"
    write(path, X, chunks=(7, 5), compressors=None)
    change(path, changes)
    assert refused(lambda: filing.client.load("a.zarr")) in reasons.split()
    assert [file.name for file in filing.client.files()] == ["a.zarr"]
    filing.client.save(filing.client.put(X), "a.zarr")
    same(filing.client.load("a.zarr").get(), X)
    assert filing.running.worker_pids() == pids


@rows("size", [0, 1, 279])
def test_a_chunk_that_was_cut_off_is_refused(size, filing):
    for compressors in (None, codecs.ZstdCodec(), codecs.GzipCodec(), codecs.BloscCodec(typesize=8)):
        write(filing.folder / "a.zarr", np.random.default_rng(1).random((7, 5)), chunks=(7, 5), compressors=compressors)
        chunk = filing.folder / "a.zarr/c/0/0"
        chunk.write_bytes(chunk.read_bytes()[: min(size, chunk.stat().st_size - 1)])
        assert refused(lambda: filing.client.load("a.zarr")) == "FILE_DAMAGED"


def peak_bytes(pid: int, work: Callable[[], object]) -> int:
    """Returns the memory that a process takes at most during a call beyond what it has."""

    def status(field: str) -> int:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))

    before = status("VmRSS")
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    work()
    return status("VmHWM") - before


def test_chunks_that_announce_much_take_no_memory(filing):
    numcodecs = pytest.importorskip("numcodecs")
    (worker,) = filing.running.worker_pids()
    path, zeros = filing.folder / "a.zarr", bytes(300 << 20)
    bombs = [
        (codecs.GzipCodec(), gzip.compress(zeros, 1)),
        (codecs.ZstdCodec(), numcodecs.Zstd(1).encode(zeros)),
        (codecs.BloscCodec(typesize=8), numcodecs.Blosc().encode(zeros)),
    ]
    filing.client.save(filing.client.put(X), "b.zarr")
    for codec, bomb in bombs:
        write(path, X, chunks=(7, 5), compressors=codec)
        (path / "c/0/0").write_bytes(bomb)
        assert peak_bytes(worker, lambda: refused(lambda: filing.client.load("a.zarr"))) < 100 << 20
        assert refused(lambda: filing.client.load("a.zarr")) == "FILE_DAMAGED"
