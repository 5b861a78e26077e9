"""The rules by which a call of NumPy's tests is outside of what the service promises.

A call that one of them covers is answered by NumPy itself, and the rest of its case goes on; the rules know calls and
values, never the names of tests.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shardcall_core.functions.elementwise import COMPARISONS
from shardcall_core.functions.table import FUNCTIONS

ELEMENT_TYPES = (
    "element types that the service does not have: object, text, time, long double, structured, swapped bytes"
)
SUBCLASSES = "subclasses of ndarray and objects with __array_ufunc__, __array_function__ or __array_wrap__"
COMPARED = "functions that the case calls with subclasses too, to the results of which it compares others bit by bit"
WARNINGS = "floating-point warnings: under errstate(…='raise') or where a warning is expected"
SUBNORMAL = "arithmetic on subnormal numbers"
VIEWS = "views and memory order of results"
REFUSED_FORMS = "keywords and forms that the service refuses by name"
PATHS = "orders in which einsum takes operands, which the service decides"
ITERATORS = "iterators, which only one side can take the items of"
SAMPLED = "more of what a case has called already, in other sizes or with other values (--every-case calls them too)"
ALGORITHMS = "keywords that choose how NumPy computes, with errors of their own"
MEANS = "variances about a given mean, which a case compares bit by bit with those about the mean"
SIZES = "arrays larger than a device"
ORDERS = "orders that NumPy leaves open: of partitions at several positions"
ROUNDING = "results compared beyond what an element type holds; those of geomspace and i0 of integers bit by bit"
NUMBERS = "numbers alone: methods of ufuncs, and keywords that client.xp does not have"
EMPTY_LISTS = "lists without elements as indices, which are of no type"
REFUSED = "arguments that Python itself refuses"
COMPLETE_CASES = frozenset((VIEWS, MEANS))
"""Rules that leave out all of a case: it looks at what it does not name in the call."""

_PROTOCOLS = ("__array_ufunc__", "__array_function__", "__array_wrap__", "__array_priority__")
_SELECTION = ("where", "clip", "maximum", "minimum", "fmax", "fmin", "max", "min", "argmax", "argmin")
_TRUTH = ("any", "all", "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf", "isfinite")
_SIGN = ("sign", "signbit", "absolute", "negative", "positive", "copysign", "conjugate", "real", "imag")
_EXACT = frozenset((*COMPARISONS, *_SELECTION, *_TRUTH, *_SIGN, "copy", "transpose", "roll"))
"""Functions that select, compare or move numbers, and so are exact for subnormal ones too."""


_OPTIONAL = frozenset(
    name
    for name, function in FUNCTIONS.items()
    if any(operand.optional and not operand.repeated for operand in function.operands)
)
_MEMORY = re.compile(r"\.(flags|strides|base|ctypes|getrefcount)\b|(shares|share)_memory\(")
"""The attributes of an array that only a test of memory reads."""


class OutOfScopeError(Exception):
    """A call that a rule covers; its text is the rule."""


def check_operands(name: str, operands: Iterable[Any]) -> None:
    """Checks the operands of a call.

    Raises:
        OutOfScopeError: if the service does not promise NumPy's answer for one.
    """
    for operand in operands:
        if operand is None and name in _OPTIONAL and name != "where":
            continue
        if _has_protocol(operand):
            raise OutOfScopeError(SUBCLASSES)
        if name in ("ix_", "bincount") and isinstance(operand, Sequence) and not len(operand):
            raise OutOfScopeError(EMPTY_LISTS)
        try:
            array = np.asarray(operand)
        except Exception:  # noqa: BLE001  # of the operand's own code
            if hasattr(operand, "__array__"):
                raise OutOfScopeError(SUBCLASSES) from None
            if isinstance(operand, list | tuple):
                check_operands(name, operand)
            continue  # the service is to refuse what NumPy refuses
        if (
            not isinstance(operand, int) or name == "bitwise_count"
        ):  # one that fits no integer type is to be refused as by NumPy
            check_dtype(array.dtype)
        if name not in _EXACT and has_subnormals(array):
            raise OutOfScopeError(SUBNORMAL)


def check_memory(order: Any, subok: Any, targets: Sequence[np.ndarray], operands: Iterable[Any]) -> None:
    """Checks that a call is not about memory: its order, and results that are parts of operands.

    Args:
        order: the argument of that name.
        subok: the argument of that name.
        targets: the arrays that the call writes to.
        operands: its operands.

    Raises:
        OutOfScopeError: if it is.
    """
    if any(map(_has_protocol, targets)):
        raise OutOfScopeError(SUBCLASSES)
    if (isinstance(order, str) and order not in ("K", "C", "A")) or subok:
        raise OutOfScopeError(VIEWS)
    arrays = [operand for operand in operands if isinstance(operand, np.ndarray)]
    if any(np.may_share_memory(a, b) for a in targets for b in arrays if a is not b):
        raise OutOfScopeError(VIEWS)


def check_algorithm(name: str, main: Any, keywords: Mapping[str, Any], kth: Any) -> None:
    """Checks that a call is not about NumPy's way to compute.

    Args:
        name: of the function.
        main: its first array.
        keywords: its arguments by name.
        kth: the argument of that name.

    Raises:
        OutOfScopeError: if it is.
    """
    if name in ("partition", "argpartition") and np.ndim(main) > 1 and np.ndim(kth) > 0:
        raise OutOfScopeError(ORDERS)
    if name in ("var", "std") and keywords.get("mean") is not None:
        raise OutOfScopeError(MEANS)
    if name == "isin" and keywords.get("kind") == "table":
        raise OutOfScopeError(ALGORITHMS)
    if name == "einsum" and keywords.get("optimize") and keywords.get("out") is not None:
        raise OutOfScopeError(ALGORITHMS)
    if name == "concatenate" and isinstance(main, np.ndarray) and main.ndim == 1 and keywords.get("out") is None:
        raise OutOfScopeError(ITERATORS)


def check_dtype(dtype: Any) -> None:
    """Checks an element type; what NumPy does not take for one, the service is to refuse.

    Raises:
        OutOfScopeError: if the service does not have it.
    """
    try:
        type_ = np.dtype(dtype)
    except TypeError:
        return
    if type_.kind in "OSUTMmV" or type_.char in "gG" or not type_.isnative:
        raise OutOfScopeError(ELEMENT_TYPES)


def rule_of_source(function: Callable[..., Any]) -> str:
    """Returns the rule that covers a complete case, by its code; empty where none does."""
    return VIEWS if _MEMORY.search(inspect.getsource(inspect.unwrap(function))) else ""


def check_result(name: str, result: Any, operands: Iterable[Any]) -> None:
    """Checks what NumPy itself answers.

    Raises:
        OutOfScopeError: if the service does not promise the same.
    """
    if any(result is operand for operand in operands):
        raise OutOfScopeError(VIEWS)
    if _is_rounded(name, result) or (
        name == "i0" and all(np.asarray(operand).dtype.kind == "i" for operand in operands)
    ):
        raise OutOfScopeError(ROUNDING)
    if name in _EXACT:
        return
    for array in _leaves(result):
        if has_subnormals(np.asarray(array)):
            raise OutOfScopeError(SUBNORMAL)


def _is_rounded(name: str, result: Any) -> bool:
    """Returns whether the last bits of a result are more than 1e-7, or are compared with those of other shapes."""
    if name == "poly":
        return bool(np.abs(result).max(initial=0) > 2**53)
    if name == "geomspace":
        return bool(np.iscomplexobj(result))
    if name.removeprefix("linalg.") in ("svd", "svdvals", "lstsq", "eig", "eigh", "eigvals", "eigvalsh"):
        values = [*map(np.asarray, result)] if isinstance(result, tuple) else [np.asarray(result)]
        return any(array.dtype.char in "fF" and np.abs(array).max(initial=0) > 4 for array in values)
    return False


def _leaves(result: Any) -> Iterator[Any]:
    """Yields the arrays and numbers of a result."""
    if isinstance(result, tuple | list):
        for item in result:
            yield from _leaves(item)
    else:
        yield result


def check_error_state() -> None:
    """Checks what happens at a floating-point error.

    Raises:
        OutOfScopeError: if it is more than a warning.
    """
    if not {"ignore", "warn"}.issuperset(np.geterr().values()):
        raise OutOfScopeError(WARNINGS)


def has_subnormals(array: np.ndarray) -> bool:
    """Returns whether a number of 32 or 64 bits is subnormal; few functions flush shorter ones to zero."""
    if array.dtype.char not in "fdFD":
        return False
    if array.dtype.kind == "c":
        return has_subnormals(array.real) or has_subnormals(array.imag)
    size = np.abs(array)
    return bool(((size > 0) & (size < np.finfo(array.dtype).smallest_normal)).any())


def _has_protocol(operand: Any) -> bool:
    if type(operand) is np.ndarray or isinstance(operand, np.generic):
        return False
    if isinstance(operand, list | tuple):
        return any(map(_has_protocol, operand))
    return isinstance(operand, np.ndarray | np.poly1d) or any(hasattr(operand, name) for name in _PROTOCOLS)
