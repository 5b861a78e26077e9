"""Random arrays, made on the mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex, Unpack

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.types.element_types import DType, parse_dtype
from shardcall._src.types.errors import InvalidOperandError
from shardcall.methods.calling import ArrayOptions, Calling, Options, Outcome

Shape = SupportsIndex | Sequence[SupportsIndex]

_MOST = 2**64 - 1  # that an operand can be


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
            high: what all values are below, but for their rounding to the type: one just below it may become it, as in
                `jax.random`.
            dtype: a floating-point type of 16 bits or more.
            options: as of `shardcall.methods.calling.Options`.

        Raises:
            InvalidOperandError: for a high below low. Of bounds that lie on the mesh, such values are between the two.
        """
        _check_order(low, high, shape, may_be_equal=True)
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
            low: the least value, one of the type's.
            high: what all values are below: one of the type's, or 1 more than its greatest but for uint64.
            dtype: an integer type of 8 bits or more.
            options: as of `shardcall.methods.calling.Options`.

        Raises:
            InvalidOperandError: for a bound beyond the type, and for a high that is not above low. A bound that lies on
                the mesh is taken for the nearest that is allowed; where it leaves no value, all are ``low``.
        """
        kind = parse_dtype(dtype)
        _check_order(low, high, shape, may_be_equal=False)
        if kind.kind in "iu":
            _check_bound("low", low, kind, 0)
            _check_bound("high", high, kind, 1)
        return self._named("randint", seed, low, high, shape=shape, dtype=kind.name, options=options)

    def permutation(self, seed: OperandLike, x: OperandLike, axis: int = 0, **options: Unpack[ArrayOptions]) -> Outcome:
        """The rows of an array in random order.

        Args:
            seed: an integer.
            x: [..., size, ...] the array.
            axis: along which axis.
            options: as of `shardcall.methods.calling.ArrayOptions`; the result is split as ``x`` unless told.
        """
        return self._named("permutation", seed, x, axis=axis, options=options)


def _check_order(low: OperandLike, high: OperandLike, shape: Shape, *, may_be_equal: bool) -> None:
    least, beyond = _scalar(low), _scalar(high)
    if not all(isinstance(bound, int | float | np.integer | np.floating) for bound in (least, beyond)):
        return
    if (beyond < least or (beyond == least and not may_be_equal)) and 0 not in (
        shape if isinstance(shape, Sequence) else (shape,)
    ):
        raise InvalidOperandError(
            f"low={least} and high={beyond}; give a high {'of at least' if may_be_equal else 'above'} low", field="high"
        )


def _scalar(bound: OperandLike) -> Any:
    return bound[()] if isinstance(bound, np.ndarray) and not bound.ndim else bound


def _check_bound(name: str, bound: OperandLike, dtype: DType, beyond: int) -> None:
    value = _scalar(bound)
    least, most = int(np.iinfo(dtype).min), min(int(np.iinfo(dtype).max) + beyond, _MOST)
    if isinstance(value, int | np.integer) and not least <= value <= most:
        wider = ", or a wider dtype" if dtype.itemsize < 8 else ""
        raise InvalidOperandError(
            f"{name}={value} and the values are {dtype.name}; give a {name} from {least} to {most}{wider}",
            field=name,
        )
