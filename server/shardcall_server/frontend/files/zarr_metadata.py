"""Metadata of Zarr arrays of version 3: what a file ``zarr.json`` says of the array in its directory.

The library that reads the chunks gets what this module has checked, and never the file itself: so it opens no other
storage, and no more memory than for a chunk of `MAX_CHUNK_BYTES`.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.element_types import NAMED
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.types.sizes import exact
from shardcall_server.link.file_errors import damaged_zarr, file_error
from shardcall_server.link.wire import decode_array_type, encode_array_type

METADATA_NAME = "zarr.json"

WRITTEN_CHUNK_BYTES = 16 << 20
"""The largest chunk that is written. A reader has a complete chunk in memory, and a writer a complete shard."""

MAX_CHUNK_BYTES = 128 << 20
"""The largest chunk that is read, uncompressed."""

MAX_CHUNKS = 1 << 20
"""The largest number of chunks that are read, those of shards too."""

_MAX_TEXT_BYTES = 1 << 20
_MAX_RANK = 64
_MAX_SIZE = 10**18
_REQUIRED = ("shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs")
_OTHERS = frozenset({"zarr_format", "node_type", "attributes", "dimension_names", "storage_transformers"})
_CODECS = ("bytes", "transpose", "gzip", "zstd", "blosc", "crc32c", "sharding_indexed")
_ELEMENT_TYPES = {name: dtype for name, dtype in NAMED.items() if name != "uint4"}  # tensorstore has no uint4
_CRC32C_BYTES = 4  # of the checksum behind a chunk
_FILL_TEXT = re.compile(r"NaN|-?Infinity|0x[0-9a-fA-F]{1,16}")


@dataclass(frozen=True)
class ZarrMetadata:
    """The metadata of an array.

    Attributes:
        type: the type of the array.
        text: the members that say how it is stored, as JSON.
        chunk_shape: the shape of the largest unit that a reader decodes.
        file_shape: the shape of what a file has: a chunk, or the chunks of a shard.
        is_blosc: True if every file of a chunk begins with a header of Blosc.
    """

    type: ArrayType
    text: str
    chunk_shape: tuple[int, ...]
    file_shape: tuple[int, ...]
    is_blosc: bool = False

    @property
    def chunk_bytes(self) -> int:
        """The size of a chunk without compression, in bytes."""
        return ArrayType(self.chunk_shape, self.type.dtype).nbytes

    @property
    def max_file_bytes(self) -> int:
        """The size of the largest file of chunks, with what compression may add and the index of a shard."""
        return 2 * ArrayType(self.file_shape, self.type.dtype).nbytes + 16 * MAX_CHUNKS

    @property
    def file(self) -> bytes:
        """The content of the file ``zarr.json`` of an array that this server writes."""
        names = [f"dim_{axis}" for axis in range(len(self.type.shape))]  # xarray opens no array without them
        node = {"zarr_format": 3, "node_type": "array", **json.loads(self.text), "dimension_names": names}
        return json.dumps(node | {"attributes": {}}, indent=2).encode()

    @property
    def written_bytes(self) -> int:
        """The bytes of all files of an array that this server writes."""
        return len(self.file) + _count(self.type.shape, self.chunk_shape) * (self.chunk_bytes + _CRC32C_BYTES)


def metadata_of(array_type: ArrayType, block_shape: Sequence[int], *, divides_blocks: bool = False) -> ZarrMetadata:
    """Returns the metadata of an array that is saved, in chunks of the size of a device's block or of parts of it.

    Args:
        divides_blocks: whether each chunk is a part of one block, so that several hosts write no common chunk.

    Raises:
        CallError: UNSUPPORTED_ELEMENT_TYPE; INVALID_PARAMETER: blocks divide into more chunks than are read.
    """
    dtype = array_type.dtype
    if dtype.name not in _ELEMENT_TYPES:
        raise CallError(
            Reason.UNSUPPORTED_ELEMENT_TYPE,
            f"the array has elements of type {dtype.name}, which Zarr files do not have; save it in an npy file, or "
            "convert it to uint8",
            field="handle",
            metadata={"type": dtype.name},
        )
    chunk_shape = _chunk_shape(block_shape, dtype.itemsize, divides_blocks=divides_blocks)
    if divides_blocks and (count := _count(array_type.shape, chunk_shape)) > MAX_CHUNKS:
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"the devices have blocks of shape {tuple(block_shape)}, which divide into {count:,} chunks of shape "
            f"{chunk_shape} of at most {exact(WRITTEN_CHUNK_BYTES)}, and a Zarr array may have {MAX_CHUNKS:,}; save it "
            "in an npy file, or reshard it to blocks of other sizes",
            field="name",
        )
    endian = {"configuration": {"endian": "little"}} if dtype.itemsize > 1 else {}
    text = _text(
        shape=array_type.shape,
        data_type=dtype.name,
        chunk_shape=chunk_shape,
        key_encoding={"name": "default", "configuration": {"separator": "/"}},
        fill_value=_zero(dtype),
        codecs=[{"name": "bytes", **endian}, {"name": "crc32c"}],
    )
    return ZarrMetadata(array_type, text, chunk_shape, chunk_shape)


def read_metadata(folder: int) -> ZarrMetadata:
    """Returns the metadata of the array in a directory.

    Args:
        folder: the descriptor of the directory.

    Raises:
        CallError: FILE_DAMAGED, UNSUPPORTED_ELEMENT_TYPE, INVALID_SHAPE, FILES_UNAVAILABLE.
    """
    node = _node(_read(folder))
    for name in _REQUIRED:
        if name not in node:
            raise damaged_zarr(f"lacks {name!r} in its {METADATA_NAME}")
    shape = _sizes(node["shape"], "shape", smallest=0)
    dtype = _element_type(node["data_type"])
    grid = _configured(node["chunk_grid"], "chunk_grid", ("regular",))
    chunks = _sizes(grid[1].get("chunk_shape"), "chunk_shape", rank=len(shape))
    codecs = [_configured(codec, "codecs", _CODECS) for codec in _items(node["codecs"], "codecs")]
    # Checked as an array that a client sends: its rank, its sizes.
    array_type = decode_array_type(encode_array_type(ArrayType(shape, dtype)), "name")
    metadata = ZarrMetadata(
        array_type,
        _text(
            shape=shape,
            data_type=dtype.name,
            chunk_shape=chunks,
            key_encoding=_key_encoding(node["chunk_key_encoding"]),
            fill_value=_fill_value(node["fill_value"]),
            codecs=[_extension(*codec) for codec in codecs],
        ),
        _decoded_shape(chunks, codecs),
        chunks,
        any(name == "blosc" for name, _ in codecs),
    )
    _check_sizes(metadata)
    return metadata


def _chunk_shape(block_shape: Sequence[int], itemsize: int, *, divides_blocks: bool) -> tuple[int, ...]:
    """Returns the shape of a chunk: a block, of which the first axes are divided as far as it is too large."""
    shape = [max(size, 1) for size in block_shape]
    for axis, size in enumerate(shape):
        rest = math.prod(shape[axis + 1 :]) * itemsize
        if size * rest > WRITTEN_CHUNK_BYTES:
            largest = max(WRITTEN_CHUNK_BYTES // rest, 1)
            shape[axis] = _largest_divisor(size, largest) if divides_blocks else -(-size // -(-size // largest))
    return tuple(shape)


def _largest_divisor(size: int, limit: int) -> int:
    """Returns the largest divisor of a size that is no larger than a limit."""
    small = [divisor for divisor in range(1, math.isqrt(size) + 1) if size % divisor == 0]
    return max(divisor for divisor in [*small, *(size // other for other in small)] if divisor <= limit)


def _count(shape: Sequence[int], chunk_shape: Sequence[int]) -> int:
    return math.prod(-(-size // step) for size, step in zip(shape, chunk_shape, strict=True))


def _text(
    *,
    shape: Sequence[int],
    data_type: str,
    chunk_shape: Sequence[int],
    key_encoding: Mapping[str, Any],
    fill_value: object,
    codecs: Sequence[Mapping[str, Any]],
) -> str:
    return json.dumps(
        {
            "shape": list(shape),
            "data_type": data_type,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk_shape)}},
            "chunk_key_encoding": key_encoding,
            "fill_value": fill_value,
            "codecs": codecs,
        }
    )


def _zero(dtype: np.dtype) -> object:
    if dtype.kind == "c":
        return [0.0, 0.0]
    if dtype.kind == "b":
        return False
    return 0 if dtype.kind in "iu" or dtype.name == "int4" else 0.0


def _read(folder: int) -> bytes:
    """Returns the content of the metadata file."""
    try:
        fd = os.open(METADATA_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        raise damaged_zarr(f"has no {METADATA_NAME}, so it is of another version than 3 or a folder") from None
    except OSError as error:
        raise file_error(error) from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise damaged_zarr(f"has a {METADATA_NAME} that is no file")
        data = os.pread(fd, _MAX_TEXT_BYTES + 1, 0)
    except OSError as error:
        raise file_error(error) from error
    finally:
        os.close(fd)
    if len(data) > _MAX_TEXT_BYTES:
        raise damaged_zarr(f"has a {METADATA_NAME} of more than the {exact(_MAX_TEXT_BYTES)} that the server reads")
    return data


def _node(data: bytes) -> dict[str, Any]:
    """Returns the members of the metadata of an array of version 3."""
    try:
        node = json.loads(data)
    except (ValueError, RecursionError):
        raise damaged_zarr(f"has a {METADATA_NAME} that is not JSON") from None
    if not isinstance(node, dict):
        raise damaged_zarr(f"has a {METADATA_NAME} that is no JSON object")
    if node.get("zarr_format") != 3:
        raise damaged_zarr(f"is of version {_shown(node.get('zarr_format'))} of Zarr, and the server reads 3")
    if node.get("node_type") != "array":
        raise damaged_zarr(f"is a {_shown(node.get('node_type'))} of Zarr, and the server reads arrays: name one in it")
    if node.get("storage_transformers"):
        raise damaged_zarr("has storage transformers, which the server does not read")
    for name, value in node.items():
        if name in _REQUIRED or name in _OTHERS or (isinstance(value, dict) and value.get("must_understand") is False):
            continue
        raise damaged_zarr(f"has the extension {_shown(name)}, which the server does not read")
    return node


def _items(value: object, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise damaged_zarr(f"has {_shown(value)} as {name}, and a list is expected")
    return value


def _sizes(value: object, name: str, *, smallest: int = 1, rank: int | None = None) -> tuple[int, ...]:
    sizes = _items(value, name)
    if any(type(size) is not int or not smallest <= size <= _MAX_SIZE for size in sizes) or len(sizes) > _MAX_RANK:
        raise damaged_zarr(f"has {_shown(value)} as {name}, and sizes of at least {smallest} are expected")
    if rank is not None and len(sizes) != rank:
        raise damaged_zarr(f"has {_shown(value)} as {name}, and its array has rank {rank}")
    return tuple(sizes)


def _configured(value: object, name: str, allowed: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Returns the name and the configuration of a member such as a codec."""
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, dict) or value.get("name") not in allowed:
        shown = value.get("name") if isinstance(value, dict) else value
        raise damaged_zarr(f"has {_shown(shown)} among its {name}, and the server reads: {', '.join(allowed)}")
    configuration = value.get("configuration", {})
    if not isinstance(configuration, dict):
        raise damaged_zarr(f"has the configuration {_shown(configuration)} of {value['name']!r} in its {name}")
    return value["name"], configuration


