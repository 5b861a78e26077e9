"""Cases of the kernels that are not elementwise: differences, sums, products, moves."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from accuracy import points, references
from accuracy.elementwise import Case
from accuracy.references import widened, wrapped

from shardcall_core.call_error import CallError
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import ArrayType

_SPECIAL_ROWS = ((np.nan,), (np.inf,), (-np.inf, np.inf), (-0.0,))
_COMPLEX_ROWS = ((complex(1, np.inf),), (complex(np.inf, np.nan),))
_PERIOD = 4096
"""After how many elements special ones repeat."""
_MAX = 4099
_SIDE = 4
"""The number of rows of a matrix."""
SCANS = ("cumsum", "cumprod")


class Values:
    """Arrays of one element type, the same in every run."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        self._random = np.random.default_rng(sum(dtype.name.encode()))

    def normal(self, *shape: int, center: float = 0.0) -> np.ndarray:
        """Normal values; integers from -4 to 4, from 0 on for the unsigned."""
        if points.is_inexact(self.dtype):
            parts = self._random.normal(center, size=(2, *shape))
            return (parts[0] + 1j * parts[1] if self.dtype.kind == "c" else parts[0]).astype(self.dtype)
        low = 0 if self.dtype.name.startswith("u") or self.dtype == np.bool_ else -4
        return self._random.integers(low, 2 if self.dtype == np.bool_ else 5, shape).astype(self.dtype)

    def rows(self, n: int) -> np.ndarray:
        """Rows of n normal values, of numbers far from zero, of alternating signs, and with special values."""
        if not points.is_inexact(self.dtype):
            return self.normal(3, n)
        far = min(10_000.0, float(points.finfo(self.dtype).max) / 8)
        rows = [
            self.normal(n),
            self.normal(n, center=far),
            (self.normal(n).real * (-1.0) ** np.arange(n)).astype(self.dtype),
        ]
        largest, *smallest = points.extremes(self.dtype)
        for special in (*_SPECIAL_ROWS, (largest,), *(_COMPLEX_ROWS if self.dtype.kind == "c" else ())):
            row = self.normal(n)
            row[np.arange(len(special)) * (n // 2)] = special if n > 1 else special[:1] * len(special)
            rows.append(row)
        rows += [np.where(np.arange(n) == n // 2, number, 0).astype(self.dtype) for number in smallest]
        return np.stack(rows)

    def spread(self, n: int) -> np.ndarray:
        """Normal values; from 4,096 on with special ones, far apart: single ones, and pairs of real ones."""
        x = self.normal(n)
        if n < _PERIOD or not points.is_inexact(self.dtype):
            return x
        largest, normal, subnormal = points.extremes(self.dtype)
        parts = (*points.SPECIAL, normal, subnormal)
        if self.dtype.kind == "c":
            alone = [complex(a, b) for a in (*parts, largest, 1.0) for b in (*parts, largest, 1.0)]
            pairs = []
        else:
            alone, pairs = [largest, -largest], [(a, b) for a in parts for b in parts]
        step = _PERIOD // (len(alone) + len(pairs))
        tile = np.ones(_PERIOD, self.dtype)
        taken = np.zeros(_PERIOD, bool)
        for i, special in enumerate([*((one,) for one in alone), *pairs]):
            at = slice(start := i * step + step // 2, start + len(special))
            tile[at], taken[at] = special, True
        return np.where(np.resize(taken, n), np.resize(tile, n), x)

    def factors(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Matrices [16, n] and [n, 8] of normal values; the last rows of the first one have special ones."""
        lhs, rhs = self.normal(16, n), self.normal(n, 8)
        if points.is_inexact(self.dtype):
            largest, normal, subnormal = points.extremes(self.dtype)
            infinite, middle = complex(1, np.inf) if self.dtype.kind == "c" else np.inf, n // 2
            rhs[middle, -1] = 0
            lhs[-6:-4] = 0
            lhs[-6:, middle] = np.array([normal, subnormal / 8, largest, np.nan, infinite, -np.inf])
            lhs[-1, :middle][:1] = np.inf
        return lhs, rhs

    def bits(self, n: int) -> np.ndarray:
        """Values of all bit patterns."""
        every = points.every_value(self.dtype)
        if every is not None:
            return np.resize(every, n)
        return np.frombuffer(self._random.bytes(n * self.dtype.itemsize), self.dtype)


def _magnitude(x: np.ndarray) -> np.ndarray:
    """The size, in extended precision."""
    wide = widened(x)
    return abs(wide) if wide.dtype != object else abs(wide).astype(np.longdouble)


def _sum_of_sizes(x: np.ndarray, **how: Any) -> np.ndarray:
    return np.sum(_magnitude(x), **how)


def differences(values: Values, n: int, devices: int) -> Iterator[Case]:
    """`diff` of orders 1 and 3, and where the type has a derivative `gradient` and `laplacian`."""
    name, x = values.dtype.name, values.spread(n)
    for order in (1, 3):
        if n > order:
            reference = widened(x) if x.dtype == np.bool_ else _wrapped(np.diff(widened(x), order), x.dtype)
            if x.dtype == np.bool_:
                reference = np.diff(x, order)
            weights = np.array([1.0], np.longdouble)
            for _ in range(order):
                weights = np.convolve(weights, np.ones(2, np.longdouble))
            terms = [w * _magnitude(x)[i : n - order + i] for i, w in enumerate(weights)]
            scale = np.max(terms, 0) if order > 1 else None
            near = tuple(x[i : n - order + i] for i in range(order + 1))
            how, row = {"n": order}, f"diff, order {order}"
            yield Case(row, name, "diff", (x,), (reference,), (scale,), how, near, devices)
    if not points.is_inexact(x.dtype) or n < 3:
        return
    yield from _gradients(values, x, devices)
    near = np.roll(x, 1), x, np.roll(x, -1)
    before, middle, after = map(widened, near)
    neighbours = before, -(middle + middle), after
    scale = np.max([abs(term) for term in neighbours], 0)
    yield Case("laplacian", name, "laplacian", (x,), (sum(neighbours),), (scale,), {}, near, devices)


def _gradients(values: Values, x: np.ndarray, devices: int) -> Iterator[Case]:
    n, wide = len(x), widened(x)
    uneven = np.cumsum(np.random.default_rng(n).uniform(0.01, 2, n))
    near = tuple(x[np.clip(np.arange(n) + offset, 0, n - 1)] for offset in (-1, 0, 1))
    for label, spacing in (("steps of 0.3", np.float64(0.3)), ("coordinates", uneven)):
        steps = np.diff(uneven.astype(np.longdouble)) if spacing.ndim else np.full(n - 1, np.longdouble(0.3))
        before, after = steps[:-1], steps[1:]
        inner = [
            -after / (before * (before + after)) * wide[:-2],
            (after - before) / (before * after) * (wide[1:-1] if spacing.ndim else 0),
            before / (after * (before + after)) * wide[2:],
        ]
        ends = [(wide[[1, -1]] / steps[[0, -1]]), (-wide[[0, -2]] / steps[[0, -1]])]
        reference, scale = (
            np.concatenate([end[:1], middle, end[1:]])
            for end, middle in (
                (sum(ends), sum(inner)),
                (np.max([abs(term) for term in ends], 0), np.max([abs(term) for term in inner], 0)),
            )
        )
        row = f"gradient, {label}"
        yield Case(row, values.dtype.name, "gradient", (x, spacing), (reference,), (scale,), {}, near, devices)


def sums(values: Values, n: int, devices: int) -> Iterator[Case]:
    """Reductions and running sums along rows; over several devices along the sharded axis."""
    dtype, x = values.dtype, values.rows(n)
    for name in ("sum", "prod", "mean", "var", "std", "max", "min", "argmax", "argmin", "any", "all", *SCANS):
        if dtype.name.endswith("int4") and name in ("mean", "var", "std"):
            continue
        in_range = _near_one(values, x) if name in ("prod", "cumprod") else x
        reduced = _reduced(name, in_range)
        if reduced is not None:
            axis = {"axis": 0} if devices > 1 else {"axis": 1}
            operand, reference, scale = in_range, *reduced
            if devices > 1:  # rows over devices, and what is reduced with them
                operand = np.ascontiguousarray(in_range.T)
                reference = reference.T if name in SCANS else reference
                scale = scale.T if scale is not None and name == "cumsum" else scale
            yield Case(name, dtype.name, name, (operand,), (reference,), (scale,), axis, (), devices)


def _near_one(values: Values, x: np.ndarray) -> np.ndarray:
    if not points.is_inexact(x.dtype):
        return np.where(x == 0, np.ones((), x.dtype), x)
    wide = x.astype(np.float64) if x.dtype.kind != "c" else x.astype(complex)
    with np.errstate(all="ignore"):
        return np.where(
            np.isfinite(wide) & ~((wide == 0) & np.signbit(wide.real)), 1 + wide / (1 + abs(wide)) / x.shape[1], wide
        ).astype(x.dtype)


def _reduced(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray | None] | None:
    function, wide = getattr(np, name), widened(x)
    with np.errstate(all="ignore"):
        result = function(np.ones((1, 1), x.dtype), axis=1).dtype
        if not points.is_inexact(x.dtype):
            return _reduced_integers(name, x, result)
        if name in ("argmax", "argmin", "any", "all"):
            return function(wide, axis=1), None
        if name in ("var", "std"):
            apart = wide - wide.mean(axis=1, keepdims=True)
            variance = np.mean(apart.real**2 + apart.imag**2, axis=1)
            return (variance if name == "var" else np.sqrt(variance)), None
        scale = {
            "sum": _sum_of_sizes(x, axis=1),
            "mean": np.mean(_magnitude(x), axis=1),
            "cumsum": np.cumsum(_magnitude(x), axis=1),
        }
        return function(wide, axis=1), scale.get(name)


def _reduced_integers(name: str, x: np.ndarray, result: np.dtype) -> tuple[np.ndarray, np.ndarray | None]:
    if name in ("mean", "var", "std"):
        reduced = _reduced(name, x.astype(np.float64))
        assert reduced is not None
        return reduced[0], None
    if name in ("sum", "prod", *SCANS):
        return _wrapped(
            getattr(np, name)(widened(x.astype(np.int64) if x.dtype == np.bool_ else x), axis=1), result
        ), None
    return getattr(np, name)(x.astype(np.int64) if x.dtype.itemsize == 1 else x, axis=1).astype(result), None


def products(values: Values, n: int, devices: int) -> Iterator[Case]:
    """Products whose contracting axis has n elements, and convolutions of n with a window of 5."""
    name = values.dtype.name
    lhs, rhs = values.factors(n)
    reference, scale = _product(lhs, rhs, np.matmul)
    yield Case("matmul", name, "matmul", (lhs, rhs), (reference,), (scale,), {}, (), devices)
    how = {"subscripts": "ij,jk->ik"}
    yield Case("einsum", name, "einsum", (lhs, rhs), (reference,), (scale,), how, (), devices)
    if devices > 1:
        how = {"axis_name": "x"}
        yield Case("collective_matmul", name, "collective_matmul", (lhs, rhs), (reference,), (scale,), how, (), devices)
    x, window = values.spread(n), values.normal(5)
    reference, scale = _product(x, window, np.convolve)
    near: tuple[np.ndarray, ...] = ()
    if points.is_inexact(x.dtype):
        padded = np.concatenate([np.zeros(4, x.dtype), x, np.zeros(4, x.dtype)])
        near = tuple(padded[i : i + n + 4] for i in range(5))
    yield Case("convolve", name, "convolve", (x, window), (reference,), (scale,), {}, near, devices)


def _product(lhs: np.ndarray, rhs: np.ndarray, function: Callable[..., Any]) -> tuple[np.ndarray, np.ndarray]:
    sizes = function(_magnitude(lhs), _magnitude(rhs))
    if lhs.dtype == np.bool_:
        return np.asarray(sizes > 0), sizes
    return _wrapped(np.asarray(function(widened(lhs), widened(rhs))), lhs.dtype), sizes


def _wrapped(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return wrapped(values, dtype) if values.dtype == object else values


def moves(values: Values, n: int, devices: int) -> Iterator[Case]:
    """Cases that only move elements, of all bit patterns, compared as bits."""
    name, x = values.dtype.name, values.bits(2 * n).reshape(n, 2)
    for kernel, parameters, expected in (
        ("copy", {}, x),
        ("reshard", {}, x),
        ("transpose", {}, x.T),
        ("roll", {"shift": 5, "axis": 0}, np.roll(x, 5, 0)),
        ("shift", {"shift": 3, "axis": 0, "mode": "periodic"}, np.roll(x, 3, 0)),
        ("reshape", {"shape": -1}, x.ravel()),
        ("expand_dims", {"axis": 0}, x[None]),
        ("squeeze", {"axis": ()}, x),
        ("broadcast_to", {"shape": (2, n, 2)}, np.broadcast_to(x, (2, n, 2))),
        ("flip", {}, x[::-1, ::-1]),
        ("concatenate", {}, x),
        ("stack", {}, x[None]),
        ("astype", {"dtype": name}, x),
        ("tile", {"reps": 2}, np.tile(x, 2)),
        ("repeat", {"repeats": 2, "axis": 0}, np.repeat(x, 2, 0)),
        ("tril", {}, np.tril(x)),
        ("triu", {}, np.triu(x)),
        ("diagonal", {}, np.diagonal(x)),
        ("pad", {"pad_width": 1}, np.pad(x, 1)),
    ):
        yield Case(kernel, name, kernel, (x,), (np.ascontiguousarray(expected),), (None,), parameters, (), devices)
    starts, sliced = np.array([n // 2, 0]), np.ascontiguousarray(x[n // 2 :])
    how = {"sizes": sliced.shape, "steps": (1, 1)}
    yield Case("getitem", name, "getitem", (x, starts), (sliced,), (None,), how, (), devices)
    yield from _sorts(values.normal(n, 2), devices)
    if points.is_inexact(x.dtype):
        square = values.normal(n, 2)
        ends = widened(np.diagonal(square))
        yield Case("trace", name, "trace", (square,), (ends.sum(),), (abs(ends).sum(),), {}, (), devices)


def _sorts(x: np.ndarray, devices: int) -> Iterator[Case]:
    name, indices = x.dtype.name, np.argsort(x, axis=0, stable=True)
    ordered = indices
    if points.is_inexact(x.dtype) and x.dtype.kind != "c":
        ordered = np.lexsort((~np.signbit(x), x.astype(float)), axis=0)  # -0.0 before 0.0
    for kernel, operands, expected in (
        ("sort", (x,), np.take_along_axis(x, ordered, 0)),
        ("argsort", (x,), indices),
        ("take", (x, indices), np.take(x, indices, 0)),
        ("take_along_axis", (x, indices), np.take_along_axis(x, indices, 0)),
    ):
        yield Case(kernel, name, kernel, operands, (expected,), (None,), {"axis": 0}, (), devices)
    among = x[indices[:, 0], 0]
    wide = among.astype(complex if x.dtype.kind == "c" else float)
    positions = np.searchsorted(wide, x.astype(wide.dtype))
    yield Case("searchsorted", name, "searchsorted", (among, x), (positions,), (None,), {}, (), devices)


def counts(values: Values, n: int, devices: int) -> Iterator[Case]:
    """Counts of integers, and values of a function that is linear between points."""
    name, x = values.dtype.name, values.normal(n)
    if x.dtype.kind in "biu":
        x = abs(x)
        how = {"length": 8}
        expected = np.bincount(x.astype(np.int64), minlength=8)[:8]
        yield Case("bincount", name, "bincount", (x,), (expected,), (None,), how, (), devices)
    if x.dtype.kind != "f":
        return
    xp, fp = np.linspace(-2, 2, 65), np.cos(np.arange(65.0))
    wide = x.astype(np.longdouble)
    before = np.clip(np.searchsorted(xp, x, "right") - 1, 0, 63)
    low, high = fp[before].astype(np.longdouble), fp[before + 1]
    step = (high - low) * (wide - xp[before]) / (xp[before + 1].astype(np.longdouble) - xp[before])
    reference = np.where(wide < xp[0], fp[0], np.where(wide >= xp[-1], fp[-1], low + step))
    scale = np.maximum(abs(low), abs(high))
    yield Case("interp", name, "interp", (x, xp, fp), (reference,), (scale,), {}, (), devices)


def transforms(values: Values, n: int, devices: int) -> Iterator[Case]:
    """Fourier transforms; errors are in units of the root of the sum of squares."""
    name, x = values.dtype.name, values.normal(n)
    if x.dtype.kind not in "fc":
        return
    wide = widened(x)
    norm = np.sqrt(np.sum(_magnitude(x) ** 2))
    for kernel in ("fft", "ifft", "rfft", "irfft"):
        if kernel == "rfft" and x.dtype.kind == "c":
            continue
        if kernel == "irfft" and n == 1:
            continue
        reference = getattr(np.fft, kernel)(wide)
        scale = np.full(reference.shape, norm / (len(reference) if kernel[0] == "i" else 1))
        yield Case(kernel, name, kernel, (x,), (reference,), (scale,), {}, (), devices)


def physics(values: Values, n: int, devices: int) -> Iterator[Case]:
    """The error function, and the logarithm of the gamma function, of real numbers of any type."""
    if values.dtype.kind == "c":
        return
    for kernel in ("erf", "gammaln"):
        (pool,) = points.operands(kernel, [values.dtype])
        x = pool[points.positions(len(pool), n)]
        reference, scale = references.of_physics(kernel, x)
        terms = scale if kernel == "gammaln" else None
        yield Case(kernel, values.dtype.name, kernel, (x,), (reference,), (terms,), elements=(x,), devices=devices)


def parts_of_floats(values: Values, n: int, devices: int) -> Iterator[Case]:
    """Mantissas and exponents of numbers, and numbers times powers of 2."""
    dtype, powers = values.dtype, np.random.default_rng(n).integers(-2200, 2200, n).astype(np.int32)
    for kernel, others in (("frexp", ()), ("ldexp", (powers,))):
        (pool,) = points.operands(kernel, [dtype])
        x = pool[points.positions(len(pool), n)]
        try:
            result, *_ = FUNCTIONS[kernel].results([ArrayType((n,), item.dtype) for item in (x, *others)], {})
        except CallError:
            continue
        expected = getattr(np, kernel)(x.astype(result.dtype).astype(np.longdouble), *others)
        expected = expected if isinstance(expected, tuple) else (expected,)
        scales = (None,) * len(expected)
        yield Case(kernel, dtype.name, kernel, (x, *others), expected, scales, elements=(x,), devices=devices)


def matrices(values: Values, n: int, devices: int) -> Iterator[Case]:
    """Triangular equations, and eigenvalues and eigenvectors, of small matrices of n elements together.

    Errors of solutions are in units of the largest number of a solution, and others of the largest one of a matrix. The
    matrices that have eigenvalues are products of integers, so that these and the eigenvectors are known.
    """
    name, count = values.dtype.name, max(n // _SIDE**2, 1)
    if name not in ("float32", "float64", "complex64", "complex128"):
        return
    x = (np.triu(values.normal(count, _SIDE, _SIDE)) + 4 * np.eye(_SIDE)).astype(values.dtype)
    b = values.normal(count, _SIDE, 2)
    wide, solution = widened(x), np.zeros(b.shape, widened(b).dtype)
    for i in reversed(range(_SIDE)):
        rest = widened(b)[:, i] - np.sum(wide[:, i, i + 1 :, None] * solution[:, i + 1 :], axis=1)
        solution[:, i] = rest / wide[:, i, i, None]
    scale = np.broadcast_to(np.max(abs(solution), (1, 2), keepdims=True), b.shape)
    kernel = "solve_triangular"
    yield Case(kernel, name, kernel, (x, b), (solution,), (scale,), devices=devices)
    x, numbers, vectors = _with_eigenvalues(values, count)
    largest = np.max(abs(x), (1, 2)).astype(np.longdouble)[:, None]

    def aligned(results: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """In the order of the known eigenvalues, with vectors turned to the known ones."""
        at = np.argmin(abs(results[0][:, None, :] - numbers[:, :, None]), -1)
        ordered = np.take_along_axis(results[0], at, -1)
        if len(results) == 1:
            return (ordered,)
        turned = np.take_along_axis(results[1], at[:, None, :], -1).astype(np.clongdouble)
        along = np.sum(turned.conj() * vectors, 1, keepdims=True)
        return ordered, (turned * along / abs(along)).astype(ordered.dtype)

    both = (np.broadcast_to(largest, numbers.shape), np.broadcast_to(largest[..., None], vectors.shape))
    for kernel, expected in (("eigvals", (numbers,)), ("eig", (numbers, vectors))):
        scales = both[: len(expected)]
        yield Case(kernel, name, kernel, (x,), expected, scales, devices=devices, aligned=aligned)


def _with_eigenvalues(values: Values, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrices of integers, their eigenvalues, and the eigenvectors of length 1."""
    random, is_complex = np.random.default_rng(count), values.dtype.kind == "c"

    def integers(low: int, high: int, *shape: int) -> np.ndarray:
        parts = random.integers(low, high, (2, count, *shape))
        return parts[0] + 1j * parts[1] if is_complex else parts[0].astype(float)

    lower, upper = (np.tril(integers(-1, 2, _SIDE, _SIDE), -1) + np.eye(_SIDE) for _ in range(2))
    basis = lower @ upper.swapaxes(1, 2)
    inverse = np.rint(np.linalg.inv(basis).view(float)).view(basis.dtype)
    numbers = random.permuted(np.broadcast_to(np.arange(-_SIDE, _SIDE), (count, 2 * _SIDE)), axis=1)[:, :_SIDE]
    numbers = numbers + (integers(-3, 4, _SIDE).imag * 1j if is_complex else 0)
    x = basis * numbers[:, None, :] @ inverse
    wide = basis.astype(np.clongdouble)
    return x.astype(values.dtype), numbers.astype(np.clongdouble), wide / np.sqrt(np.sum(abs(wide) ** 2, 1))[:, None]


_FAMILIES = (differences, sums, products, moves, counts, transforms, physics, parts_of_floats, matrices)


def cases(dtype: np.dtype, sizes: Sequence[int], devices: int = 1) -> Iterator[Case]:
    """The cases of all these kernels for one element type: one a size, and one over several devices."""
    several = [(_MAX, devices)] if devices > 1 else []
    for size, among in [*((size, 1) for size in sizes), *several]:
        values = Values(dtype)
        for family in _FAMILIES:
            yield from family(values, size, among)


ROWS_OF_BITS = (
    *("copy", "reshard", "transpose", "roll", "shift", "getitem", "reshape", "expand_dims", "squeeze", "broadcast_to"),
    *("flip", "concatenate", "stack", "astype", "tile", "repeat", "tril", "triu", "diagonal", "pad"),
    *("sort", "argsort", "take", "take_along_axis", "searchsorted"),
)
"""Rows whose results are compared as bits."""
