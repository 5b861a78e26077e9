"""Python numbers that are arguments of a traced function."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, NoReturn, Protocol

import numpy as np

from shardcall._src.device_arrays.array_operators import (
    ArrayOperators,
    BinaryMethod,
    UnaryMethod,
    Unconvertible,
    can_be_operand,
)
from shardcall._src.device_arrays.numpy_protocols import apply_function, apply_ufunc
from shardcall_core.element_types import DType
from shardcall_core.types.errors import TracingError

Evaluate = Callable[[Sequence[Any]], Any]
"""Returns the value of a number for the leaves of the arguments."""

_FUNCTIONS = {
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "and_": "bitwise_and",
    "or_": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}


class NumberTrace(Protocol):
    """The trace of a function."""

    name: str

    @property
    def functions(self) -> Any:
        """The functions of arrays."""

    def number(self, number: TracedNumber, dtype: DType | None) -> Any:
        """Returns a number as an array on the mesh."""


def _binary(name: str, *, is_reflected: bool = False) -> Callable[[TracedNumber, Any], Any]:
    compute = getattr(operator, name)
    function = _FUNCTIONS.get(name, name)

    def method(self: TracedNumber, other: Any) -> Any:
        if type(other) in (int, float, complex, bool):
            other = _constant(self.trace, other)
        operands = (other, self) if is_reflected else (self, other)
        if isinstance(other, TracedNumber):
            return computed(compute, *operands)
        return getattr(self.trace.functions, function)(*operands) if can_be_operand(other) else NotImplemented

    return method


def _reflected(name: str) -> Callable[[TracedNumber, Any], Any]:
    return _binary(name, is_reflected=True)


def _unary(name: str) -> Callable[[TracedNumber], TracedNumber]:
    return lambda self: computed(getattr(operator, name), self)


def _comparison(name: str) -> Callable[[TracedNumber, Any], Any]:
    def method(self: TracedNumber, other: Any) -> Any:
        if isinstance(other, ArrayOperators | np.ndarray | np.generic):
            return getattr(self.trace.functions, name)(self, other)
        raise self._refusal("a comparison")

    return method


class TracedNumber(Unconvertible):
    """A Python number that is an argument, or computed from some.

    It stays a Python number: of two that meet the caller's process computes the result at each call, and beside an
    array it takes the array's element type, as in NumPy.

    Attributes:
        trace: the trace that it belongs to.
        evaluate: computes its value from the arguments of a call.
        number: the value in the call that is traced.
        key: equal for numbers that are computed alike.
    """

    def __init__(self, trace: NumberTrace, evaluate: Evaluate, number: Any, key: Hashable) -> None:
        self.trace = trace
        self.evaluate = evaluate
        self.number = number
        self.key = key

    __add__: ClassVar[BinaryMethod] = _binary("add")
    __radd__: ClassVar[BinaryMethod] = _reflected("add")
    __sub__: ClassVar[BinaryMethod] = _binary("sub")
    __rsub__: ClassVar[BinaryMethod] = _reflected("sub")
    __mul__: ClassVar[BinaryMethod] = _binary("mul")
    __rmul__: ClassVar[BinaryMethod] = _reflected("mul")
    __truediv__: ClassVar[BinaryMethod] = _binary("truediv")
    __rtruediv__: ClassVar[BinaryMethod] = _reflected("truediv")
    __floordiv__: ClassVar[BinaryMethod] = _binary("floordiv")
    __rfloordiv__: ClassVar[BinaryMethod] = _reflected("floordiv")
    __mod__: ClassVar[BinaryMethod] = _binary("mod")
    __rmod__: ClassVar[BinaryMethod] = _reflected("mod")
    __pow__: ClassVar[BinaryMethod] = _binary("pow")
    __rpow__: ClassVar[BinaryMethod] = _reflected("pow")
    __and__: ClassVar[BinaryMethod] = _binary("and_")
    __rand__: ClassVar[BinaryMethod] = _reflected("and_")
    __or__: ClassVar[BinaryMethod] = _binary("or_")
    __ror__: ClassVar[BinaryMethod] = _reflected("or_")
    __xor__: ClassVar[BinaryMethod] = _binary("xor")
    __rxor__: ClassVar[BinaryMethod] = _reflected("xor")
    __lshift__: ClassVar[BinaryMethod] = _binary("lshift")
    __rlshift__: ClassVar[BinaryMethod] = _reflected("lshift")
    __rshift__: ClassVar[BinaryMethod] = _binary("rshift")
    __rrshift__: ClassVar[BinaryMethod] = _reflected("rshift")
    __neg__: ClassVar[UnaryMethod] = _unary("neg")
    __pos__: ClassVar[UnaryMethod] = _unary("pos")
    __abs__: ClassVar[UnaryMethod] = _unary("abs")
    __invert__: ClassVar[UnaryMethod] = _unary("invert")
    __lt__: ClassVar[BinaryMethod] = _comparison("less")
    __le__: ClassVar[BinaryMethod] = _comparison("less_equal")
    __gt__: ClassVar[BinaryMethod] = _comparison("greater")
    __ge__: ClassVar[BinaryMethod] = _comparison("greater_equal")
    __eq__: ClassVar[BinaryMethod] = _comparison("equal")
    __ne__: ClassVar[BinaryMethod] = _comparison("not_equal")

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    @property
    def python_type(self) -> type:
        """The class of the number."""
        return type(self.number)

    def computed(self, compute: Callable[..., Any], *others: complex) -> TracedNumber:
        """Returns the number that a function computes from this one and others, at each call."""
        return computed(compute, self, *(_constant(self.trace, other) for other in others))

    def in_type(self, dtype: DType | None) -> Any:
        """Returns the number as an array of an element type on the mesh; of the type that it has alone for None.

        Raises:
            OverflowError: if the type does not hold the number.
        """
        return self.trace.number(self, dtype)

    def __remote_array__(self) -> Any:
        return self.in_type(None)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, /, *inputs: Any, **kwargs: Any) -> Any:
        return apply_ufunc(self.trace.functions, ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return apply_function(self.trace.functions, func, args, kwargs)

    def _refusal(self, what: str) -> TracingError:
        return TracingError(
            f"{what} needs the value of a number that is an argument of {self.trace.name}, and it "
            "is not known while the function is traced; name the argument in static=…, which compiles once for each "
            "value, or use np.where or xp.cond, of a comparison such as np.greater(number, 2)"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or not hasattr(self.python_type, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        raise self._refusal(f"the attribute {name}")

    def __hash__(self) -> int:
        raise self._refusal("hash(), an item of a set or a key of a dict")

    def __copy__(self) -> TracedNumber:
        return self

    def __deepcopy__(self, memo: object) -> TracedNumber:
        return self

    def __round__(self, ndigits: int | None = None) -> NoReturn:
        raise self._refusal("round()")

    def __trunc__(self) -> NoReturn:
        raise self._refusal("math.trunc()")

    def __floor__(self) -> NoReturn:
        raise self._refusal("math.floor()")

    def __ceil__(self) -> NoReturn:
        raise self._refusal("math.ceil()")

    def __format__(self, spec: str) -> str:
        if spec:
            raise self._refusal("a format")
        return str(self)

    def __repr__(self) -> str:
        return f"<{self.python_type.__name__}, an argument of {self.trace.name}>"


def as_traced(number: complex | TracedNumber, trace: NumberTrace) -> TracedNumber:
    """Returns a Python number as one of a trace."""
    return number if isinstance(number, TracedNumber) else _constant(trace, number)


def _constant(trace: NumberTrace, number: complex) -> TracedNumber:
    return TracedNumber(trace, lambda _: number, number, (type(number).__name__, repr(number)))


def computed(compute: Callable[..., Any], *operands: TracedNumber) -> TracedNumber:
    """Returns the number that a function computes from others, at each call.

    Args:
        compute: a function of the numbers, distinguished from others by its name.
        operands: the numbers.
    """
    evaluates = [operand.evaluate for operand in operands]
    return TracedNumber(
        operands[0].trace,
        lambda leaves: compute(*(evaluate(leaves) for evaluate in evaluates)),
        compute(*(operand.number for operand in operands)),
        (compute.__name__, *(operand.key for operand in operands)),
    )
