"""Checksums of the files of checkpoints, by blocks, which the front end computes and every reader compares."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

import xxhash

from shardcall_core.call_error import CallError, Reason

BLOCK_BYTES = 1 << 20
"""The size of a block, of which the last of a file may be shorter."""


def checksums(fd: int, blocks: Iterable[int]) -> Iterator[int]:
    """Yields the checksums of blocks of a file; of one behind its end, that of no bytes.

    Args:
        fd: the descriptor of the file.
        blocks: the numbers of the blocks.

    Raises:
        OSError: the file cannot be read.
    """
    buffer = memoryview(bytearray(BLOCK_BYTES))
    for block in blocks:
        count = 0
        while received := os.preadv(fd, [buffer[count:]], block * BLOCK_BYTES + count):
            count += received
        yield xxhash.xxh3_64_intdigest(buffer[:count])


def blocks_of(begin: int, end: int) -> range:
    """Returns the numbers of the blocks that have some of a range of bytes."""
    return range(begin // BLOCK_BYTES, -(-end // BLOCK_BYTES))


def check_blocks(fd: int, blocks: Sequence[int], expected: Sequence[int]) -> None:
    """Checks blocks of a file.

    Args:
        blocks: their numbers.
        expected: the checksums of all blocks of the file; none if it was written without.

    Raises:
        CallError: FILE_DAMAGED.
        OSError: the file cannot be read.
    """
    if expected:
        for block, checksum in zip(blocks, checksums(fd, blocks), strict=True):
            if checksum != expected[block]:
                begin = block * BLOCK_BYTES
                raise CallError(
                    Reason.FILE_DAMAGED,
                    f"its bytes from {begin:,} to {begin + BLOCK_BYTES:,} are not all as they were written",
                )