def _extension(name: str, configuration: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "configuration": configuration} if configuration else {"name": name}


def _element_type(value: object) -> np.dtype:
    if isinstance(value, str) and value in _ELEMENT_TYPES:
        return _ELEMENT_TYPES[value]
    raise CallError(
        Reason.UNSUPPORTED_ELEMENT_TYPE,
        f"the file has elements of the type {_shown(value)}, which the server does not load; save one of: "
        f"{', '.join(_ELEMENT_TYPES)}",
        field="name",
        metadata={"data_type": _shown(value)},
    )


def _key_encoding(value: object) -> dict[str, Any]:
    name, configuration = _configured(value, "chunk_key_encoding", ("default", "v2"))
    if configuration.keys() - {"separator"} or configuration.get("separator", "/") not in ("/", "."):
        raise damaged_zarr(f"has {_shown(configuration)} as chunk_key_encoding, and a separator '/' or '.' is expected")
    return _extension(name, configuration)


def _fill_value(value: object) -> object:
    """Returns a fill value: a number, a bool, a text for a number, or two of them for a complex number."""
    parts = value if isinstance(value, list) else [value]
    if len(parts) <= 2 and all(
        isinstance(part, int | float) or (isinstance(part, str) and _FILL_TEXT.fullmatch(part)) for part in parts
    ):
        return value
    raise damaged_zarr(f"has {_shown(value)} as fill_value, and a number is expected")


