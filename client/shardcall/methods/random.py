"""Random arrays, made on the mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex, Unpack

import numpy as np
import numpy.typing as npt

from shardcall.arrays import OperandLike
from shardcall.element_types import parse_dtype
from shardcall.methods.calling import ArrayOptions, Calling, Options, Outcome

Shape = SupportsIndex | Sequence[SupportsIndex]


class Random(Calling[Outcome]):
    """Random arrays, made on the mesh, where with ``keep=True`` they stay.

    A seed gives `jax.random`'s values for its key, the same on every mesh. The result is split by its first axis over
    all mesh axes unless ``out_spec`` tells; without a mesh and an ``out_spec`` it is made on one device.
    """

    def uniform(
        self,
        seed: OperandLike,
        shape: Shape,
        low: OperandLike = 0.0,
        high: OperandLike = 1.0,
        dtype: npt.DTypeLike = np.float64,
        **options: Unpack[Options],
    ) -> Outcome:
        """Values uniform in [low, high).

        Args:
            seed: an integer.
            shape: of the result.
            low: the least value.
            high: what all values are below.
            dtype: a floating-point type of 16 bits or more.
            options: as of `shardcall.methods.calling.Options`.
        """
        return self._named("uniform", seed, low, high, shape=shape, dtype=parse_dtype(dtype).name, options=options)

    def normal(
        self,
        seed: OperandLike,
        shape: Shape,
        loc: OperandLike = 0.0,
        scale: OperandLike = 1.0,
        dtype: npt.DTypeLike = np.float64,
        **options: Unpack[Options],
    ) -> Outcome:
        """Normal values.

        Args:
            seed: an integer.
            shape: of the result.
            loc: their mean.
            scale: their standard deviation.
            dtype: a floating-point type of 16 bits or more, or a complex one.
            options: as of `shardcall.methods.calling.Options`.
        """
        return self._named("normal", seed, loc, scale, shape=shape, dtype=parse_dtype(dtype).name, options=options)

    def randint(
        self,
        seed: OperandLike,
        shape: Shape,
        low: OperandLike,
        high: OperandLike,
        dtype: npt.DTypeLike = np.int64,
        **options: Unpack[Options],
    ) -> Outcome:
        """Integers uniform in [low, high).

        Args:
            seed: an integer.
            shape: of the result.
            low: the least value.
            high: what all values are below.
            dtype: an integer type of 8 bits or more.
            options: as of `shardcall.methods.calling.Options`.
        """
        return self._named("randint", seed, low, high, shape=shape, dtype=parse_dtype(dtype).name, options=options)

    def permutation(self, seed: OperandLike, x: OperandLike, axis: int = 0, **options: Unpack[ArrayOptions]) -> Outcome:
        """The rows of an array in random order.

        Args:
            seed: an integer.
            x: [..., size, ...] the array.
            axis: along which axis.
            options: as of `shardcall.methods.calling.ArrayOptions`; the result is split as ``x`` unless told.
        """
        return self._named("permutation", seed, x, axis=axis, options=options)
