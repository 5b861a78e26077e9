"""Zarr arrays of every type and codec, of zarr and of xarray, and chunks that announce much."""

import gzip
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from end_to_end.filing import read, refused, same
from end_to_end.processes import repeated
from end_to_end.test_zarr_files import GRID, LINE, X, codecs, tree_bytes, write, zarr
from rows import rows

import shardcall as sc
from shardcall import P
from shardcall_core.types.element_types import DTYPES
from shardcall_server.frontend.files.zarr_metadata import WRITTEN_CHUNK_BYTES

pytestmark = pytest.mark.long


def test_every_element_type_but_uint4_is_loaded_as_it_was_saved(filing):
    for dtype in DTYPES.values():
        x = np.arange(-6, 6).astype(np.int8).astype(dtype).reshape(3, 4)
        h = filing.client.put(x, mesh=LINE, spec=P("x"))
        if dtype.name == "uint4":
            with pytest.raises(sc.ShardcallError, match="uint4, which Zarr files do not have") as caught:
                filing.client.save(h, "a.zarr")
            assert caught.value.reason == "UNSUPPORTED_ELEMENT_TYPE"
            continue
        filing.client.save(h, "a.zarr")
        same(filing.client.load("a.zarr", mesh=GRID, spec=P("x", "y")).get(), x)
        assert filing.client.files()[0].type == sc.Array((3, 4), dtype.name)
        if dtype.isbuiltin == 1:
            same(read(filing.folder / "a.zarr"), x)


@rows(
    "options",
    [
        {"chunks": (3, 2)},
        {"chunks": (7, 5), "compressors": None},
        {"chunks": (1, 5), "compressors": codecs.GzipCodec(level=3)},
        {"chunks": (3, 5), "compressors": codecs.ZstdCodec(level=3, checksum=True)},
        {"chunks": (3, 3), "compressors": codecs.BloscCodec(cname="lz4", typesize=8)},
        {"chunks": (3, 2), "serializer": codecs.BytesCodec(endian="big")},
        {"chunks": (3, 2), "filters": [codecs.TransposeCodec(order=(1, 0))]},
        {"chunks": (2, 2), "shards": (4, 6)},
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
    xarray = pytest.importorskip("xarray")
    filing.client.save(filing.client.put(X, mesh=LINE, spec=P("x")), "runs/u.zarr")
    zarr.open_group(filing.folder / "runs", mode="a")
    with xarray.open_zarr(filing.folder / "runs", consolidated=False) as dataset:
        same(dataset["u.zarr"].to_numpy(), X)
    written = xarray.Dataset({"v": (("y", "x"), X * 2)}, {"y": np.arange(7)})
    written.to_zarr(filing.folder / "more/a.zarr", zarr_format=3, consolidated=False)
    same(filing.client.load("more/a.zarr/v", mesh=LINE, spec=P(None, "x")).get(), X * 2)
    same(filing.client.load("more/a.zarr/y").get(), np.arange(7))
    with pytest.raises(sc.InvalidRequestError, match="is a 'group' of Zarr, and the server reads arrays: name one"):
        filing.client.load("more/a.zarr")
    assert refused(lambda: filing.client.load("more/a.zarr/w")) == "FILE_NOT_FOUND"
    assert refused(lambda: filing.client.load("more/a.zarr/v/c")) == "FILE_DAMAGED"
    assert refused(lambda: filing.client.save(filing.client.put(X), "more/a.zarr/v")) == "INVALID_PARAMETER"
    assert refused(lambda: filing.client.remove_file("more/a.zarr/v")) == "INVALID_PARAMETER"


def test_the_limits_of_a_principal_count_all_files_of_a_directory(filing):
    client = filing.client
    for i, count in enumerate((31 << 20, 40 << 20)):
        large = client.put(np.zeros(count // 8), mesh=LINE, spec=P("x"))
        if i:
            assert refused(lambda large=large: client.save(large, "b.zarr")) == "FILE_LIMIT"
        else:
            client.save(large, "a.zarr")


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

    def load() -> None:
        assert refused(lambda: filing.client.load("a.zarr")) == "FILE_DAMAGED"

    filing.client.save(filing.client.put(X), "b.zarr")
    for codec, bomb in bombs:
        write(path, X, chunks=(7, 5), compressors=codec)
        (path / "c/0/0").write_bytes(bomb)
        assert peak_bytes(worker, load) < 100 << 20


def test_an_array_that_is_replaced_while_it_is_loaded_is_the_one_or_the_other(filing):
    client = filing.client
    handles = [client.put(np.full((256, 64), float(i)), mesh=LINE, spec=P("x")) for i in (1, 2)]
    client.save(handles[0], "a.zarr")
    replacements = itertools.cycle(handles)
    with repeated(lambda: client.save(next(replacements), "a.zarr")):
        values = {tuple(np.unique(client.load("a.zarr").get())) for _ in range(40)}
    assert values <= {(1.0,), (2.0,)}


@rows("shape", [(2, 2_200_001), (2_200_001, 2), (2, 2, 1_100_001)])
def test_large_arrays_are_saved_in_chunks_of_limited_size(shape, filing):
    x = np.random.default_rng(1).integers(0, 100, shape, np.int8).astype(np.float32)
    filing.client.save(filing.client.put(x, mesh=GRID, spec=P("x", "y")), "a.zarr")
    same(filing.client.load("a.zarr", mesh=GRID, spec=P(None, "x")).get(), x)
    filing.client.save(filing.client.put(x, mesh=sc.Mesh(x=1), spec=P()), "a.zarr")  # one block of 17.6 MB
    chunks = zarr.open_array(filing.folder / "a.zarr", mode="r").chunks
    assert WRITTEN_CHUNK_BYTES / 2 < np.prod(chunks) * 4 <= WRITTEN_CHUNK_BYTES
    same(read(filing.folder / "a.zarr"), x)
    write(filing.folder / "b.zarr", x, chunks=tuple(min(size, 300_000) for size in shape))
    same(filing.client.load("b.zarr", mesh=GRID, spec=P("y")).get(), x)
    filing.client.remove_file("b.zarr")
