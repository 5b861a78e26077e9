"""Memory files that client, front end and mesh worker share, mapped for huge pages. Linux only."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import weakref
from functools import cache

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

HUGE_PAGE_BYTES = 2 << 20
"""The size of a huge page on x86-64 and, with pages of 4 KiB, on AArch64; files are multiples of it."""

_PROT_NONE, _PROT_READ_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000
_MAP_POPULATE = 0x8000
_MADV_POPULATE_WRITE, _MADV_COLLAPSE = 23, 25  # Linux 5.14 and 6.1
_FAILED = ctypes.c_void_p(-1).value


def map_file(fd: int, nbytes: int, *, populate: bool) -> Bytes:
    """Maps a memory file at an address that is a multiple of the huge page's size.

    Python's own ``mmap`` accepts any address, but a file's huge pages are mapped as such at multiples of their size.

    Args:
        fd: the file, which may be closed afterwards.
        nbytes: its size, a multiple of `HUGE_PAGE_BYTES`.
        populate: allocate and map all pages now, to avoid page faults later.

    Returns:
        uint8[nbytes], writeable. The memory is unmapped with the last array in it.

    Raises:
        OSError: if the kernel refuses.
    """
    libc = _libc()
    # Reserve space for the alignment, map the file over it, and unmap the rest at both ends.
    span = nbytes + HUGE_PAGE_BYTES
    reserved = libc.mmap(None, span, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE, -1, 0)
    if reserved == _FAILED:
        raise _error()
    address = -(-reserved // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    flags = mmap.MAP_SHARED | _MAP_FIXED | (_MAP_POPULATE if populate else 0)
    mapped = libc.mmap(address, nbytes, _PROT_READ_WRITE, flags, fd, 0)
    failure = _error() if mapped == _FAILED else None
    for begin, end in ((reserved, address), (address + nbytes, reserved + span)):
        if end > begin:
            libc.munmap(begin, end - begin)
    if failure is not None:
        libc.munmap(address, nbytes)
        raise failure
    owner = (ctypes.c_uint8 * nbytes).from_address(address)
    # Every view of the memory keeps `owner` alive; at exit views may outlive this module, so nothing is unmapped.
    weakref.finalize(owner, libc.munmap, address, nbytes).atexit = False
    return np.frombuffer(memoryview(owner), np.uint8)


def make_present(memory: Bytes, fd: int, begin: int, end: int) -> None:
    """Allocates pages of a part of a mapped file: huge ones if the kernel has them, else small ones.

    ``MADV_COLLAPSE`` makes huge pages of shared memory whatever the system's setting: six times faster than touching
    small ones, and other processes map them at once. All pages are allocated, since access to a page of a sparse file
    that cannot be allocated kills the process.

    Args:
        memory: the memory that `map_file` returned.
        fd: its file.
        begin: the first byte, a multiple of `HUGE_PAGE_BYTES`.
        end: the byte after the last, a multiple of `HUGE_PAGE_BYTES`.

    Raises:
        OSError: if no memory is left.
    """
    if begin >= end:
        return
    libc = _libc()
    address, nbytes = memory.ctypes.data + begin, end - begin
    memory[begin:end:HUGE_PAGE_BYTES] = 0  # only present pages are collapsed
    if libc.madvise(address, nbytes, _MADV_COLLAPSE):
        os.posix_fallocate(fd, begin, nbytes)
        with contextlib.suppress(OSError):
            if libc.madvise(address, nbytes, _MADV_POPULATE_WRITE):
                raise _error()


def round_up(nbytes: int, step: int = HUGE_PAGE_BYTES) -> int:
    """Returns the next multiple of a step."""
    return -(-nbytes // step) * step


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
