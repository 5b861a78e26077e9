"""The base of functions that create arrays: where their results are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsIndex, TypedDict

from shardcall.namespace.inspection import check_device
from shardcall.namespace.shapes import ShapeNamespace
from shardcall_core.types.mesh import MeshLike
from shardcall_core.types.specs import SpecLike

Shape = SupportsIndex | Sequence[SupportsIndex]


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


class Likeness(Destination, total=False):
    """The keywords of functions that create arrays like others.

    Attributes:
        shape: the shape; None for that of the other array.
    """

    shape: Shape | None


def _show_keywords(function: Callable[..., Any], keywords: Mapping[str, Any]) -> None:
    """Gives a function a signature that shows keywords by their names."""
    *own, _ = (signature := inspect.signature(function)).parameters.values()
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in sorted(keywords.items(), key=lambda item: item[0] in Destination.__annotations__)
    ]
    function.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]


class Creating(ShapeNamespace):
    """Calls functions that create arrays, and shows the keywords of `Destination` in their signatures."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for function in {
            value: None for value in vars(cls).values() if inspect.isfunction(value)
        }:  # some have two names
            for kind in (Destination, Likeness):
                if function.__annotations__.get("to") == f"Unpack[{kind.__name__}]":
                    _show_keywords(function, kind.__annotations__)

    def _created(self, name: str, *operands: Any, to: Destination, **parameters: Any) -> Any:
        check_device(to)
        mesh, spec = to.get("mesh"), to.get("spec")
        return self.call(name, *operands, mesh=mesh, out_specs=None if spec is None else [spec], **parameters)
