"""Views: parts of an array whose elements are those of the array in NumPy, and copies of them on the mesh."""

from __future__ import annotations

import dis
import warnings
from types import FrameType
from typing import Any

from shardcall._src.device_arrays.call_sites import frame_of_caller
from shardcall._src.functions.indexing import is_basic
from shardcall._src.types.arrays import Array
from shardcall._src.types.errors import ViewWarning

VIEWS = frozenset(("expand_dims", "flip", "imag", "real", "reshape", "squeeze", "transpose"))
"""The functions whose results are views of their first operand in NumPy."""

ARRAYS = frozenset(("copy", "full", "full_like"))
"""The functions whose results without axes are arrays in NumPy, and no scalars."""

_STACK_MOVES = frozenset(("CACHE", "EXTENDED_ARG", "SWAP"))
_ITEM_ASSIGNMENTS = frozenset(("STORE_SUBSCR", "STORE_SLICE"))


def is_view(key: Any, ndim: int) -> bool:
    """Returns whether the elements of an array at an index are a view in NumPy.

    Args:
        key: the index.
        ndim: the number of axes of the elements.
    """
    items = key if isinstance(key, tuple) else (key,)
    return all(map(is_basic, items)) and (ndim > 0 or any(item is Ellipsis for item in items))


def warn_of_lost_write(base: Array, *, is_operator: bool) -> None:
    """Warns that a write to a view leaves the array as it is, once for each line of the caller.

    Args:
        base: the type of the array.
        is_operator: True for an augmented assignment, such as ``a[key] += b``, which then assigns to the array.
    """
    frame = frame_of_caller()
    if is_operator and _assigns_to_elements(frame):
        return
    warnings.warn_explicit(
        f"this changes a part of an array of {base}, and not the array: parts of arrays on the mesh are copies, where "
        "NumPy's are views; write a[key] = values or a[key] += b, or begin with part.copy()",
        ViewWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__") or frame.f_code.co_filename,
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def _assigns_to_elements(frame: FrameType) -> bool:
    """Returns whether the next step of a frame stores the present operator's result at an index."""
    code = frame.f_code.co_code
    names = (dis.opname[code[i]] for i in range(frame.f_lasti + 2, len(code), 2))
    return next((name for name in names if name not in _STACK_MOVES), "") in _ITEM_ASSIGNMENTS
