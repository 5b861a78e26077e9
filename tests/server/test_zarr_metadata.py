"""Metadata of Zarr arrays: what is written, and what is refused with one clear error."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rows import rows
from server.conftest import NO_JSON_OBJECTS, refusal, refused

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.frontend.files.zarr_metadata import (
    MAX_CHUNK_BYTES,
    METADATA_NAME,
    WRITTEN_CHUNK_BYTES,
    ZarrMetadata,
    metadata_of,
    read_metadata,
)

TYPE = ArrayType((7, 5), np.dtype(np.float64))
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


def grid(*shape: int) -> dict[str, object]:
    return {"name": "regular", "configuration": {"chunk_shape": list(shape)}}


def shards(**changes: object) -> list[object]:
    configuration = {"chunk_shape": [1, 1], "codecs": [BYTES], "index_codecs": [BYTES, {"name": "crc32c"}]} | changes
    return [{"name": "sharding_indexed", "configuration": configuration}]


@pytest.fixture
def folder(tmp_path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def parsed(folder: int, path: Path, content: bytes) -> ZarrMetadata:
    (path / METADATA_NAME).write_bytes(content)
    return read_metadata(folder)


def node(**changes: object) -> bytes:
    content = json.loads(metadata_of(TYPE, (2, 5)).file) | changes
    return json.dumps({name: value for name, value in content.items() if value is not ...}).encode()


@rows(
    ("shape", "block", "dtype", "chunk", "divides"),
    [
        ((7, 5), (2, 5), "float64", (2, 5), False),
        ((), (), "int8", (), False),
        ((0, 3), (0, 3), "int8", (1, 3), False),
        ((1 << 14, 1 << 10), (1 << 13, 1 << 10), "float32", (1 << 12, 1 << 10), False),
        ((2, 3, 1 << 22), (2, 3, 1 << 22), "float32", (1, 1, 1 << 22), False),
        ((9_000_001,), (9_000_001,), "int16", (4_500_001,), False),
        ((9_000_002,), (4_500_001,), "int16", (4_500_001,), True),  # chunks of several hosts divide their blocks
        ((14014, 700), (7007, 700), "float64", (1001, 700), True),
        ((7, 1 << 22), (7, 1 << 22), "float64", (1, 1 << 21), True),
    ],
)
def test_a_chunk_is_a_block_or_a_part_of_it(shape, block, dtype, chunk, divides):
    metadata = metadata_of(ArrayType(shape, np.dtype(dtype)), block, divides_blocks=divides)
    assert metadata.chunk_shape == chunk
    assert metadata.chunk_bytes <= WRITTEN_CHUNK_BYTES


def test_blocks_that_divide_into_too_many_chunks_are_refused():
    prime = (1 << 26) - 5
    with refused(Reason.INVALID_PARAMETER, r"divide into 134,217,718 chunks.*save it in an npy file, or reshard"):
        metadata_of(ArrayType((2 * prime,), np.dtype(np.int8)), (prime,), divides_blocks=True)


def test_what_is_written_is_read(folder, tmp_path):
    written = metadata_of(TYPE, (2, 3))
    assert parsed(folder, tmp_path, written.file) == written
    assert written.written_bytes == len(written.file) + 4 * 2 * (48 + 4)


@rows(
    ("changes", "text"),
    [
        *(({name: ...}, f"lacks '{name}'") for name in ("shape", "data_type", "chunk_grid", "codecs", "fill_value")),
        ({"zarr_format": 2}, "is of version 2 of Zarr"),
        ({"node_type": "group"}, "is a 'group' of Zarr, and the server reads arrays: name one in it"),
        ({"shape": [7, -5]}, "as shape, and sizes of at least 0"),
        *(({"shape": shape}, "as shape") for shape in ([7, 5.0], [7, True], [1] * 65)),
        ({"chunk_grid": grid(2)}, "and its array has rank 2"),
        ({"chunk_grid": grid(0, 5)}, "sizes of at least 1"),
        ({"chunk_grid": {"name": "rectilinear"}}, "has 'rectilinear' among its chunk_grid"),
        ({"chunk_grid": grid(1 << 20, 1 << 20)}, "has chunks of 8 TiB"),
        ({"shape": [10**5, 10**5], "chunk_grid": grid(1, 1)}, "has 10,000,000,000 chunks"),
        ({"chunk_key_encoding": {"name": "default", "configuration": {"separator": "/../"}}}, "a separator '/' or '.'"),
        ({"codecs": {"name": "bytes"}}, "as codecs, and a list"),
        ({"codecs": [BYTES, {"name": "lz77"}]}, "has 'lz77' among its codecs, and the server reads: bytes"),
        ({"codecs": [BYTES, {"name": "gzip", "configuration": 1}]}, "has the configuration 1 of 'gzip'"),
        ({"codecs": [BYTES, {"name": "blosc"}, {"name": "gzip"}]}, "compresses the result of Blosc"),
        ({"codecs": shards(codecs=[BYTES, {"name": "blosc"}])}, "has the codec 'blosc' in a shard"),
        ({"codecs": shards(codecs=shards())}, "has the codec 'sharding_indexed' in a shard"),
        ({"codecs": shards(chunk_shape=[2, 2])}, "do not divide"),
        ({"codecs": shards(), "chunk_grid": grid(2048, 2048)}, "chunks in a shard"),
        ({"codecs": [*shards(), {"name": "gzip"}]}, "has other codecs beside those of its shards"),
        *(({"fill_value": value}, "as fill_value") for value in ("http://", None, [[1]])),
        ({"storage_transformers": [{"name": "chunk-manifest"}]}, "has storage transformers"),
        ({"kvstore": {"driver": "http", "path": "http://localhost"}}, "has the extension 'kvstore'"),
    ],
)
def test_other_metadata_is_refused(changes, text, folder, tmp_path):
    with refused(Reason.FILE_DAMAGED) as error:
        parsed(folder, tmp_path, node(**changes))
    assert text in str(error.value)


@rows("content", [*NO_JSON_OBJECTS, b"{" + b" " * (1 << 20) + b"}", b'{"a": ' + b"9" * 5000 + b"}"])
def test_what_is_no_json_object_is_refused(content, folder, tmp_path):
    assert refusal(parsed, folder, tmp_path, content).reason is Reason.FILE_DAMAGED


def test_a_directory_without_metadata_and_a_fifo_are_refused(folder, tmp_path):
    for make in (lambda: None, lambda: os.mkfifo(tmp_path / METADATA_NAME)):
        make()
        assert refusal(read_metadata, folder).reason is Reason.FILE_DAMAGED


@rows("name", ["string", "r16", "uint4", "numpy.datetime64", {"name": "struct"}, None, 7])
def test_element_types_that_are_not_loaded_are_named(name, folder, tmp_path):
    with refused(Reason.UNSUPPORTED_ELEMENT_TYPE, "which the server does not load; save one of: bool"):
        parsed(folder, tmp_path, node(data_type=name))


def test_extensions_that_need_not_be_understood_are_accepted(folder, tmp_path):
    text = node(extra={"must_understand": False}, codecs=["bytes"], attributes={"a": 1}, data_type="int8", fill_value=1)
    metadata = parsed(folder, tmp_path, text)
    assert json.loads(metadata.text).keys() == json.loads(metadata_of(TYPE, (2, 5)).text).keys()
    assert metadata.chunk_bytes <= MAX_CHUNK_BYTES
