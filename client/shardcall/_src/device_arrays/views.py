"""Views: parts of an array that share its memory in NumPy, and are copies on the mesh."""

from __future__ import annotations

import dis
import threading
import warnings
import weakref
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

from shardcall._src.device_arrays.call_sites import frame_of_caller
from shardcall_core.functions.indexing import basic_index, is_basic
from shardcall_core.types.arrays import Array
from shardcall_core.types.errors import ViewWarning

VIEWS = frozenset(("einsum", "expand_dims", "flip", "imag", "real", "reshape", "squeeze", "transpose"))
"""The functions whose results may be views of their first operand in NumPy."""

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


def is_contiguous(key: Any, shape: tuple[int, ...]) -> bool:
    """Returns whether the elements of a contiguous array at an index of integers and slices are contiguous, too.

    Args:
        key: the index.
        shape: the shape of the array.
    """
    index = basic_index(shape, key if isinstance(key, tuple) else (key,))
    kept = [axis for axis in range(len(shape)) if axis not in index.dropped and index.sizes[axis] != 1]
    if any(index.steps[axis] != 1 for axis in kept):
        return False
    return all(index.sizes[axis] == shape[axis] for axis in range(kept[0] + 1 if kept else len(shape), len(shape)))


def view_of(name: str, x: Any, others: Sequence[Any], arguments: Mapping[str, Any]) -> bool | None:
    """Returns whether the result of a function, which is a view in NumPy, is contiguous; None if it is no view.

    Args:
        name: the name of the function.
        x: its first operand.
        others: its other operands; None for one left out.
        arguments: its parameters.
    """
    contiguous: bool = x._is_contiguous
    match name:
        case "reshape":
            return True if contiguous else None
        case "expand_dims" | "squeeze":
            return contiguous
        case "transpose":
            return contiguous and x.ndim < 2
        case "flip":
            return False
        case "real" | "imag":
            return False if x.dtype.kind == "c" else contiguous if name == "real" else None
        case "einsum" if all(other is None for other in others):
            taken, _, kept = str(arguments.get("subscripts")).partition("->")
            return False if kept and {*taken} - {" "} == {*kept} - {" "} else None
    return None


class LostWrite(NamedTuple):
    """A write to a view that does not reach the array that the view was taken from.

    Attributes:
        part: the view.
        base: the type of the array.
        file: the file of the caller's line.
        line: its number.
        names: the global variables of its module.
    """

    part: weakref.ref[Any]
    base: Array
    file: str
    line: int
    names: dict[str, Any]

    def warn(self) -> None:
        """Warns, once for each line of the caller."""
        warnings.warn_explicit(
            f"this changes a part of an array of {self.base}, and not the array: parts of arrays on the mesh are "
            "copies, where NumPy's are views; write a[key] = values or a[key] += b, or begin with part.copy()",
            ViewWarning,
            self.file,
            self.line,
            module=self.names.get("__name__") or self.file,
            registry=self.names.setdefault("__warningregistry__", {}),
        )


class _UnfinishedWrite(threading.local):
    """The augmented assignment of this thread whose result is to be assigned to elements next: ``a[key] += b``."""

    write: LostWrite | None = None


_unfinished = _UnfinishedWrite()


def note_lost_write(part: Any, base: Any, *, is_operator: bool) -> None:
    """Warns that a write to a view leaves the array as it is, unless the view is assigned to the array next.

    Args:
        part: the view.
        base: the array.
        is_operator: True for an augmented assignment, such as ``a[key] += b``, which then assigns to elements of a.
    """
    frame = frame_of_caller()
    write = LostWrite(weakref.ref(part), base.type, frame.f_code.co_filename, frame.f_lineno, frame.f_globals)
    if is_operator and _assigns_to_elements(frame):
        _unfinished.write = write
    else:
        write.warn()


def finish_write(target: Any = None, value: Any = None) -> None:
    """Warns of an augmented assignment that was not finished by an assignment to the array that the part came from.

    Args:
        target: the array to whose elements a value is assigned; None for any other use of arrays.
        value: the value.
    """
    write = _unfinished.write
    if write is None:
        return
    _unfinished.write = None
    if (
        target is None
        or write.part() is not value
        or all(base() is not target for base in getattr(value, "_bases", ()))
    ):
        write.warn()


def _assigns_to_elements(frame: FrameType) -> bool:
    """Returns whether the next step of a frame stores the present operator's result at an index."""
    code = frame.f_code.co_code
    names = (dis.opname[code[i]] for i in range(frame.f_lasti + 2, len(code), 2))
    return next((name for name in names if name not in _STACK_MOVES), "") in _ITEM_ASSIGNMENTS
