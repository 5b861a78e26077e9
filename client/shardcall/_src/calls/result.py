"""The result of a call: its arrays, plan and timing, and how it is shown."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from xml.etree.ElementTree import Element

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays import plan
from shardcall._src.device_arrays.array_operators import AUGMENTED, ArrayOperators
from shardcall._src.device_arrays.plan import Plan
from shardcall._src.device_arrays.remote_array import RemoteArray, find_remote_array
from shardcall._src.display.drawing import Drawing
from shardcall._src.transfer.download import Answer, ResidentResult, broken
from shardcall.v1 import kernel_pb2, mesh_pb2
from shardcall_core.element_types import DType
from shardcall_core.markup import page
from shardcall_core.placements.placement import MeshPlacement, placement_from_proto
from shardcall_core.types import arrays, mesh, timing
from shardcall_core.types.arrays import HasType, NDArray
from shardcall_core.types.errors import InvalidOperandError
from shardcall_core.types.timing import Timing
from shardcall_core.types.tracebacks import shortened

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Item_co = TypeVarWithDefault("Item_co", bound=HasType, covariant=True, default=Any)  # until Python 3.13
else:
    Item_co = TypeVar("Item_co", covariant=True)
"""The class of a call's results: NumPy's, a `RemoteArray` with ``keep=True``, an `aio.AsyncRemoteArray` of `aio`."""

_SHOWN = ("strategy", "transfers", "collectives", "program", "miss")
_MAX_SHOWN_AXES = 3  # of arrays whose values are shown; of more axes there would be too many corners
_MAX_VALUES = 24
_VALUES_WIDTH = 100


class _NumPyOfResults:
    """NumPy's functions, of the arrays of results."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(np, name)

        @shortened
        def run(*operands: Any, **options: Any) -> Any:
            return function(*map(_array_of, operands), **options)

        return run


_NUMPY = _NumPyOfResults()


def _array_of(value: Any) -> Any:
    """Returns a value with the arrays of results in place of results."""
    if isinstance(value, list | tuple) and any(isinstance(item, Result) for item in value):
        return type(value)(map(_array_of, value))
    return value.array if isinstance(value, Result) else value


