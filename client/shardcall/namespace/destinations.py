"""The placement of arrays that functions create: their devices and sharding."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsIndex, TypedDict, TypeVar

from shardcall._src.device_arrays.array_protocols import DEVICE
from shardcall.namespace.base import NamespaceBase
from shardcall_core.types.mesh import MeshLike
from shardcall_core.types.specs import SpecLike

Shape = SupportsIndex | Sequence[SupportsIndex]
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Destination(TypedDict, total=False):
    """The keywords of functions that create arrays; all may be left out.

    Attributes:
        device: ``"mesh"`` or None, as the Python array API standard has it.
        mesh: the devices; None for one device, or for the server's mesh if there is a spec.
        spec: the sharding; None for the first axis, over all mesh axes.
    """

    device: str | None
    mesh: MeshLike | None
    spec: SpecLike | None


class LikeOptions(Destination, total=False):
    """The keywords of functions that create arrays like others.

    Attributes:
        shape: the shape; None for that of the other array.
    """

    shape: Shape | None


def creating(function: _Function) -> _Function:
    """Shows the keywords of `Destination` in the signature of a function that creates arrays."""
    *others, to = (signature := inspect.signature(function)).parameters.values()
    names = ("shape",) if to.annotation == "Unpack[LikeOptions]" else ()
    named = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=LikeOptions.__annotations__[name]
        )
        for name in (*names, *Destination.__annotations__)
    ]
    function.__signature__ = signature.replace(parameters=[*others, *named])  # type: ignore[attr-defined]
    return function


def check_device(to: Mapping[str, Any]) -> None:
    """Checks the keywords of a function that say where its result is.

    Raises:
        TypeError: for an unknown keyword.
        ValueError: for a device that there is not.
    """
    if unknown := sorted(to.keys() - {"device", "mesh", "spec"}):
        raise TypeError(f"got an unexpected keyword argument {unknown[0]!r}; there are device, mesh and spec")
    if to.get("device") not in (None, DEVICE):
        raise ValueError(
            f"device={to['device']!r}; the only device is {DEVICE!r}: give mesh=… or spec=… to choose among its devices"
        )


def created(xp: NamespaceBase, name: str, *operands: Any, to: Destination, **parameters: Any) -> Any:
    """Runs a function that creates an array where ``to`` says."""
    check_device(to)
    mesh, spec = to.get("mesh"), to.get("spec")
    return xp.call(name, *operands, mesh=mesh, out_specs=None if spec is None else [spec], **parameters)
