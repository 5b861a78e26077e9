"""Sizes of the values that a lowered program computes, which are checked before it is compiled."""

from __future__ import annotations

import math
import re

from shardcall_core.call_error import CallError, Reason
from shardcall_core.types.sizes import exact
from shardcall_server.kernels.graphs.plan import MAX_VALUE_BYTES

_TYPE = re.compile(r"tensor<((?:\d+x)+)(complex<f(\d+)>|[a-z]+(\d+)[^>,]*)")
"""A type of StableHLO: ``tensor<4x2xf32>``, ``tensor<3xcomplex<f64>>``, ``tensor<5xi1>``."""


def check_intermediates(name: str, text: str) -> None:
    """Refuses a program with a value of more than `MAX_VALUE_BYTES`.

    XLA ends the process where the size of a shape overflows 64 bits (jaxlib 0.10.1): in batches, in loops, and in the
    square matrices that a decomposition computes of a long one.

    Args:
        name: the name of the kernel.
        text: the lowered program.

    Raises:
        CallError: CALL_TOO_LARGE.
    """
    for sizes, dtype, part_bits, bits in set(_TYPE.findall(text)):
        shape = [int(size) for size in sizes.split("x")[:-1]]
        nbytes = math.prod(shape) * (int(bits) if bits else 2 * int(part_bits)) // 8
        if nbytes > MAX_VALUE_BYTES:
            raise CallError(
                Reason.CALL_TOO_LARGE,
                f"{name} computes an array of {dtype}{shape} on the way, {exact(nbytes)}, and one may have "
                f"{exact(MAX_VALUE_BYTES)}; make the operands or the batch smaller",
                field="operands",
                metadata={"bytes": str(nbytes), "limit": str(MAX_VALUE_BYTES)},
            )
