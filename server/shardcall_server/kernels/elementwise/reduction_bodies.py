"""The bodies of the reductions, one row for each, by NumPy's name.

The same body serves an unsharded array and a device's block: `Reducer` masks padding and combines the devices' parts.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_server.kernels.core.blocks import index_type
from shardcall_server.kernels.core.differentiation import is_differentiated
from shardcall_server.kernels.core.element_types import widen
from shardcall_server.kernels.core.exactness import is_relaxed
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.numerics import arithmetic, comparisons
from shardcall_server.kernels.numerics.ordering import total_order, truth


@dataclass(frozen=True)
class ReducedAxis:
    """An axis that is reduced.

    Attributes:
        axis: its index.
        size: its size, without padding.
        block: the size of the device's block along it.
        axis_names: the mesh axes it is sharded over; empty if it is not.
        padded: True if it is padded.
    """

    axis: int
    size: int
    block: int
    axis_names: tuple[str, ...]
    padded: bool


@dataclass(frozen=True)
class Reducer:
    """A reduction over array axes, and over the mesh axes that shard them. The array axes stay, with size 1.

    Attributes:
        sizes: the axes that are reduced.
        where: bool, of the block's shape: the elements that are reduced; None for all.
        is_partitioned: True if the compiler divides the reduction among devices. XLA:CPU's all-reduce computes sums,
            products, maxima and minima, and no function of ours (jax 0.10.1).
    """

    sizes: tuple[ReducedAxis, ...]
    where: jax.Array | None = None
    is_partitioned: bool = False

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes."""
        return tuple(size.axis for size in self.sizes)

    @property
    def count(self) -> int:
        """The number of elements for each element of the result."""
        return math.prod(size.size for size in self.sizes)

    def counted(self) -> int | jax.Array:
        """Returns the number of elements reduced to each one of the result; with ``where`` an array of int64."""
        return self.count if self.where is None else self.sum(jnp.ones(self.where.shape, np.int64))

    @property
    def axis_names(self) -> tuple[str, ...]:
        """The mesh axes that shard the axes."""
        return tuple(name for size in self.sizes for name in size.axis_names)

    def sum(self, x: jax.Array) -> jax.Array:
        """Returns the sum, in x's type."""
        return self.sums(x)[0]

    def sums(self, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        """Returns the sums of arrays of one shape, each in its type, by one all-reduce."""
        parts = tuple(jnp.sum(self.masked(x, 0), self.axes, x.dtype, keepdims=True) for x in arrays)
        return lax.psum(parts, self.axis_names) if self.axis_names else parts

    def prod(self, x: jax.Array) -> jax.Array:
        """Returns the product, in x's type."""
        part = jnp.prod(self.masked(x, 1), self.axes, x.dtype, keepdims=True)
        return jnp.prod(lax.all_gather(part, self.axis_names), 0, x.dtype) if self.axis_names else part

    def max(self, x: jax.Array) -> jax.Array:
        """Returns the largest of integers; XLA:CPU's maximum of floats drops NaN (jax 0.10.1)."""
        part = jnp.max(self.masked(x, np.iinfo(x.dtype).min), self.axes, keepdims=True)
        return lax.pmax(part, self.axis_names) if self.axis_names else part

    def any(self, x: jax.Array) -> jax.Array:
        """Returns True where an element is true."""
        return self.max(x.astype(np.int32)) > 0

    def index(self, shape: tuple[int, ...]) -> jax.Array:
        """Returns the row-major index over the reduced axes of each element of a block of shape ``shape``."""
        dtype, stride = index_type(self.count + max(shape, default=1)), 1
        index = jnp.zeros(shape, dtype)
        for size in reversed(self.sizes):
            index = index + self._position(size, shape, dtype) * stride
            stride *= size.size
        return index

    def _position(self, size: ReducedAxis, shape: tuple[int, ...], dtype: np.dtype) -> jax.Array:
        here = lax.broadcasted_iota(dtype, shape, size.axis)
        return here + lax.axis_index(size.axis_names).astype(dtype) * size.block if size.axis_names else here

    def masked(self, x: jax.Array, fill: int | jax.Array) -> jax.Array:
        """Returns an array with another number in place of what is not reduced."""
        if self.where is not None:
            x = jnp.where(self.where, x, jnp.full((), fill, x.dtype))
        for size in self.sizes:
            if size.padded:
                position = self._position(size, x.shape, index_type(size.size + size.block))
                # A select and not a product, since padding may hold NaN.
                x = jnp.where(position < size.size, x, jnp.full((), fill, x.dtype))
        return x


Body = Callable[[jax.Array, Reducer, np.dtype, float], jax.Array]
"""Reduces an array to the working type of the result's type; the number is ``ddof``."""


@dataclass(frozen=True)
class Reduction:
    """One reduction.

    Attributes:
        name: the name of NumPy's function.
        body: the computation.
        of_none: the reduction of no elements; None if it is undefined.
        averages: True if it divides, so that the result is not of integers.
        combine: combines two results; None for reductions without an initial value.
        in_line: the same over the last axis of real numbers that one device has, by the compiler's own reduction: it
            takes 2.5 times as long as ``body`` for large arrays, and is compiled in less than half of the time.
        reproducibility: as `Kernel.reproducibility`, for reductions that do not average.
    """

    name: str
    body: Body
    of_none: float | None = None
    averages: bool = False
    combine: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    in_line: Callable[[jax.Array], jax.Array] | None = None
    reproducibility: Reproducibility = Reproducibility.ALWAYS


def _sum(x: jax.Array, reducer: Reducer, dtype: np.dtype, _: float) -> jax.Array:
    return reducer.any(truth(x)) if dtype == np.bool_ else reducer.sum(widen(x, dtype))


def _prod(x: jax.Array, reducer: Reducer, dtype: np.dtype, _: float) -> jax.Array:
    return ~reducer.any(~truth(x)) if dtype == np.bool_ else reducer.prod(widen(x, dtype))


def _mean(x: jax.Array, reducer: Reducer, dtype: np.dtype, _: float) -> jax.Array:
    return arithmetic.divide(reducer.sum(widen(x, dtype)), reducer.counted())


def _var(x: jax.Array, reducer: Reducer, dtype: np.dtype, ddof: float) -> jax.Array:
    wide = x if x.dtype.kind == "c" else widen(x, dtype)
    count = reducer.counted()
    distance = wide - arithmetic.divide(reducer.sum(wide), count)
    # The sum of the distances corrects the rounding of the mean. Chan, Golub and LeVeque, "Algorithms for
    # computing the sample variance", eq. 1.7.
    left, squares = reducer.sums(distance, _squared_size(distance))
    correction = _squared_size(arithmetic.divide(left, count)) * count
    squares = jnp.maximum(squares - jnp.where(jnp.isfinite(correction), correction, 0), 0)
    return arithmetic.divide(squares, jnp.maximum(count - float(ddof), 0))


def _squared_size(x: jax.Array) -> jax.Array:
    return jnp.square(jnp.real(x)) + jnp.square(jnp.imag(x)) if x.dtype.kind == "c" else jnp.square(x)


def _std(x: jax.Array, reducer: Reducer, dtype: np.dtype, ddof: float) -> jax.Array:
    return jnp.sqrt(_var(x, reducer, dtype, ddof))


def _any(x: jax.Array, reducer: Reducer, *_: object) -> jax.Array:
    return reducer.any(truth(x))


def _all(x: jax.Array, reducer: Reducer, *_: object) -> jax.Array:
    return ~reducer.any(~truth(x))


def _key(x: jax.Array, *, zeros_alike: bool) -> jax.Array:
    """Returns integers in the order of x: the bits of floats, inverted for negative ones; NaN comes last."""
    if x.dtype.kind in "iu":
        return x
    if x.dtype == np.bool_:
        return x.astype(np.int32)
    bits = lax.bitcast_convert_type(x, np.dtype(f"int{x.dtype.itemsize * 8}"))
    lowest = np.iinfo(bits.dtype).min
    if zeros_alike:
        bits = jnp.where(bits == lowest, 0, bits)
    return total_order(bits)


def _rank(x: jax.Array, nan: jax.Array, *, largest: bool, zeros_alike: bool) -> jax.Array:
    """Returns integers of which the largest is that of the largest or smallest element, and that of NaN if any."""
    key = _key(x, zeros_alike=zeros_alike)
    return jnp.where(nan, key.dtype.type(np.iinfo(key.dtype).max), key if largest else ~key)


def _from_key(key: jax.Array, dtype: np.dtype) -> jax.Array:
    """Reverses `_key`; the lowest and the highest integer become NaN."""
    if dtype.kind != "f":
        return key.astype(dtype)
    return lax.bitcast_convert_type(total_order(key), dtype)


def _best(x: jax.Array, reducer: Reducer, *, largest: bool, zeros_alike: bool) -> tuple[list[jax.Array], jax.Array]:
    """Returns the keys of the largest or smallest element (two for complex), and a mask of its occurrences."""
    parts = [jnp.real(x), jnp.imag(x)] if x.dtype.kind == "c" else [x]
    nan = functools.reduce(operator.or_, [part != part for part in parts])  # noqa: PLR0124
    candidates, keys = None, []
    for part in parts:
        key = _rank(part, nan, largest=largest, zeros_alike=zeros_alike)
        best = reducer.max(key if candidates is None else jnp.where(candidates, key, np.iinfo(key.dtype).min))
        candidates = key == best if candidates is None else candidates & (key == best)
        keys.append(best if largest else ~best)
    assert candidates is not None
    return keys, candidates


def _first(x: jax.Array, reducer: Reducer, *, largest: bool) -> tuple[jax.Array, jax.Array]:
    """Returns the index of each element, and that of the first NaN, else of the first largest or smallest one."""
    _keys, candidates = _best(x, reducer, largest=largest, zeros_alike=True)
    index = reducer.index(x.shape)
    return index, ~reducer.max(jnp.where(candidates, ~index, np.iinfo(index.dtype).min))


def _extreme(*, largest: bool) -> Body:
    def body(x: jax.Array, reducer: Reducer, *_: object) -> jax.Array:
        wide = widen(x, x.dtype)
        if x.dtype.kind == "c":  # a complex NaN has another part, which is kept
            index, first = _first(wide, reducer, largest=largest)
            return lax.complex(*(_chosen(part, index == first, reducer) for part in (lax.real(x), lax.imag(x))))
        in_one_pass = is_relaxed() and not is_differentiated() and not reducer.is_partitioned
        if in_one_pass and wide.dtype.kind == "f":
            return _relaxed_extreme(wide, reducer, largest=largest)
        (key,), _candidates = _best(wide, reducer, largest=largest, zeros_alike=False)
        return _from_key(key, wide.dtype)

    return body


def _relaxed_extreme(x: jax.Array, reducer: Reducer, *, largest: bool) -> jax.Array:
    """Returns the largest or smallest number in one pass; NaN where there is one. Zeros are alike."""
    is_better: Callable[[jax.Array, jax.Array], jax.Array] = lax.gt if largest else lax.lt

    def better(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(is_better(b, a) | (b != b), b, a)  # noqa: PLR0124

    worst = jnp.asarray(-np.inf if largest else np.inf, x.dtype)
    shape = [1 if i in reducer.axes else n for i, n in enumerate(x.shape)]
    part: jax.Array = lax.reduce(reducer.masked(x, worst), worst, better, reducer.axes).reshape(shape)
    return functools.reduce(better, lax.all_gather(part, reducer.axis_names)) if reducer.axis_names else part


def _chosen(x: jax.Array, selected: jax.Array, reducer: Reducer) -> jax.Array:
    """Returns the single selected element of floats, bit for bit."""
    bits = lax.bitcast_convert_type(x, np.dtype(f"int{x.dtype.itemsize * 8}"))
    return lax.bitcast_convert_type(reducer.max(jnp.where(selected, bits, np.iinfo(bits.dtype).min)), x.dtype)


def _index_of(*, largest: bool) -> Body:
    def body(x: jax.Array, reducer: Reducer, *_: object) -> jax.Array:
        _index, first = _first(widen(x, x.dtype), reducer, largest=largest)
        return first.astype(np.int64)

    return body


def _index_in_line(*, largest: bool) -> Callable[[jax.Array], jax.Array]:
    # XLA:CPU compares subnormals as zeros, so that integers are compared in place of floats.
    def body(x: jax.Array) -> jax.Array:
        rank = _rank(x, x != x, largest=largest, zeros_alike=True)  # noqa: PLR0124
        return lax.argmax(rank, x.ndim - 1, np.int64)

    return body


_NAN = float("nan")
REDUCTIONS = (
    Reduction("sum", _sum, 0, combine=jnp.add, reproducibility=Reproducibility.INTEGERS),
    Reduction("prod", _prod, 1, combine=jnp.multiply, reproducibility=Reproducibility.INTEGERS),
    Reduction("mean", _mean, _NAN, averages=True),
    Reduction("var", _var, _NAN, averages=True),
    Reduction("std", _std, _NAN, averages=True),
    Reduction("max", _extreme(largest=True), combine=comparisons.maximum),
    Reduction("min", _extreme(largest=False), combine=comparisons.minimum),
    Reduction("argmax", _index_of(largest=True), in_line=_index_in_line(largest=True)),
    Reduction("argmin", _index_of(largest=False), in_line=_index_in_line(largest=False)),
    Reduction("any", _any, 0),
    Reduction("all", _all, 1),
)
"""All reductions."""
