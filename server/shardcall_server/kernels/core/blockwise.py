"""Calls whose blocks are computed from rows of the operands at fixed distances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax

from shardcall_core.layouts.layout import Spec


class AlignedAxis(NamedTuple):
    """A sharded axis of an operand: row i of the result needs row ``i + distance`` of it, and no other.

    Attributes:
        axis: the axis of the result that is sharded alike.
        distance: the distance.
    """

    axis: int
    distance: int


BlockBody = Callable[[tuple[int, ...], tuple[int | jax.Array, ...], Sequence[jax.Array]], jax.Array]
"""Computes a block of a result.

Takes the shape of the block, the index in the result of its first element along each axis, which may be negative, and
the blocks of the present operands. Rows outside of the result are unspecified.
"""


@dataclass(frozen=True)
class Blockwise:
    """A call with one result, of which every device computes its block from rows of the operands.

    Attributes:
        in_specs: the spec that each present operand needs.
        aligned: for each axis of each present operand the alignment; None for an axis that is not sharded.
        body: computes a block. Of an aligned axis an operand's block has the rows that the block of the result needs,
            and as many.
        takes_offsets: False if the body does not depend on the index of the first element.
    """

    in_specs: tuple[Spec, ...]
    aligned: tuple[tuple[AlignedAxis | None, ...], ...]
    body: BlockBody
    takes_offsets: bool = True
