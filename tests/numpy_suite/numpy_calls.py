"""NumPy's arguments as those of the client's methods."""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy_suite import scope
from numpy_suite.scope import OutOfScopeError

import shardcall as sc
from shardcall import P


@dataclass
class Call:
    """A call of a client's method.

    Attributes:
        operands: the arrays, in the method's order.
        keywords: the rest.
        finish: converts the client's result to NumPy's.
        result_type: that of NumPy's own result; None where it is not known.
    """

    operands: Sequence[Any]
    keywords: dict[str, Any] = field(default_factory=dict)
    finish: Callable[[Any], Any] = lambda array: array
    result_type: np.dtype | None = None

    def named(self, array: np.ndarray) -> np.ndarray:
        """A result as NumPy calls its type: C's ``long`` and ``long long`` are two names of one, and equal."""
        return array.view(self.result_type) if array.dtype == self.result_type else array


_OPERANDS = {"convolve": ("a", "v"), "where": ("condition", "x", "y"), "clip": ("a", "a_min", "a_max")}
_LETTERS = string.ascii_uppercase + string.ascii_lowercase
_RENAMED = {"a_min": "min", "a_max": "max"}


def bind_ufunc(ufunc: np.ufunc, name: str, args: Sequence[Any], keywords: Mapping[str, Any]) -> Call:
    """Returns the client's call for a ufunc's call.

    Raises:
        OutOfScopeError: for keywords that the service does not have.
    """
    if len(args) < ufunc.nin:
        raise OutOfScopeError(scope.REFUSED)
    out = tuple(args[ufunc.nin :]) or keywords.get("out")
    if out is not None:
        raise OutOfScopeError(scope.rule_of_out(out, args[: ufunc.nin]))
    defaults = {"out": None, "where": True, "casting": "same_kind", "order": "K", "subok": True, "dtype": None}
    if any(word not in defaults or value is not defaults[word] for word, value in keywords.items()):
        raise OutOfScopeError(scope.UFUNC_KEYWORDS)
    return Call(args[: ufunc.nin], finish=_scalar)


def bind_function(
    function: Callable[..., Any], name: str, args: Sequence[Any], keywords: Mapping[str, Any], method: Any
) -> Call:
    """Returns the client's call for a function's call.

    Raises:
        OutOfScopeError: for arguments that the service does not have.
    """
    if name == "where" and len(args) == 1:
        raise OutOfScopeError(scope.OTHER_FORMS)
    try:
        bound = inspect.signature(function).bind(*args, **keywords).arguments
    except TypeError:
        raise OutOfScopeError(scope.REFUSED) from None
    passed = {word: value for word, value in bound.items() if value is not np._NoValue}
    if (out := passed.pop("out", None)) is not None:
        raise OutOfScopeError(scope.rule_of_out(out, args))
    passed |= passed.pop("kwargs", {})
    if passed.pop("order", "K") not in ("K", "C") or passed.pop("subok", False):
        raise OutOfScopeError(scope.VIEWS)
    if name == "einsum":
        return _einsum(passed)
    first, second = ("a_min" in passed, "a_max" in passed), {"min", "max"} & set(passed)
    if name == "clip" and (first[0] != first[1] or (first[0] and second)):
        raise OutOfScopeError(scope.REFUSED)
    names = _OPERANDS.get(name, (next(iter(inspect.signature(function).parameters)),))
    operands = [passed.pop(word, passed.pop(_RENAMED.get(word, word), None)) for word in names]
    operands += passed.pop("varargs", ())
    allowed = set(inspect.signature(method).parameters)
    defaults = {word: item.default for word, item in inspect.signature(function).parameters.items()}
    passed = {word: value for word, value in passed.items() if word in allowed or value is not defaults.get(word)}
    if not allowed.issuperset(passed):
        raise OutOfScopeError(scope.KEYWORDS)
    if "dtype" in passed:
        scope.check_dtype(passed["dtype"])
    reduces = "keepdims" in allowed
    return Call(operands, passed, _scalar if reduces else lambda array: array)


def _einsum(passed: dict[str, Any]) -> Call:
    operands = list(passed.pop("operands", ()))
    if not isinstance(passed.pop("optimize", False), bool | str):
        raise OutOfScopeError(scope.KEYWORDS)
    dtype = passed.pop("dtype", None)
    if passed.pop("casting", "safe") not in ("safe", "unsafe"):
        raise OutOfScopeError(scope.UFUNC_KEYWORDS)
    if len(operands) < 2 or passed:
        raise OutOfScopeError(scope.REFUSED)
    if not isinstance(operands[0], str):
        operands = _with_subscripts(operands)
    if dtype is not None:
        scope.check_dtype(dtype)
        types = [np.asarray(operand).dtype for operand in operands[1:]]
        if not all(np.can_cast(item, dtype) for item in types):
            raise OutOfScopeError(scope.UFUNC_KEYWORDS)
        passed["preferred_element_type"] = dtype
    return Call(operands, passed, _scalar)


def _with_subscripts(passed: Sequence[Any]) -> list[Any]:
    """The operands of a sum whose labels are lists of integers, after its subscripts."""
    arrays, labels = list(passed[: len(passed) // 2 * 2 : 2]), list(passed[1::2])
    result = passed[-1] if len(passed) % 2 else None
    texts = [_text(of) for of in labels]
    return [",".join(texts) + ("" if result is None else f"->{_text(result)}"), *arrays]


def _text(labels: Any) -> str:
    try:
        return "".join("..." if label is Ellipsis else _LETTERS[range(len(_LETTERS)).index(label)] for label in labels)
    except (TypeError, ValueError):
        raise OutOfScopeError(scope.REFUSED) from None


def _scalar(array: np.ndarray) -> Any:
    return array[()]


def placement(operands: Sequence[Any], options: frozenset[str]) -> dict[str, Any]:
    """Returns the mesh over which a call is sharded, and its spec.

    Matrices are sharded along both axes, over 2 and 4 devices; vectors over 8, or over 3 where they have fewer rows:
    most sizes of NumPy's tests divide by neither.
    """
    shape = _shape(operands[0]) if operands else ()
    if len(shape) >= 2:
        return {"mesh": sc.Mesh(a=2, b=4), **({"spec": P("a", "b")} if "spec" in options else {})}
    return {"mesh": sc.Mesh(x=8 if shape and shape[0] >= 8 else 3)}


def _shape(operand: Any) -> tuple[int, ...]:
    try:
        return np.shape(operand)
    except Exception:  # noqa: BLE001  # what is no array is for the client to refuse
        return ()
