"""Elements of an array of a traced function where a mask is true, whose number is not known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.lib.mixins import NDArrayOperatorsMixin

from shardcall._src.device_arrays.array_operators import Unconvertible
from shardcall_core.element_types import DType
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.types.errors import TracingError

_ELEMENTWISE = frozenset(
    (
        *(np.where, np.clip, np.round, np.around, np.real, np.imag, np.angle, np.nan_to_num, np.isclose, np.sinc),
        *(np.isposinf, np.isneginf, np.copy, np.fix, np.iscomplex, np.isreal, np.zeros_like, np.ones_like),
        *(np.full_like, np.astype),
    )
)
_REDUCTIONS = frozenset((np.sum, np.prod, np.max, np.min, np.amax, np.amin, np.any, np.all, np.mean, np.var, np.std))
_EXTREMES: Mapping[Any, str] = {
    **dict.fromkeys((np.max, np.amax, np.maximum.reduce), "max"),
    **dict.fromkeys((np.min, np.amin, np.minimum.reduce), "min"),
}
_READ = (
    "use elementwise functions and reductions of them, a[mask] = values with the same mask, or np.where(mask, a, 0), "
    "which keeps all elements; or return a and mask, and take a[mask] of what a call returns"
)
WRITE = (
    "write x[mask] = values[mask] with values of the shape of x, or "
    "x[...] = np.where(mask, values, x), where x may be a view such as y[:, 1]"
)
"""The advice where another assignment is refused."""


class MaskedElements(Unconvertible, NDArrayOperatorsMixin):
    """The elements of an array where a mask is true, ``a[mask]``, in a function that is traced.

    Elementwise functions compute at every position of the array. ``a[mask] = values`` takes those where the mask is
    true, and reductions leave out the others, where operands are 1.

    Attributes:
        values: [*mask.shape, ...] the values at every position.
        mask: of bool, the mask.

    Args:
        xp: the functions of arrays.
    """

    __array_priority__ = 100.0
    _is_traced = True

    def __init__(self, xp: Any, values: Any, mask: Any) -> None:
        self.values = values
        self.mask = mask
        self._xp = xp

    @classmethod
    def of(cls, xp: Any, x: Any, mask: Any) -> MaskedElements:
        """Returns the elements of an array where a mask is true."""
        return cls(xp, xp.selected(_in_front(xp, mask, x.ndim), x), mask)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.values.dtype  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return 1 + self.values.ndim - self.mask.ndim  # type: ignore[no-any-return]

    def written_to(self, x: Any, mask: Any) -> Any:
        """Returns an array with these elements where a mask is true.

        Args:
            x: the array.
            mask: the mask; None for an index that is none.

        Raises:
            TracingError: for another mask.
        """
        if mask is None or not self._is_where(mask) or self.values.ndim > x.ndim:
            raise self._refusal("an assignment to elements at another index", WRITE)
        values = self._xp.astype(self.values, x.dtype)
        return self._xp.where(_in_front(self._xp, self.mask, x.ndim), values, x)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, /, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", (None,))
        if method == "reduce":
            return self._reduced(ufunc.reduce, inputs, kwargs)
        if ufunc is np.matmul and all(isinstance(item, MaskedElements) and item.ndim == 1 for item in inputs):
            return np.sum(np.multiply(*inputs))
        if ufunc.signature is not None:
            raise self._refusal(f"numpy.{ufunc.__name__}")
        if method != "__call__" or any(item is not None and item is not inputs[0] for item in out):
            raise self._refusal(f"numpy.{ufunc.__name__}.{method}")
        result = self._computed(ufunc, inputs, kwargs)
        if out[0] is None:
            return result
        if not np.can_cast(result.dtype, self.dtype, "same_kind"):
            raise TypeError(f"{ufunc.__name__} in place makes {result.dtype.name} of {self.dtype.name}")
        self.values = self._xp.astype(result.values, self.dtype)
        return self

    def __array_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        if func in _ELEMENTWISE:
            return self._computed(func, args, kwargs)
        if func in _REDUCTIONS:
            return self._reduced(func, args, kwargs)
        if func is np.count_nonzero and len(args) == 1 and not kwargs:
            return np.sum(self != 0)
        raise self._refusal(f"numpy.{func.__name__}")

    def astype(self, dtype: Any) -> MaskedElements:
        """Returns the elements in another element type."""
        return MaskedElements(self._xp, self.values.astype(dtype), self.mask)

    def copy(self) -> MaskedElements:
        """Returns a copy."""
        return MaskedElements(self._xp, self.values.copy(), self.mask)

    def __deepcopy__(self, memo: object) -> MaskedElements:
        return self.copy()

    def __getattr__(self, name: str) -> Any:
        if name in _METHODS:
            return lambda *args, **kwargs: getattr(np, name)(self, *args, **kwargs)
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._refusal(name)

    def __getitem__(self, key: Any) -> MaskedElements:
        """Returns the elements where a condition on them is true, such as ``m[m > 2]``."""
        return MaskedElements.of(self._xp, self.values, np.logical_and(self.mask, self._condition(key)))

    def __setitem__(self, key: Any, value: Any) -> None:
        condition = self._condition(key)
        if isinstance(value, MaskedElements) and value._is_where(np.logical_and(self.mask, condition)):
            new = value.values
        else:
            new = self._complete(value)
        condition = _in_front(self._xp, condition, self.values.ndim)
        self.values = self._xp.where(condition, self._xp.astype(new, self.dtype), self.values)

    def _is_where(self, mask: Any) -> bool:
        """Returns whether these are the elements where a mask is true."""
        return self.mask._trace.is_same(mask, self.mask)  # type: ignore[no-any-return]

    def _condition(self, key: Any) -> Any:
        """Returns an index that is a condition on the elements, at every position of the array."""
        if not isinstance(key, MaskedElements) or key.dtype != np.bool_ or key.ndim != 1:
            raise self._refusal("an index other than a condition on them, such as m[m > 2],")
        return self._complete(key)

    def __contains__(self, item: object) -> bool:
        return bool((self == item).any())

    def __round__(self, ndigits: int | None = None) -> Any:
        return np.round(self, ndigits or 0)

    def __len__(self) -> int:
        raise self._refusal("len()")

    def __iter__(self) -> NoReturn:
        raise self._refusal("a loop, or a function of Python such as max() or list() in place of np.max,")

    def __repr__(self) -> str:
        return f"<elements of {self.values.type} where a mask is true, traced>"

    def _computed(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Returns the result of an elementwise function, or several."""
        result = function(*map(self._complete, args), **{key: self._complete(item) for key, item in kwargs.items()})
        if isinstance(result, tuple):
            return tuple(MaskedElements(self._xp, item, self.mask) for item in result)
        return MaskedElements(self._xp, result, self.mask)

    def _complete(self, item: Any) -> Any:
        """Returns an operand of an elementwise function as what it is at every position of the array."""
        if isinstance(item, MaskedElements):
            if not item._is_where(self.mask):
                raise self._refusal("a computation with elements where another mask is true")
            return item.values
        if isinstance(item, type):
            return item
        if np.ndim(item) > self.values.ndim - self.mask.ndim:
            raise self._refusal("a computation with an array of as many elements")
        return self._xp.selected(_in_front(self._xp, self.mask, self.values.ndim), item)

    def _reduced(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Returns the result of a reduction over the elements, or of each of them over other axes."""
        default = 0 if isinstance(function, type(np.add.reduce)) else None
        options = {"axis": default, "keepdims": False, **dict(zip(("axis", "dtype"), args[1:], strict=False)), **kwargs}
        axis, keepdims = options.pop("axis"), options.pop("keepdims")
        if {*options} - {"dtype", "initial", "ddof"} or len(args) not in (1, 2, 3) or args[0] is not self:
            raise self._refusal(f"numpy.{function.__name__} with these arguments")
        axes = range(self.ndim) if axis is None else normalize_axis_tuple(axis, self.ndim)
        before = self.mask.ndim - 1  # axes of the mask that are one of the elements
        others = tuple(axis + before for axis in axes if axis)
        if 0 not in axes:
            return MaskedElements(self._xp, function(self.values, axis=others, keepdims=keepdims, **options), self.mask)
        where, axes = _in_front(self._xp, self.mask, self.values.ndim), (*range(before + 1), *others)
        if function in _EXTREMES and not options:  # NumPy's functions take no mask without initial
            result = self._xp.call(_EXTREMES[function], self.values, where, axis=axes, keepdims=keepdims)
        else:
            result = function(self.values, axis=axes, keepdims=keepdims, where=where, **options)
        return result.reshape(result.shape[before:]) if keepdims and before else result

    def _refusal(self, what: str, instead: str = _READ) -> TracingError:
        return TracingError(
            f"{what} needs the number of the elements where a mask is true, which is not known while "
            f"{self.mask._trace.name} is traced; {instead}"
        )


_METHODS = frozenset(("sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "clip", "round"))


def taking_masked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of a namespace that runs as NumPy's of a name where an argument is `MaskedElements`."""

    @functools.wraps(function)
    def run(xp: Any, /, *args: Any, **kwargs: Any) -> Any:
        if MaskedElements in map(type, args) or (kwargs and MaskedElements in map(type, kwargs.values())):
            return run_masked(name, args, kwargs)
        return function(xp, *args, **kwargs)

    return run


def run_masked(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Runs NumPy's function of a name, of whose arguments some are `MaskedElements`."""
    masked = next(item for item in (*args, *kwargs.values()) if isinstance(item, MaskedElements))
    function = getattr(np, name, None)
    if function is None:
        raise masked._refusal(name)
    if isinstance(function, np.ufunc):
        return masked.__array_ufunc__(function, "__call__", *args, **kwargs)
    return masked.__array_function__(function, (), args, kwargs)


def run_masked_kernel(name: str, operands: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
    """Runs NumPy's function of a kernel's name, of whose operands some are `MaskedElements`."""
    pairs = [*zip(FUNCTIONS[name].operands, operands, strict=False)]
    options = {info.name: item for info, item in pairs if info.optional and item is not None}
    if options.get("where") is True:  # NumPy's default
        del options["where"]
    return run_masked(name, [item for info, item in pairs if not info.optional], {**options, **parameters})


def _in_front(xp: Any, mask: Any, ndim: int) -> Any:
    """Returns a mask of the first axes of an array with as many axes as the array."""
    return mask if mask.ndim == ndim else xp.call("reshape", mask, shape=mask.shape + (1,) * (ndim - mask.ndim))