@dataclass(frozen=True, repr=False, eq=False)
@shortened
class Result(ArrayOperators, Generic[Item_co]):
    """The result of a call: ``.array`` is its array; ``numpy.asarray(result)`` works too.

    The result of a call with one array has the operators, methods and attributes of that array.

    Attributes:
        arrays: the results: writeable arrays that own their memory, or a `RemoteArray` each with ``keep=True``.
        timing: the seconds of each phase of the call.
        cache_hit: True if the program was in the server's cache.
        explanation: after a miss, the parts of the key that differ from the most similar key in the cache.
        from_disk: after a miss, True if the compiled program was loaded from the server's disk.
        known_answers_pending: True if the call came before a known-answer test of a kernel in it had run.
    """

    arrays: tuple[Item_co, ...]
    timing: Timing
    cache_hit: bool
    explanation: str
    # Serialized: the message would keep the complete answer, with the arrays' bytes, in memory.
    _plan: bytes
    from_disk: bool = False
    known_answers_pending: bool = False

    @cached_property
    def plan(self) -> Plan:
        """The plan of the call; parsed at first use, which is most of the work of a small call."""
        outcome = kernel_pb2.CACHE_OUTCOME_HIT if self.cache_hit else kernel_pb2.CACHE_OUTCOME_MISS
        cache = kernel_pb2.CacheAnswer(
            outcome=outcome,
            explanation=self.explanation,
            from_disk=self.from_disk,
            known_answers_pending=self.known_answers_pending,
        )
        return plan.from_proto(kernel_pb2.Plan.FromString(self._plan), cache)

    @property
    def array(self) -> Item_co:
        """The only result: a NumPy array, or a `RemoteArray` with ``keep=True``.

        Raises:
            InvalidOperandError: if there is not exactly one.
        """
        if len(self.arrays) != 1:
            raise InvalidOperandError(f"the call has {len(self.arrays)} results; use .arrays", field="array")
        return self.arrays[0]

    @property
    def _single(self) -> Any:
        return self.array

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis of the only result."""
        return self._single.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> DType:
        """The element type of the only result."""
        return self._single.dtype  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        """The number of axes of the only result."""
        return self._single.ndim  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        """The number of elements of the only result."""
        return self._single.size  # type: ignore[no-any-return]

    def get(self) -> NDArray:
        """Returns the values of the only result, which are copied from the mesh if it stays there."""
        array = self._single
        return array if find_remote_array(array) is None else array.get()  # type: ignore[no-any-return]

    def __getitem__(self, key: Any) -> Any:
        return self._single[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._single[key] = _array_of(value)

    def __len__(self) -> int:
        return len(self._single)

    def __contains__(self, value: object) -> bool:
        return value in self._single

    def __remote_array__(self) -> RemoteArray | None:
        return find_remote_array(self.arrays[0]) if len(self.arrays) == 1 else None

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """Returns the namespace of the only result: NumPy, or that of the client of an array on the mesh."""
        return self._single.__array_namespace__(api_version=api_version)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, /, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*map(_array_of, inputs), **{name: _array_of(v) for name, v in kwargs.items()})

    def __array_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        return func(*map(_array_of, args), **{name: _array_of(value) for name, value in kwargs.items()})

    @property
    def _functions(self) -> Any:
        return _NUMPY

    def __iter__(self) -> Iterator[Item_co]:
        """Yields the results: ``by_row, by_column = client.gradient(x)``."""
        return iter(self.arrays)

    def flatten(self, order: str = "C") -> Any:
        """Returns the elements of the only result in one axis, as a copy."""
        return self._single.flatten(order)

    def item(self, *args: Any) -> Any:
        """Returns an element of the only result as a Python number, as ``numpy.ndarray.item``."""
        return self._single.item(*args)

    @property
    def device(self) -> Any:
        """The device of the only result: ``"cpu"``, or the mesh of an array that stays there."""
        return self._single.device

    def to_device(self, device: Any, /, *, stream: None = None) -> Any:
        """Returns the only result on another device, as its own method does."""
        return self._single.to_device(device, stream=stream)

    def __dlpack__(self, **options: Any) -> Any:
        return self._single.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._single.__dlpack_device__()  # type: ignore[no-any-return]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> NDArray:
        return np.array(self._single, dtype=dtype, copy=copy)

    def _repr_html_(self) -> str:
        """Returns a display for a notebook: the blocks of the first result, the times, and values of this process."""
        types = ", ".join(str(arrays.type_of(array)) for array in self.arrays)
        at = ".array" if len(self.arrays) == 1 else f".arrays, {len(self.arrays)} of them"
        rows = {"is at": at, **{label: row for label, row in plan.facts(self.plan).items() if label in _SHOWN}}
        parts = [page.facts(rows), page.beside(*self._pictures())]
        if self.arrays and isinstance(self.arrays[0], np.ndarray) and self.arrays[0].ndim <= _MAX_SHOWN_AXES:
            parts.append(page.spaced(page.text("pre", _values(self.arrays[0]))))
        return page.page(f"{self.plan.kernel} → {types}", *parts)

    def _pictures(self) -> Iterator[Element]:
        for i, result in enumerate(self.plan.results[:1]):
            caption = f"result {i}: {result.type} {result.spec} on {self.plan.mesh.short}"
            yield plan.drawn(Drawing(caption, self.plan.blocks(f"result {i}")))
        yield timing.bar(self.timing)

    def __repr__(self) -> str:
        types = ", ".join(str(arrays.type_of(array)) for array in self.arrays)
        kept = ", kept on the mesh" if any(find_remote_array(array) is not None for array in self.arrays) else ""
        cached = plan.describe_origin(cache_hit=self.cache_hit, from_disk=self.from_disk)
        where = ".array" if len(self.arrays) == 1 else ".arrays"
        took = f"{self.timing.round_trip * 1e3:.1f} ms"
        return f"<Result {types} by {self.plan.strategy!r} in {took}, {cached}{kept}; see {where}>"


def _augmented(name: str) -> Callable[[Result[Any], Any], Any]:
    """Returns the method of an augmented assignment, which changes the only result."""
    change = getattr(operator, name)

    @shortened
    def method(self: Result[Any], other: Any, /) -> Any:
        array = self._single
        changed = change(array, _array_of(other))
        return self if changed is array else changed

    return method


for _name in AUGMENTED:
    setattr(Result, f"__{_name}__", _augmented(_name))


def _values(array: NDArray) -> str:
    return np.array2string(array, threshold=_MAX_VALUES, edgeitems=2, max_line_width=_VALUES_WIDTH)


def placement_of(index: int, answer: Answer) -> MeshPlacement:
    """Returns the placement of a result that stays on the mesh.

    Raises:
        ProtocolError: if the plan does not describe it.
    """
    placed, result = _placement_of(index, answer.plan), answer.results[index]
    return replace(placed, value=result.value) if isinstance(result, ResidentResult) and result.value else placed


@lru_cache(maxsize=256)
def _placement_of(index: int, serialized: bytes) -> MeshPlacement:
    """Returns the placement of a result in a serialized plan; answers with the same plan share it."""
    call_plan = kernel_pb2.Plan.FromString(serialized)
    placed = result_placement(call_plan.results, index, call_plan.mesh)
    if placed is None:
        raise broken(f"result {index} stays on the mesh, and the plan does not describe it")
    return placed


def result_placement(
    results: Sequence[kernel_pb2.ArrayPlacement], index: int, on_mesh: mesh_pb2.Mesh
) -> MeshPlacement | None:
    """Returns the placement of a result among those of a call; None if it is not described."""
    placement = placement_from_proto(results[index]) if index < len(results) else None
    if placement is None:
        return None
    result_mesh = mesh.from_proto(on_mesh)
    device_bytes = math.prod(placement.block_shape) * placement.type.dtype.itemsize * result_mesh.size
    return MeshPlacement(placement, result_mesh, device_bytes)


def from_answer(answer: Answer, results: tuple[object, ...], round_trip_s: float) -> Result[Any]:
    """Returns the result of an answer."""
    return Result(
        arrays=results,
        timing=timing.from_proto(answer.timing, round_trip_s),
        cache_hit=answer.cache.outcome == kernel_pb2.CACHE_OUTCOME_HIT,
        from_disk=answer.cache.from_disk,
        explanation=answer.cache.explanation,
        known_answers_pending=answer.cache.known_answers_pending,
        _plan=answer.plan,
    )
