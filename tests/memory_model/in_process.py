"""A client whose kernels NumPy computes in this process: for programs whose memory is tested, thousands in seconds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from client_parts import version_of

import shardcall as sc
from shardcall._src.calls.call_request import CallOptions, CallRequest, prepare
from shardcall._src.device_arrays.array_version import ArrayVersion, ServerIdentity
from shardcall._src.device_arrays.operands import as_operand
from shardcall._src.device_arrays.remote_array import RemoteArray, find_remote_array
from shardcall._src.programs.pending_calls import PendingCalls
from shardcall._src.programs.templates import Templates, types_by_table
from shardcall._src.services.implicit_gets import ImplicitGets
from shardcall._src.traced.call_tracer import CallTracer
from shardcall_core.functions.indexing import BasicIndex
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.graphs.graph import Constant, Graph
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.types import parameters
from shardcall_core.types.arrays import Array


class ComputedResult:
    """A result that was computed when the call was submitted.

    Attributes:
        values: the values, read-only.
    """

    is_done = True
    is_failed = is_recorded = is_undoable = is_undone = False

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def begin(self) -> None:
        """Does nothing: there is no call to send."""


class FailedResult(ComputedResult):
    """A result of a call that failed by its values, which who reads it learns.

    Args:
        error: the error.
        readers: the errors that somebody has read, to which it is added.
    """

    is_failed = is_undoable = True

    def __init__(self, error: sc.ShardcallError, readers: list[sc.ShardcallError]) -> None:
        self._error = error
        self._readers = readers

    @property
    def is_undone(self) -> bool:  # type: ignore[override]
        """True if somebody has read the error."""
        return self._error in self._readers

    @property
    def values(self) -> np.ndarray:  # type: ignore[override]
        """Raises the error."""
        self._readers.append(self._error)
        raise self._error

    def depends(self) -> "FailedResult":
        """Returns the result of a call that takes this one."""
        return FailedResult(self._error, self._readers)

    def replaces(self, before: ArrayVersion) -> None:
        """Does nothing: the values stay."""


class InProcessSubmitter:
    """Computes calls where another submitter sends them."""

    pending = PendingCalls()

    def record(self, *_: Any) -> None:
        """Leaves a call to `submit`."""

    def flush(self) -> None:
        """Does nothing: no call is recorded."""

    def submit(
        self,
        client: sc.Client,
        name: str,
        operands: Sequence[Any],
        keywords: Mapping[str, Any],
        options: CallOptions,
        timeout: float | None,
    ) -> tuple[RemoteArray, ...]:
        """Computes a call; returns its results."""
        del timeout
        assert not any(options[:3])
        call = prepare(name, operands, keywords)
        return self.send(client, call, types_by_table(call) or ())

    def send(
        self, client: sc.Client, call: CallRequest, types: Sequence[Array], *args: Any, **options: Any
    ) -> tuple[RemoteArray, ...]:
        """Computes a call that was prepared, such as a program; returns its results."""
        del args, options
        for item in call.values:
            if isinstance(item, ArrayVersion) and isinstance(item.pending, FailedResult):
                return _arrays(client, types, item.pending)
        values = [None if item is None else values_of(item) for item in call.values]
        name = call.message.kernel
        try:
            return _arrays(client, evaluate(name, values, _parameters(call), types))
        except ValueError as error:
            if "negative integer powers" not in str(error):
                raise
            return _arrays(client, types, FailedResult(sc.InvalidOperandError(str(error)), []))


class InProcessClient(sc.Client):
    """A client without a server."""

    def __init__(self) -> None:
        self._templates = Templates()
        self._submitter = InProcessSubmitter()  # type: ignore[assignment]
        self._tracer = CallTracer(self._submitter, self._templates.messages)  # type: ignore[arg-type]
        self._implicit_gets = ImplicitGets("allow")
        self._kernels = frozenset(FUNCTIONS)

    @property
    def _here(self) -> ServerIdentity:
        return ServerIdentity("in this process", 0)

    def put(self, x: Any, /, **options: Any) -> RemoteArray:
        """Returns an array of this process as one on the mesh."""
        assert not options
        array = _arrays(self, [np.array(x, order="C")])[0]
        array._is_ndarray = True
        return array

    def get(self, array: Any, /, *, timeout: float | None = None) -> np.ndarray:
        """Copies the values."""
        del timeout
        values: np.ndarray = values_of(array).copy()
        return values

    def close(self) -> None:
        """Does nothing."""

    def _put_array(self, array: np.ndarray, mesh: Any, spec: Any) -> RemoteArray:
        if self._tracer.active.trace is not None:
            return self._tracer.constant(array, mesh, spec)
        return self.put(array)


def values_of(item: Any) -> np.ndarray:
    """Returns the values of an operand."""
    array = item if isinstance(item, ArrayVersion) else find_remote_array(item)
    if array is None:
        return as_operand(item, "an operand")
    version = array if isinstance(array, ArrayVersion) else version_of(array)
    result = version.pending
    if not isinstance(result, ComputedResult):
        version.settled()  # which refuses an array of a trace
    assert isinstance(result, ComputedResult)
    return result.values


def evaluate(
    name: str, operands: Sequence[np.ndarray | None], keywords: Mapping[str, Any], types: Sequence[Array | ArrayType]
) -> list[np.ndarray]:
    """Returns the results of a kernel as NumPy computes them."""
    if name == "graph":
        assert keywords.keys() == {"graph"}
        return _graph(keywords["graph"], operands)
    function = KERNELS.get(name) or getattr(np, name)
    with np.errstate(all="ignore"):
        returned = function(*operands, **keywords)
    results = [np.asarray(result) for result in (returned if isinstance(returned, tuple) else (returned,))]
    assert not types or [result.shape for result in results] == [item.shape for item in types], name
    return [result.astype(item.dtype) for result, item in zip(results, types, strict=True)] if types else results


def _graph(graph: Graph, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    results = list[list[np.ndarray]]()
    for node in graph.nodes:
        operands = [
            item.array if isinstance(item, Constant)
            else item and (inputs[item.number] if item.node < 0 else results[item.node][item.number])
            for item in node.operands
        ]  # fmt: skip
        types = [None if value is None else ArrayType(value.shape, value.dtype) for value in operands]
        while types and types[-1] is None:
            types.pop()
        keywords = dict(node.parameters)
        results.append(evaluate(node.kernel, operands, keywords, FUNCTIONS[node.kernel].results(types, keywords)))
    values = [inputs[v.number] if v.node < 0 else results[v.node][v.number] for v in graph.results]
    return [value for value in values if value is not None]


def _parameters(call: CallRequest) -> dict[str, Any]:
    return {name: parameters.from_proto(value) for name, value in call.message.parameters.items()}


def _arrays(
    client: sc.Client, results: Sequence[np.ndarray | Array], failed: FailedResult | None = None
) -> tuple[RemoteArray, ...]:
    """Returns results as arrays on the mesh; those of a failed call by their types."""
    arrays = []
    for result in results:
        if failed is None:
            values = np.array(result, order="C")
            values.flags.writeable = False
        pending: Any = ComputedResult(values) if failed is None else failed.depends()
        version = ArrayVersion(
            client, client._here, b"", Array(result.shape, result.dtype), pending=pending, committed=False
        )
        arrays.append(RemoteArray(version))
    return tuple(arrays)


def _key(starts: np.ndarray, x: np.ndarray, sizes: Any, steps: Any, dropped: Any, inserted: Any) -> tuple[Any, ...]:
    index = BasicIndex(tuple(map(int, starts)), sizes, steps, dropped, ())
    key = []
    for axis, (start, size, step) in enumerate(zip(index.starts, index.sizes, index.steps, strict=True)):
        assert not size or (0 <= start < x.shape[axis] and 0 <= start + (size - 1) * step < x.shape[axis])
        end = start + size * step
        key.append(start if axis in dropped else slice(start, end if end >= 0 else None, step))
    return tuple(key), tuple(inserted)


def _getitem(x: np.ndarray, starts: np.ndarray, sizes: Any, steps: Any, dropped: Any = (), inserted: Any = ()) -> Any:
    key, new = _key(starts, x, sizes, steps, dropped, inserted)
    return np.expand_dims(x[key], new)


def _setitem(
    x: np.ndarray, values: np.ndarray, starts: np.ndarray, sizes: Any, steps: Any, dropped: Any = (), inserted: Any = ()
) -> Any:
    key, new = _key(starts, x, sizes, steps, dropped, inserted)
    result = x.copy()
    part = np.expand_dims(result[(*key, ...)], new)
    part[...] = values
    return result


def _at_first(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    return np.moveaxis(x, axes, range(len(axes)))


def _checked(indices: Sequence[np.ndarray], x: np.ndarray, axes: Sequence[int]) -> list[np.ndarray]:
    for index, axis in zip(indices, axes, strict=True):
        if index.size and not (-x.shape[axis] <= index.min() and index.max() < x.shape[axis]):
            raise sc.IndexOutOfRangeError("an index is out of range")
    return list(indices)


def _take_at(x: np.ndarray, *indices: np.ndarray, axes: Any, position: int = 0) -> np.ndarray:
    taken = _at_first(x, axes)[tuple(_checked(indices, x, axes))]
    count = np.broadcast_arrays(*indices)[0].ndim
    return np.moveaxis(taken, range(count), range(position, position + count))


_UPDATES: Mapping[str, np.ufunc] = {
    "add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def _put_at(
    x: np.ndarray, values: np.ndarray, *indices: np.ndarray, axes: Any, position: int = 0, mode: str = "set"
) -> np.ndarray:
    result = x.copy()
    first = _at_first(result, axes)
    index = tuple(_checked(indices, x, axes))
    count = np.broadcast_arrays(*indices)[0].ndim
    shape = np.broadcast_shapes(*(item.shape for item in indices))
    others = [size for axis, size in enumerate(x.shape) if axis not in axes]
    values = np.broadcast_to(values, (*others[:position], *shape, *others[position:])).astype(x.dtype)
    values = np.moveaxis(values, range(position, position + count), range(count))
    if mode == "set":
        first[index] = values
    else:
        _UPDATES[mode].at(first, index, values)
    return result


def _diff(x: np.ndarray, before: Any = None, after: Any = None, **keywords: Any) -> np.ndarray:
    named = {"prepend": before, "append": after}
    return np.diff(x, **{key: value for key, value in named.items() if value is not None}, **keywords)


def _put_along_axis(x: np.ndarray, values: np.ndarray, indices: np.ndarray, axis: int = -1) -> np.ndarray:
    result = x.copy()
    np.put_along_axis(result, indices, values, axis)
    return result


def _flatnonzero(x: np.ndarray, size: int) -> np.ndarray:
    indices = np.flatnonzero(x)[:size]
    return np.concatenate([indices, np.zeros(size - len(indices), np.int64)])


def _pad(x: np.ndarray, *values: Any, pad_width: Any, mode: str = "constant") -> np.ndarray:
    widths = np.reshape(pad_width, (-1, 2)).tolist()
    return np.pad(x, widths, mode=mode, **({"constant_values": values[0]} if values else {}))  # type: ignore[call-overload]


def _reduction(name: str) -> Callable[..., Any]:
    def reduce(x: np.ndarray, *others: Any, **keywords: Any) -> Any:
        """Reduces an array, with the operands initial and where behind it if there are some."""
        names = [info.name for info in FUNCTIONS[name].operands[1:]]
        named = {key: value for key, value in zip(names, others, strict=False) if value is not None}
        if name in ("max", "min") and named.keys() == {"where"}:
            named["initial"] = getattr(x[np.broadcast_to(named["where"], x.shape)], name)()
        return getattr(np, name)(x, **keywords, **named)

    return reduce


KERNELS: Mapping[str, Callable[..., Any]] = {
    "getitem": _getitem,
    "setitem": _setitem,
    "take_at": _take_at,
    "put_at": _put_at,
    "put_along_axis": _put_along_axis,
    "flatnonzero": _flatnonzero,
    "pad": _pad,
    "diff": _diff,
    "astype": lambda x, dtype: x.astype(dtype),
    "reshard": lambda x: x,
    "copy": np.copy,
    "real": np.real,
    "complex": lambda x, y: x + 1j * y,
    "full": lambda fill_value, shape: np.full(shape, fill_value),
    "eye": lambda k, shape, dtype="float64": np.eye(*shape, int(k), dtype),
    "arange": lambda start, step, size: start + step * np.arange(size),
    "concatenate": lambda *x, axis=0: np.concatenate(x, axis),
    "stack": lambda *x, axis=0: np.stack(x, axis),
    "matmul": lambda x, y, **_: np.matmul(x, y),
    "einsum": lambda *x, subscripts, **_: np.einsum(subscripts, *(item for item in x if item is not None)),
    "bincount": lambda x, *w, length: np.bincount(x, *w, minlength=length)[:length],
    "clip": lambda x, low=None, high=None: np.clip(x, low, high),
    **{name: _reduction(name) for name in ("sum", "prod", "max", "min", "any", "all", "mean")},
}
"""The kernels that are no functions of NumPy, or have other arguments; all others are NumPy's of the same name."""
