"""The methods of ufuncs, by the functions of a namespace: `reduce`, `accumulate`, `reduceat`, `outer` and `at`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from shardcall._src.device_arrays.change_targets import target_of
from shardcall._src.device_arrays.missing_attributes import unsupported
from shardcall_core.element_types import DType
from shardcall_core.functions.indexing import is_basic

REDUCTIONS: Mapping[str, str] = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
"""The function that reduces by each ufunc."""

ASSOCIATIVE = frozenset(
    (
        *("maximum", "minimum", "fmax", "fmin", "logical_and", "logical_or", "logical_xor", "bitwise_and"),
        *("bitwise_or", "bitwise_xor", "gcd", "lcm", "hypot", "logaddexp", "logaddexp2"),
    )
)
"""The ufuncs that combine numbers in any grouping, beside those of running sums and products; they commute, too."""

MAX_ROUNDS = 64
"""The number of segments, or of updates of one element, up to which a composition takes one step for each."""

_NEUTRAL: Mapping[str, float] = {
    **dict.fromkeys(("subtract", "left_shift", "right_shift"), 0),
    **dict.fromkeys(("divide", "floor_divide", "power", "float_power", "lcm"), 1),
}
"""The second operand that changes no number, of ufuncs without an identity."""

_UPDATES = {"add": "add", "subtract": "add", "multiply": "multiply", "maximum": "max", "minimum": "min"}
"""The update of elements, of which all are made of equal indices, by each ufunc; a difference adds the negative."""

_ABSENT: Any = object()


def reduce(
    functions: Any, ufunc: np.ufunc, x: Any, *, axis: Any = 0, dtype: Any = None, keepdims: bool = False,
    initial: Any = _ABSENT, where: Any = True,
) -> Any:  # fmt: skip
    """Returns an array reduced by a ufunc, as ``numpy.ufunc.reduce``.

    Raises:
        TypeError: for a ufunc that does not reduce the element type.
        ValueError: as NumPy's, for axes that it does not reduce at once and arrays without elements.
    """
    how: dict[str, Any] = {} if initial is _ABSENT else {"initial": initial}
    if where is not True:
        how["where"] = where
    name = ufunc.__name__
    if name in REDUCTIONS:
        if dtype is not None and name in ("add", "multiply"):
            how["dtype"] = dtype
        elif dtype is not None:
            x = _typed(functions, x, _result_type(ufunc.reduce, x, dtype=dtype))
        if how.get("initial", _ABSENT) is None:
            del how["initial"]
            check_elements(f"{name}.reduce", np.shape(x), axis)
        first = how.pop("initial", None) if name.startswith("logical") else None
        output = getattr(functions, REDUCTIONS[name])(x, axis, keepdims=keepdims, **how)
        return output if first is None else getattr(functions, name)(first, output)
    present = {**how, **({"initial": 1} if "initial" in how and initial is not None else {})}
    result = _result_type(ufunc.reduce, x, axis=axis, dtype=dtype, **({**present, "where": np.True_} if how else {}))
    shape = np.shape(x)
    axes = normalize_axis_tuple(range(len(shape)) if axis is None else axis, len(shape)) if shape else ()
    if name in ("fmax", "fmin"):
        extreme = functions.nanmax if name == "fmax" else functions.nanmin
        return extreme(_typed(functions, x, result), axes, keepdims=keepdims, **how)
    x, _ = _typed(functions, x, result), _function_of(functions, ufunc, "reduce")
    if where is not True:
        _check_mask(where, shape)
    reduced = _reduced(functions, ufunc, x, axes, initial if initial is not None else _ABSENT, where)
    output = reduced if keepdims or not axes else functions.squeeze(reduced, axes)
    return output if output.dtype == result else output.astype(result)


def check_elements(name: str, shape: tuple[int, ...], axis: Any) -> None:
    """Checks that every axis that is reduced with ``initial=None`` has elements.

    Raises:
        ValueError: if one has none.
    """
    axes = range(len(shape)) if axis is None else normalize_axis_tuple(axis, len(shape))
    if any(not shape[i] for i in axes):
        raise ValueError(f"{name} got no elements and initial=None; give an initial value")


def accumulate(functions: Any, ufunc: np.ufunc, x: Any, *, axis: Any = 0, dtype: Any = None) -> Any:
    """Returns the results of a ufunc for all leading parts of an axis, as ``numpy.ufunc.accumulate``.

    Raises:
        TypeError: for an array without axes, and a ufunc that does not reduce the element type.
        ValueError: for several axes.
    """
    result = _result_type(ufunc.accumulate, x, axis=axis, dtype=dtype)
    (along,) = normalize_axis_tuple(0 if axis is None else axis, np.ndim(x))
    name, x = ufunc.__name__, _typed(functions, x, result)
    run, count = _function_of(functions, ufunc, "accumulate"), x.shape[along]
    if name in ("add", "multiply"):
        return (functions.cumsum if name == "add" else functions.cumprod)(x, along, result)
    if count < 2:
        return functions.copy(x)
    if name == "subtract":
        rest = functions.negative(_part(x, along, 1, count))
        return functions.cumsum(functions.concatenate([_part(x, along, 0, 1), rest], along), along, result)
    if name in ASSOCIATIVE:
        step = 1
        while step < count:
            joined = run(_part(x, along, 0, count - step), _part(x, along, step, count))
            x = functions.concatenate([_part(x, along, 0, step), joined], along)
            step *= 2
        return x
    rows = functions.moveaxis(x, along, 0)

    def body(carry: Any, row: Any) -> tuple[Any, Any]:
        carry = run(carry, row)
        return carry, carry

    _, others = functions.scan(body, rows[0], rows[1:])
    return functions.moveaxis(functions.concatenate([rows[:1], others], 0), 0, along)


def reduceat(functions: Any, ufunc: np.ufunc, x: Any, indices: Any, *, axis: Any = 0, dtype: Any = None) -> Any:
    """Returns parts of an axis reduced by a ufunc, as ``numpy.ufunc.reduceat``; indices on the mesh are copied.

    Raises:
        IndexError: for indices that there are not.
        TypeError: for an array without axes, a ufunc that does not reduce the element type, more than `MAX_ROUNDS`
            parts of a ufunc that has no update of elements, and indices on the mesh where the client refuses implicit
            copies.
        ValueError: for several axes, and indices of several axes.
    """
    starts = np.asarray(_in_this_process(indices))
    starts = starts if isinstance(indices, np.ndarray) or is_remote(indices) else starts.astype(np.int64)
    along = axis[0] if isinstance(axis, tuple) and len(axis) == 1 else axis
    sizes = [size if along is not None and i == along % max(np.ndim(x), 1) else min(size, 1) for i, size in
             enumerate(np.shape(x))]  # fmt: skip
    example = np.broadcast_to(np.ones((), _dtype(x)), sizes)
    result = ufunc.reduceat(example, starts, axis=axis, dtype=dtype).dtype
    along = 0 if along is None else along % np.ndim(x)
    _function_of(functions, ufunc, "reduceat")
    name, x, starts = ufunc.__name__, _typed(functions, x, result), starts.astype(np.int64)
    ends = np.append(starts[1:], x.shape[along])
    lengths = np.maximum(ends - starts - 1, 0)  # of the rest of each part; none of one that would be empty or reversed
    first = functions.take(x, starts, axis=along)
    if not lengths.sum():
        return first
    rows = np.concatenate([np.arange(start + 1, start + 1 + n) for start, n in zip(starts, lengths, strict=True)])
    parts = np.repeat(np.arange(len(starts)), lengths)
    mode = _UPDATES.get(name)
    if result.kind == "b" and name in ("logical_and", "logical_or", "bitwise_and", "bitwise_or"):
        mode = "min" if name.endswith("and") else "max"
        numbers = reduceat(functions, np.minimum if mode == "min" else np.maximum, x.astype(np.uint8), starts,
                           axis=along)  # fmt: skip
        return numbers.astype(result)
    if mode is not None and not (mode in ("min", "max") and result.kind == "c"):
        rest = functions.take(x, rows, axis=along)
        if name == "subtract":
            rest = functions.subtract(np.zeros((), result), rest)
        return functions.update(first, (*(slice(None),) * along, parts), rest, mode)
    if len(starts) > MAX_ROUNDS:
        raise TypeError(
            f"numpy.{name}.reduceat of {len(starts)} parts does not run on the mesh; give {MAX_ROUNDS} or fewer, or "
            "reduce array.get() in this process"
        )
    pieces = []
    for start, count in zip(starts.tolist(), lengths.tolist(), strict=True):
        piece = _part(x, along, start, start + 1 + count)
        reduced = reduce(functions, ufunc, piece, axis=along, dtype=result, keepdims=True) if count else piece
        pieces.append(reduced)
    return functions.concatenate(pieces, along)


def outer_operands(ufunc: np.ufunc, a: Any, b: Any) -> tuple[Any, Any]:
    """Returns the operands of a ufunc whose results are ``ufunc.outer(a, b)``, for all pairs of elements.

    Raises:
        ValueError: for a ufunc that does not take two operands.
        RuntimeError: for a ufunc of matrices or vectors.
    """
    if ufunc.nin != len((a, b)) or ufunc.signature is not None:
        ufunc.outer(np.ones(1), np.ones(1))  # raises NumPy's error
    a, b = (x if is_remote(x) else np.asarray(x) for x in (a, b))
    return a.reshape((*a.shape, *(1,) * b.ndim)), b


def at(functions: Any, ufunc: np.ufunc, a: Any, indices: Any, *others: Any) -> None:
    """Updates elements by a ufunc, of equal indices one time for each, as ``numpy.ufunc.at``.

    Indices on the mesh are copied for a ufunc that has no update of elements.

    Raises:
        TypeError: for what is no array, a view, an element that is updated more than `MAX_ROUNDS` times by a ufunc
            that has no update of elements, and a copy of indices where the client refuses implicit copies.
        IndexError: for indices that there are not.
        ValueError: for operands that do not broadcast to the elements.
    """
    if not is_remote(a):
        return ufunc.at(a, _in_this_process(indices), *map(_in_this_process, others))
    target = target_of(a, f"numpy.{ufunc.__name__}.at")
    with target._writing():
        _update_at(functions, ufunc, target, indices, others)
    return None


def _update_at(functions: Any, ufunc: np.ufunc, target: Any, indices: Any, others: Sequence[Any]) -> None:
    x, name = target, ufunc.__name__
    others = tuple(operand if is_remote(operand) else np.asarray(operand) for operand in others)
    ufunc.at(np.ones(1, x.dtype), [0], *(np.ones(1, operand.dtype) for operand in others))  # raises NumPy's errors
    types = x.dtype, *(operand.dtype for operand in others)
    result = ufunc.resolve_dtypes((*types, None))[-1]
    alike = result.kind == x.dtype.kind or {result.kind, x.dtype.kind} <= {"i", "u"}
    if name in _UPDATES and alike and (result.kind != "c" or "m" not in _UPDATES[name][0]):
        output, (value,) = x if x.dtype == result else x.astype(result), others
        value = value if value.dtype == result else value.astype(result)
        if name == "subtract":
            value = functions.subtract(np.zeros((), result), value) if is_remote(value) else np.negative(value)
        output = functions.update(output, indices, value, _UPDATES[name])
        target._assign(output if output.dtype == target.dtype else output.astype(target.dtype))
        return
    run = _function_of(functions, ufunc, "at")
    for key, operands in _rounds(ufunc, x, indices, others):
        x = functions.setitem(x, key, run(functions.getitem(x, key), *operands))
    target._assign(x)


def type_for(ufunc: np.ufunc, x: Any, out: Any) -> DType:
    """Returns the element type in which a method of a ufunc computes for a target."""
    return ufunc.resolve_dtypes((out.dtype, _dtype(x), None), reduction=True, casting="unsafe")[0]


def is_remote(item: Any) -> bool:
    """Returns whether a value stands for an array on the mesh."""
    return hasattr(type(item), "__remote_array__")


def _reduced(functions: Any, ufunc: np.ufunc, x: Any, axes: Sequence[int], initial: Any, where: Any) -> Any:
    """Returns an array in the type of the result, reduced along axes, each of which keeps one element."""
    name, dtype = ufunc.__name__, x.dtype
    neutral = _NEUTRAL.get(name, ufunc.identity)
    if neutral is not None:
        neutral = np.asarray(neutral).astype(dtype)
        if where is not True:
            x, where = functions.where(where, x, neutral), True
    if name in ASSOCIATIVE:
        run = getattr(functions, name)
        for axis in axes:
            x = _halved(functions, run, x, axis, neutral)
        if initial is _ABSENT and name in ("gcd", "hypot"):
            return run(neutral, x)  # NumPy begins with the identity, which takes the sign of an only number
        return x if initial is _ABSENT else run(np.asarray(initial).astype(dtype), x)
    if not axes:
        return functions.copy(x) if initial is _ABSENT else getattr(functions, name)(initial, x)
    (axis,), count = axes, x.shape[axes[0]]
    has_initial = initial is not _ABSENT
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    first = np.broadcast_to(np.asarray(initial).astype(dtype), shape) if has_initial else _part(x, axis, 0, 1)
    rest = x if has_initial else _part(x, axis, 1, count)
    if not rest.shape[axis]:
        return functions.copy(first)
    if name == "subtract":
        return functions.sum(functions.concatenate([first, functions.negative(rest)], axis), axis, dtype, keepdims=True)
    rows = functions.moveaxis(rest, axis, 0)
    masks = [] if where is True else [functions.moveaxis(functions.broadcast_to(where, x.shape), axis, 0)]
    run = getattr(functions, name)

    def body(carry: Any, row: Any) -> tuple[Any, Any]:
        output = run(carry, row[0])
        return (functions.where(row[1], output, carry) if masks else output), ()

    carry = functions.squeeze(first, axis) if is_remote(first) else np.ascontiguousarray(first.squeeze(axis))
    return functions.expand_dims(functions.scan(body, carry, [rows, *masks])[0], axis)


def _halved(functions: Any, run: Callable[..., Any], x: Any, axis: int, neutral: Any) -> Any:
    """Returns an array reduced along an axis by an associative function, half with half."""
    if not x.shape[axis]:
        return functions.broadcast_to(neutral, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    while (count := x.shape[axis]) > 1:
        half = count // 2
        output = run(_part(x, axis, 0, half), _part(x, axis, half, 2 * half))
        x = output if count == 2 * half else functions.concatenate([output, _part(x, axis, 2 * half, count)], axis)
    return x


def _rounds(ufunc: np.ufunc, x: Any, indices: Any, others: Sequence[Any]) -> list[tuple[Any, list[Any]]]:
    """Returns keys none of which has an element twice, and the other operands for each, in the order of updates."""
    items = indices if isinstance(indices, tuple) else (indices,)
    if all(map(is_basic, items)):
        return [(indices, [*others])]
    items = tuple(map(_in_this_process, items))
    items = tuple(item if is_basic(item) else np.asarray(item) for item in items)
    arrays = [np.empty(0, np.int64) if not is_basic(i) and i.dtype.kind == "f" and not i.size else i for i in items]
    if any(np.asarray(item).dtype.kind not in "iu" for item in arrays):
        _check_without_equal(ufunc, items)
        return [(items, [*others])]
    items = tuple(arrays)
    keys = [np.ravel(operand) for operand in np.broadcast_arrays(*arrays)]
    shape = np.broadcast_shapes(*map(np.shape, arrays))
    counted = [key % max(size, 1) for key, size in zip(keys, x.shape, strict=False)]
    occurrence = _occurrences(np.ravel_multi_index(counted, x.shape[: len(keys)], mode="wrap")) if keys[0].size else []
    last = max(occurrence, default=0)
    if last >= MAX_ROUNDS:
        raise _equal_indices(ufunc)
    if not last:
        return [(items, [*others])]
    rows = x.shape[len(keys) :]
    wide = [
        operand.reshape((1,) * (len(shape) + len(rows) - operand.ndim) + operand.shape) if operand.ndim else operand
        for operand in others
    ]
    flat = [_broadcast(operand, (*shape, *rows)).reshape((len(keys[0]), *rows)) for operand in wide]
    chosen = [np.flatnonzero(np.equal(occurrence, i)) for i in range(last + 1)]
    return [(tuple(key[part] for key in keys), [operand[part] for operand in flat]) for part in chosen]


def _broadcast(x: Any, shape: tuple[int, ...]) -> Any:
    return x._functions.broadcast_to(x, shape) if is_remote(x) else np.broadcast_to(x, shape)


def _occurrences(ids: np.ndarray) -> Sequence[int]:
    """Returns how many equal numbers are before each of some."""
    by_id = np.argsort(ids, kind="stable")
    sorted_ids = ids[by_id]
    is_first = np.append(True, sorted_ids[1:] != sorted_ids[:-1])
    starts = np.flatnonzero(is_first)
    output = np.empty(len(ids), np.int64)
    output[by_id] = np.arange(len(ids)) - starts[np.cumsum(is_first) - 1]
    return output.tolist()


def _check_without_equal(ufunc: np.ufunc, items: Sequence[Any]) -> None:
    """Checks that the arrays of an index, beside slices or masks, name no element twice.

    Raises:
        TypeError: if they do.
    """
    arrays = [item for item in items if not is_basic(item)]
    if any(array.dtype.kind == "b" for array in arrays) and len(arrays) == 1:
        return
    numbers = [part for array in arrays for part in (np.nonzero(array) if array.dtype.kind == "b" else (array,))]
    stacked = np.stack([np.ravel(operand) for operand in np.broadcast_arrays(*numbers)])
    # A negative index may be equal to another one, which is not known without the axes.
    if (stacked < 0).any() or np.unique(stacked, axis=1).shape[1] < stacked.shape[1]:
        raise _equal_indices(ufunc)


def _equal_indices(ufunc: np.ufunc) -> TypeError:
    return TypeError(
        f"numpy.{ufunc.__name__}.at with equal indices, beside slices or more than {MAX_ROUNDS} times, does not run on "
        "the mesh; add, subtract, multiply, maximum and minimum do, and array[key] = values without equal indices"
    )


def _function_of(functions: Any, ufunc: np.ufunc, method: str) -> Callable[..., Any]:
    if ufunc.__name__ not in functions.function_names:
        raise unsupported(f"numpy.{ufunc.__name__}.{method}")
    return getattr(functions, ufunc.__name__)  # type: ignore[no-any-return]


def _result_type(method: Callable[..., Any], x: Any, **how: Any) -> DType:
    """Returns the element type of a method's results, by the method itself for a small array of the type.

    Its size is 0 where that of the array is, else 1, so that it raises what NumPy raises.
    """
    example: DType = np.asarray(method(np.ones([min(size, 1) for size in np.shape(x)], _dtype(x)), **how)).dtype
    return example


def _dtype(x: Any) -> DType:
    dtype: DType = x.dtype if is_remote(x) else np.asarray(x).dtype
    return dtype


def _typed(functions: Any, x: Any, dtype: DType) -> Any:
    """Returns an array on the mesh in an element type."""
    x = x if is_remote(x) else functions.asarray(x)
    return x if x.dtype == dtype else x.astype(dtype)


def _in_this_process(value: Any) -> Any:
    """Returns a value, or the items of an index, copied from the mesh, which is counted as an implicit copy."""
    if isinstance(value, tuple):
        return tuple(map(_in_this_process, value))
    array = value.__remote_array__() if is_remote(value) else None
    return value if array is None else array.to_numpy()


def _check_mask(mask: Any, shape: tuple[int, ...]) -> None:
    if np.broadcast_shapes(np.shape(mask), shape) != shape:
        raise ValueError(f"where is of shape {np.shape(mask)}, which does not broadcast to {shape}")


def _part(x: Any, axis: int, start: int, end: int) -> Any:
    return x[(*(slice(None),) * normalize_axis_index(axis, x.ndim), slice(operator.index(start), operator.index(end)))]
