"""Arrays in npy and npz files, on standard input and on standard output."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, BinaryIO, Protocol, cast

import numpy as np
import typer

from shardcall.cli import texts
from shardcall.cli.exits import CommandError, usage_error
from shardcall_core.types.arrays import NDArray

STREAM = "-"
_NPZ_NAME = re.compile(r"(?P<file>.+\.npz)(?:\[(?P<name>[^\]]+)\])?")
_ZIP = b"PK\x03\x04"
_NPY = b"\x93NUMPY"


class OperandParser(Protocol):
    """Reads the operands of a call from arguments."""

    def read(self, text: str, max_count: int | None = None) -> list[Any]:
        """Returns the operands of an argument: one, or those of an npz file.

        Args:
            max_count: the largest number of them that the caller accepts.

        Raises:
            CommandError: if there is no such file, or it holds something else.
        """


class ArraySource:
    """Operands with values: files, ``-`` for standard input, numbers and ``none``."""

    def __init__(self) -> None:
        self._has_read_stream = False

    def read(self, text: str, max_count: int | None = None) -> list[Any]:
        """As `OperandParser`."""
        value = texts.parse_value(text)
        if value is None:
            return [None]
        if texts.is_number(value):
            return [value]
        values = self._arrays(text)
        if max_count is not None and len(values) > max_count:
            raise usage_error(f"{text} holds {len(values)} arrays, and one is needed; name it: {text}[NAME]")
        return values

    def _arrays(self, text: str) -> list[NDArray]:
        if text == STREAM:
            if self._has_read_stream:
                raise usage_error("- is given twice, and standard input is read once; send several arrays as npz")
            self._has_read_stream = True
            return load(io.BytesIO(sys.stdin.buffer.read()), "standard input", None)
        match = _NPZ_NAME.fullmatch(text)
        path = match["file"] if match else text
        try:
            with open(path, "rb") as file:
                return load(file, path, match["name"] if match else None)
        except OSError as error:
            raise usage_error(
                f"{text!r} is no operand: the file cannot be read ({error.strerror}); give the path of an npy or npz "
                "file, - for standard input, or a number"
            ) from None


class TypeSource(ArraySource):
    """Operands by their types; also files, of which only the types are used."""

    def read(self, text: str, max_count: int | None = None) -> list[Any]:
        """As `OperandParser`."""
        if (array_type := texts.parse_type(text)) is not None:
            return [array_type]
        if text != STREAM and not os.path.exists(_path(text)) and isinstance(texts.parse_value(text), str):
            raise usage_error(
                f"{text!r} is no file, and no operand; give a type such as float64[4096,4096], a number, or an npy or "
                "npz file that exists"
            )
        return super().read(text, max_count)


def load(file: BinaryIO, name: str, entry_name: str | None) -> list[NDArray]:
    """Returns the arrays of an npy or npz file.

    Args:
        name: the file's name in errors.
        entry_name: the array of an npz file; None for all of them.

    Raises:
        CommandError: if it is another file, or has no such array.
    """
    head = file.read(len(_NPY))
    file.seek(0)
    if head != _NPY and not head.startswith(_ZIP):
        fault = "is empty" if not head else "is neither an npy nor an npz file"
        raise usage_error(f"{name} {fault}; write one by numpy.save or numpy.savez")
    try:
        loaded = np.load(file)
        if isinstance(loaded, np.ndarray):
            return [_checked(loaded, name)]
        with loaded:
            if entry_name is not None and entry_name not in loaded.files:
                raise usage_error(f"{name} has no array {entry_name!r}; there are: {', '.join(loaded.files) or 'none'}")
            names = loaded.files if entry_name is None else [entry_name]
            return [_checked(loaded[entry], f"{name}[{entry}]") for entry in names]
    except (ValueError, EOFError, OSError, KeyError) as error:
        raise usage_error(f"{name} cannot be read as arrays: {error}") from None


def save(arrays: Sequence[NDArray], out: Path | None) -> None:
    """Writes arrays to a file, or to standard output if it is None or ``-``: one as npy, several as npz.

    Raises:
        CommandError: if the file cannot be written.
    """
    _warn_of_voids(arrays)
    if out is None or str(out) == STREAM:
        content = io.BytesIO()
        _write(content, arrays, as_npz=len(arrays) != 1)
        sys.stdout.buffer.write(content.getbuffer())
        sys.stdout.buffer.flush()
        return
    try:
        with _replacing(out) as file:
            _write(file, arrays, as_npz=out.suffix == ".npz" or len(arrays) != 1)
    except OSError as error:
        raise CommandError(f"{out} cannot be written: {error.strerror}") from None


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Opens a file whose content replaces that of a path when the block ends; an error leaves what is there."""
    if path.exists() and not path.is_file():  # a device or a pipe
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()  # a link stays
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            yield cast(BinaryIO, file)
            file.flush()
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(file.name, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~umask)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _write(file: BinaryIO, arrays: Sequence[NDArray], *, as_npz: bool) -> None:
    if as_npz:
        np.savez(file, *arrays)
    else:
        np.save(file, arrays[0])


def _warn_of_voids(arrays: Sequence[NDArray]) -> None:
    for name in sorted({array.dtype.name for array in arrays if array.dtype.kind == "V"}):
        typer.echo(
            f"shardcall warning: npy files do not hold {name}; read it by numpy.load(…).view(ml_dtypes.{name})",
            err=True,
        )


def _checked(array: NDArray, name: str) -> NDArray:
    if array.dtype.kind == "V":
        raise usage_error(
            f"{name} holds elements of type {array.dtype}, as npy files hold ml_dtypes' types, so their type is not "
            "known; convert it to float32 first, or call from Python"
        )
    return array


def _path(text: str) -> str:
    match = _NPZ_NAME.fullmatch(text)
    return match["file"] if match else text
