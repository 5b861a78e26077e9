"""Meshes: grids of devices."""

from __future__ import annotations

import keyword
import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from shardcall.v1 import mesh_pb2
from shardcall_core.markup import page
from shardcall_core.types.errors import ProtocolError, ShardingError
from shardcall_core.types.tracebacks import shortened

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LARGEST = 2**63 - 1
_USUAL_NAMES = "xyz"
_MAX_SHOWN = 32  # devices in a row or a column of a display


@dataclass(frozen=True, init=False, repr=False)
class Mesh:
    """A grid of devices with named axes: ``Mesh(x=4, y=2)``, ``Mesh({"x": 4, "y": 2})`` or ``Mesh((4, 2))``.

    Args:
        axes: sizes by name, outermost first; or up to three sizes, whose axes are named ``x``, ``y`` and ``z``.
        device_ids: the devices in row-major order of the axes; None for the server's first ones in their
            own order.
        sizes: the same as ``axes``, written as keywords.

    Raises:
        ShardingError: for a name that is no identifier, a size below 1, or devices that do not fill the mesh.
    """

    axes: tuple[tuple[str, int], ...]
    device_ids: tuple[int, ...] | None

    @shortened
    def __init__(
        self,
        axes: Mapping[str, int] | Sequence[int] | None = None,
        /,
        *,
        device_ids: Sequence[int] | None = None,
        **sizes: int,
    ) -> None:
        by_name = _by_name(axes)
        if by_name and sizes:
            raise _refusal("a mesh is given both by position and by keywords; give its axes one way")
        checked = tuple((_name(name), _size(name, size)) for name, size in (by_name or sizes).items())
        if not checked:
            raise _refusal("a mesh needs an axis; give one, such as Mesh(x=1) for one device")
        object.__setattr__(self, "axes", checked)
        object.__setattr__(self, "device_ids", None)
        if device_ids is not None:
            object.__setattr__(self, "device_ids", _ids(device_ids, self))

    @property
    def axis_names(self) -> tuple[str, ...]:
        """The axes' names, outermost first."""
        return tuple(name for name, _ in self.axes)

    @property
    def shape(self) -> Mapping[str, int]:
        """The axes' sizes by name, outermost first."""
        return MappingProxyType(dict(self.axes))

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(size for _, size in self.axes)

    @property
    def short(self) -> Mesh:
        """The mesh for display: without its device ids if these are 0, 1, …."""
        return Mesh(dict(self.axes)) if self.device_ids == tuple(range(self.size)) else self

    def __repr__(self) -> str:
        if any(keyword.iskeyword(name) or name == "device_ids" for name in self.axis_names):
            text = repr(dict(self.axes))
        else:
            text = ", ".join(f"{name}={size}" for name, size in self.axes)
        return f"Mesh({text})" if self.device_ids is None else f"Mesh({text}, device_ids={list(self.device_ids)})"

    def _repr_html_(self) -> str:
        """Returns a grid of the devices for a notebook: the last axis to the right, the others down."""
        across = min(self.axes[-1][1], _MAX_SHOWN)
        down = min(self.size // self.axes[-1][1], _MAX_SHOWN)
        ids = self.device_ids or range(self.size)
        rows = [ids[i * self.axes[-1][1] :][:across] for i in range(down)]
        *above, last = (f"{name} ({size})" for name, size in self.axes)
        axes = {"down": " × ".join(above), "right": last} if above else {"right": last}
        left_out = self.size - across * down
        if left_out:
            axes["not shown"] = f"{left_out:,} more devices"
        return page.page(repr(self.short), page.facts(axes), page.devices(rows))


MeshLike: TypeAlias = Mesh | Mapping[str, int] | Sequence[int]
"""A `Mesh`, or its sizes: ``{"x": 4, "y": 2}``, ``(4, 2)``."""


def as_mesh(value: MeshLike) -> Mesh:
    """Returns the mesh of a caller's value.

    Raises:
        ShardingError: if the value is invalid.
    """
    return value if isinstance(value, Mesh) else Mesh(value)


def to_proto(mesh: Mesh) -> mesh_pb2.Mesh:
    """Returns a mesh as a message."""
    axes = [mesh_pb2.MeshAxis(name=name, size=size) for name, size in mesh.axes]
    return mesh_pb2.Mesh(axes=axes, device_ids=mesh.device_ids or ())


def from_proto(message: mesh_pb2.Mesh) -> Mesh:
    """Returns the mesh in a message.

    Raises:
        ProtocolError: if it is invalid.
    """
    axes = {axis.name: axis.size for axis in message.axes}
    try:
        return Mesh(axes, device_ids=list(message.device_ids) or None)
    except ShardingError as error:
        raise ProtocolError(f"the server describes an invalid mesh: {error}") from None


def _by_name(axes: object) -> Mapping[str, int]:
    if axes is None:
        return {}
    if isinstance(axes, Mapping):
        return axes
    if not isinstance(axes, tuple | list) or any(_integer(size) is None for size in axes):
        raise _refusal(
            f"a mesh is made of {axes!r}; give sizes by name, such as Mesh(x=4, y=2) or {{'x': 4, 'y': 2}}, or a tuple "
            "of sizes, such as (4, 2)"
        )
    if len(axes) > len(_USUAL_NAMES):
        raise _refusal(
            f"a mesh of sizes {axes!r} has {len(axes)} axes, and without names it may have {len(_USUAL_NAMES)}; give "
            "sizes by name, such as Mesh(a=2, b=2, c=2, d=1)"
        )
    return dict(zip(_USUAL_NAMES, axes, strict=False))


def _name(name: object) -> str:
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise _refusal(
        f"{name!r} is no name for a mesh axis; use a letter or underscore, then letters, digits and underscores"
    )


def _size(name: str, size: object) -> int:
    number = _integer(size)
    if number is None or not 1 <= number <= _LARGEST:
        raise _refusal(f"mesh axis {name!r} has size {size!r}; a size is an integer from 1 to 2**63 - 1")
    return number


def _ids(device_ids: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
    numbers = [_integer(number) for number in device_ids]
    ids = tuple(number for number in numbers if number is not None and 0 <= number <= _LARGEST)
    if len(ids) < len(numbers):
        raise _refusal(f"device_ids is {device_ids!r}; ids are integers from 0 to 2**63 - 1", "mesh.device_ids")
    if len(ids) != mesh.size:
        raise _refusal(
            f"{mesh} has {mesh.size} devices and device_ids names {len(ids)}; name each device once",
            "mesh.device_ids",
        )
    if len(set(ids)) < len(ids):
        raise _refusal(f"device_ids {list(ids)} names a device twice; name each device once", "mesh.device_ids")
    return ids


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _refusal(message: str, field: str = "mesh") -> ShardingError:
    return ShardingError(message, reason="INVALID_MESH", field=field)
