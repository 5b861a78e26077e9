"""Sums of products of arrays whose axes have labels, for `matmul` and `einsum`; free of JAX."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import MAX_RANK

STRETCHED = ""
"""The label of an axis of size 1 that is broadcast: NumPy repeats it, and a sum of products can omit it."""

Labels = tuple[str, ...]


@dataclass(frozen=True)
class Contraction:
    """``result = Σ lhs · rhs`` over the labels that the result lacks; with one operand ``result = Σ lhs``, and so on.

    Attributes:
        labels: of the axes of each operand. A label that an operand has twice stands for the diagonal.
        result: the labels of the result's axes.
        sizes: the size of the axes of each label.
    """

    labels: tuple[Labels, ...]
    result: Labels
    sizes: Mapping[str, int] = field(hash=False)

    @staticmethod
    def of(labels: Sequence[Labels], result: Labels, shapes: Sequence[tuple[int, ...]]) -> Contraction:
        """Returns the contraction of arrays of these shapes; the sizes of one label are equal, or 1."""
        axes = [axis for pair in zip(labels, shapes, strict=True) for axis in zip(*pair, strict=True)]
        sizes = {label: next((n for other, n in axes if other == label and n != 1), 1) for label, _ in axes}
        stretched = tuple(
            tuple(STRETCHED if n != sizes[label] else label for label, n in zip(*pair, strict=True))
            for pair in zip(labels, shapes, strict=True)
        )
        return Contraction(stretched, result, sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""
        return tuple(self.sizes[label] for label in self.result)

    @property
    def summed(self) -> Labels:
        """The labels that are summed over, in the order of their first axes."""
        labels = dict.fromkeys(label for axes in self.labels for label in axes)
        return tuple(label for label in labels if label not in self.result and label != STRETCHED)

    @property
    def terms(self) -> int:
        """The number of products whose sum is an element of the result; without any, all sums are zero."""
        return math.prod(self.sizes[label] for label in self.summed)

    def pairs(self) -> list[Contraction]:
        """Returns the pairwise contractions that lead to this one: of the first two operands, of that and the third, ….

        A label is summed over as soon as neither the result nor a later operand has it.
        """
        pairs, labels = [], self.labels[0]
        for i, other in enumerate(self.labels[1:], 2):
            later = {*self.result, *(label for axes in self.labels[i:] for label in axes)} - {STRETCHED}
            kept = tuple(label for label in dict.fromkeys((*labels, *other)) if label in later)
            result = self.result if i == len(self.labels) else kept
            pairs.append(Contraction((labels, other), result, self.sizes))
            labels = result
        return pairs

    def check_rank(self) -> None:
        """Refuses a result or an intermediate product with more axes than an array may have."""
        for pair in self.pairs()[:-1]:
            if len(pair.result) > MAX_RANK:
                raise CallError(
                    Reason.INVALID_OPERAND,
                    f"the product of the operands from the left has {len(pair.result)} axes before the last of them; "
                    f"an array may have at most {MAX_RANK}; give the operands in another order",
                    field="operands",
                )
        if len(self.result) > MAX_RANK:
            raise CallError(
                Reason.INVALID_OPERAND,
                f"the product has {len(self.result)} axes; an array may have at most {MAX_RANK}",
                field="rhs",
            )