def _decoded_shape(chunks: tuple[int, ...], codecs: Sequence[tuple[str, dict[str, Any]]]) -> tuple[int, ...]:
    """Returns the shape of the largest unit that a reader decodes: a chunk of the grid, or one of a shard."""
    names = [name for name, _ in codecs]
    if "sharding_indexed" in names:
        shard = codecs[names.index("sharding_indexed")][1]
        for part in ("codecs", "index_codecs"):
            for name, _ in (_configured(codec, part, _CODECS) for codec in _items(shard.get(part), part)):
                if name in ("sharding_indexed", "blosc"):
                    raise damaged_zarr(f"has the codec {name!r} in a shard, which the server does not read")
        if names != ["sharding_indexed"]:
            raise damaged_zarr("has other codecs beside those of its shards, which the server does not read")
        inner = _sizes(shard.get("chunk_shape"), "chunk_shape", rank=len(chunks))
        if any(size % part for size, part in zip(chunks, inner, strict=True)):
            raise damaged_zarr(f"has shards of shape {list(chunks)}, which its chunks of {list(inner)} do not divide")
        if math.prod(chunks) // math.prod(inner) > MAX_CHUNKS:
            raise damaged_zarr(f"has more than {MAX_CHUNKS:,} chunks in a shard")
        return inner
    if "blosc" in names[:-1]:
        raise damaged_zarr("compresses the result of Blosc once more, which the server does not read")
    return chunks


def _check_sizes(metadata: ZarrMetadata) -> None:
    if metadata.chunk_bytes > MAX_CHUNK_BYTES:
        raise damaged_zarr(
            f"has chunks of {exact(metadata.chunk_bytes)}, and the server reads at most {exact(MAX_CHUNK_BYTES)}"
        )
    chunks = _count(metadata.type.shape, metadata.chunk_shape)
    if chunks > MAX_CHUNKS:
        raise damaged_zarr(f"has {chunks:,} chunks, and the server reads at most {MAX_CHUNKS:,}")


def _shown(value: object) -> str:
    """Returns a value of the file for a message."""
    return shorten(repr(value)[:1000])
