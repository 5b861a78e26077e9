"""Headers of npy files: NumPy's format of an array in a file, described at `numpy.lib.format`.

The text of a header is matched against the one form that NumPy writes, and never evaluated. An element type that NumPy
does not have is written as a structure of one unsigned field, which is named after the type and has its bits:
``np.load(file)["bfloat16"].view(ml_dtypes.bfloat16)``.
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass

import numpy as np

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.types.element_types import DTYPES
from shardcall_server.link.file_errors import damaged, file_error
from shardcall_server.link.wire import decode_array_type, encode_array_type

_MAGIC = b"\x93NUMPY"
_LENGTHS = {1: "<H", 2: "<I", 3: "<I"}  # of the text, by the version of the format
_ALIGNMENT = 64  # of the first element
_MAX_TEXT = 16 << 10
_MAX_RANK = 64  # NumPy's own limit; the server's is lower
_TEXT = re.compile(
    r"\{\s*'descr':\s*(?P<descr>'[^'\\]{1,64}'|\[.{0,4096}\]),"
    r"\s*'fortran_order':\s*(?P<order>True|False),"
    r"\s*'shape':\s*\((?P<shape>[0-9, ]{0,2048})\),?\s*\}\s*",
    re.DOTALL,
)
_SIZES = re.compile(r"(?:\d{1,18}, ?)*(?:\d{1,18})?")
_PLAIN = re.compile(r"'(?P<order>[<>|])(?P<code>[bifuc]\d{1,2})'")
_FIELD = re.compile(r"\[\('(?P<name>\w{1,32})', '(?P<bits>[<|]u\d)'\)\]")
_OF_NUMPY = {dtype.str[1:]: dtype for dtype in DTYPES.values() if dtype.isbuiltin == 1}
_OTHERS = {dtype.name: dtype for dtype in DTYPES.values() if dtype.isbuiltin != 1}


@dataclass(frozen=True)
class NpyHeader:
    """The header of a file.

    Attributes:
        type: the type of the array.
        offset: the offset of its first element in the file, in bytes.
        is_column_major: True if the first index varies fastest.
        is_big_endian: True if the first byte of a number is its most significant one.
    """

    type: ArrayType
    offset: int
    is_column_major: bool = False
    is_big_endian: bool = False

    @property
    def file_bytes(self) -> int:
        """The size of the complete file in bytes."""
        return self.offset + self.type.nbytes


def header_of(array_type: ArrayType) -> bytes:
    """Returns the header of a row-major, little-endian array."""
    text = f"{{'descr': {_descr(array_type.dtype)!r}, 'fortran_order': False, 'shape': {array_type.shape!r}, }}"
    prefix = len(_MAGIC) + 2 + struct.calcsize(_LENGTHS[1])
    padding = -(prefix + len(text) + 1) % _ALIGNMENT
    line = text.encode("ascii") + b" " * padding + b"\n"
    return _MAGIC + bytes([1, 0]) + struct.pack(_LENGTHS[1], len(line)) + line


def read_header(fd: int) -> NpyHeader:
    """Returns the header of a file, whose size is that of the header and the array.

    Raises:
        CallError: FILE_DAMAGED, UNSUPPORTED_ELEMENT_TYPE, INVALID_SHAPE, FILES_UNAVAILABLE.
    """
    try:
        data, size = os.pread(fd, _MAX_TEXT + 16, 0), os.fstat(fd).st_size
    except OSError as error:
        raise file_error(error) from error
    header = _parse(data)
    if size != header.file_bytes:
        raise damaged(f"has {size:,} bytes, and its header says {header.file_bytes:,}")
    return header


def _descr(dtype: np.dtype) -> str | list[tuple[str, str]]:
    if dtype.isbuiltin == 1:
        return dtype.str
    return [(dtype.name, np.dtype(f"<u{dtype.itemsize}").str)]


def _parse(data: bytes) -> NpyHeader:
    if not data.startswith(_MAGIC):
        raise damaged("does not begin as npy files do")
    major, minor = (*data[len(_MAGIC) : len(_MAGIC) + 2], 0, 0)[:2]
    if major not in _LENGTHS or minor:
        raise damaged(f"has version {major}.{minor} of the npy format, and the server reads 1.0, 2.0 and 3.0")
    begin = len(_MAGIC) + 2 + struct.calcsize(_LENGTHS[major])
    if len(data) < begin:
        raise damaged("ends in its header")
    (length,) = struct.unpack(_LENGTHS[major], data[len(_MAGIC) + 2 : begin])
    if length > _MAX_TEXT:
        raise damaged(f"has a header of {length:,} bytes, and the server reads at most {_MAX_TEXT:,}")
    if len(data) < begin + length:
        raise damaged("ends in its header")
    text = data[begin : begin + length].decode("latin-1")
    fields = _TEXT.fullmatch(text)
    if fields is None or _SIZES.fullmatch(fields["shape"]) is None:
        raise damaged(f"has the header {shorten(text.strip())!r}, which NumPy does not write")
    shape = tuple(int(size) for size in fields["shape"].replace(" ", "").split(",") if size)
    dtype, is_big_endian = _dtype(fields["descr"])
    # Checked as an array that a client sends: its rank, its sizes.
    array_type = decode_array_type(encode_array_type(ArrayType(shape[: _MAX_RANK + 1], dtype)), "name")
    return NpyHeader(array_type, begin + length, fields["order"] == "True", is_big_endian)


def _dtype(descr: str) -> tuple[np.dtype, bool]:
    """Returns an element type, and whether its elements are big-endian."""
    if plain := _PLAIN.fullmatch(descr):
        dtype = _OF_NUMPY.get(plain["code"])
        if dtype is not None and (plain["order"] != "|" or dtype.itemsize == 1):
            return dtype, plain["order"] == ">" and dtype.itemsize > 1
    elif field := _FIELD.fullmatch(descr):
        dtype = _OTHERS.get(field["name"])
        if dtype is not None and [(field["name"], field["bits"])] == _descr(dtype):
            return dtype, False
    raise CallError(
        Reason.UNSUPPORTED_ELEMENT_TYPE,
        f"the file has elements of the type {shorten(descr)}, which the server does not load; save numbers or bools, "
        "and types that NumPy does not have by client.save",
        field="name",
        metadata={"descr": shorten(descr)},
    )
