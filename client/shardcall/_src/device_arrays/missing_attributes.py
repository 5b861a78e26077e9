"""Attributes and arguments of NumPy's arrays that arrays on the mesh do not have, and what to use instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardcall_core.types.errors import InvalidOperandError

_FROM_VALUES = "the values are on the mesh: use get().{}, on a copy of them in this process"
_INSTEAD: Mapping[str, str] = {
    **{
        name: _FROM_VALUES.format(name)
        for name in (*("byteswap", "ctypes", "data", "dump", "dumps", "getfield", "tofile"),)
    },
    "__array_interface__": "the values are on the mesh: pass array.get(), a copy of them in this process",
    "itemset": "assign to the element, array[index] = value",
    "newbyteorder": "the elements have the byte order of the server",
    "ptp": "use max() - min()",
    "resize": "use reshape, or array = xp.resize(array, shape) for another number of elements",
    "addressable_shards": "blocks has the position of each device's part, and get() a copy of all values",
    "block_until_ready": "get() waits for the values, and client.synchronize() for all calls",
    "sharding": "use mesh and spec",
    "setfield": "assign to elements, array[key] = values",
}


_ASSIGNED: Mapping[str, str] = {
    "dtype": "write array = array.astype(dtype)",
}


def missing_attribute(array: object, name: str) -> AttributeError | InvalidOperandError:
    """Returns the error for an attribute that an array does not have; names what to use instead of NumPy's."""
    if name == "__jax_array__":  # JAX replaces an AttributeError or a TypeError by one of its own
        return InvalidOperandError(
            "a function of JAX takes no arrays on the mesh: use NumPy's function, such as np.sin(array), or that of "
            "client.xp; for JAX in this process pass array.get(), not in a traced function"
        )
    instead = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
    message = f"{type(array).__name__!r} object has no attribute {name!r}{instead}"
    return AttributeError(message, name=name, obj=array)


def unchangeable_attribute(array: object, name: str) -> AttributeError:
    """Returns the error for an assignment to an attribute of an array; names what to write instead of NumPy's."""
    instead = _ASSIGNED.get(name, "arrays on the mesh take no attributes")
    message = f"{name!r} of a {type(array).__name__} cannot be set; {instead}"
    return AttributeError(message, name=name, obj=array)


def unsupported(what: str, near: Sequence[str] = ()) -> TypeError:
    """Returns the error for a function or a keyword of NumPy that arrays on the mesh do not have.

    Args:
        what: its name.
        near: similar names of functions that they have; the first is named.
    """
    similar = f"; {near[0]} does" if near else ""
    return TypeError(
        f"{what} does not run on the mesh{similar}; to run it in this process, pass array.get() in place of the array, "
        "not in a traced function"
    )


def check_row_major(order: str | None) -> None:
    """Refuses memory orders other than row-major; NumPy's "A" and "K" mean "C" here.

    Raises:
        TypeError: for column-major order.
        ValueError: for an unknown order.
    """
    if order in ("F", "f"):
        raise TypeError(
            f"order={order!r} and arrays on the mesh are in row-major order; leave order out, or use get() for a NumPy "
            "array in another order"
        )
    if order not in (None, "C", "A", "K", "c", "a", "k"):
        error_class = ValueError if isinstance(order, str) else TypeError
        raise error_class(f"order={order!r} is not one of: C, A, K")
