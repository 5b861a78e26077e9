"""Validation of meshes and specs, without JAX."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardcall_core.call_error import CallError, Reason, did_you_mean, shorten
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, format_spec, row_sharding

_MESH_AXIS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_MAX_MESH_AXES = 16


def check_mesh(mesh: MeshAxes, device_ids: Sequence[int], existing_ids: Sequence[int]) -> tuple[int, ...]:
    """Checks a mesh and returns the ids of its devices.

    Args:
        mesh: the axes and their sizes.
        device_ids: the devices in row-major order of the axes; empty for the first ones.
        existing_ids: the ids of all devices of the server.

    Raises:
        CallError: INVALID_MESH or NOT_ENOUGH_DEVICES.
    """
    _check_mesh_axes(mesh)
    count = mesh.device_count
    if count > len(existing_ids):
        raise CallError(
            Reason.NOT_ENOUGH_DEVICES,
            f"the mesh ({shorten(str(mesh))}) asks for {count} devices and the server has {len(existing_ids)}; "
            "make an axis smaller, or start the server with more devices",
            field="mesh",
            metadata={"asked": str(count), "available": str(len(existing_ids))},
        )
    ids = tuple(device_ids) or tuple(existing_ids[:count])
    if len(ids) != count:
        raise CallError(
            Reason.INVALID_MESH,
            f"the mesh ({mesh}) has {count} devices and device_ids names {len(ids)}; name each device once",
            field="mesh.device_ids",
        )
    if unknown := sorted(set(ids) - set(existing_ids)):
        raise CallError(
            Reason.NOT_ENOUGH_DEVICES,
            f"device_ids names {shorten(str(unknown))}, which the server does not have; "
            f"it has {shorten(str(list(existing_ids)))}",
            field="mesh.device_ids",
        )
    if len(set(ids)) < count:
        raise CallError(
            Reason.INVALID_MESH,
            f"device_ids {shorten(str(list(ids)))} names a device twice; name each device once",
            field="mesh.device_ids",
        )
    return ids


def _check_mesh_axes(mesh: MeshAxes) -> None:
    for name, size in mesh.axes:
        if not _MESH_AXIS_NAME.fullmatch(name):
            raise CallError(
                Reason.INVALID_MESH,
                f"{shorten(name)!r} is no name for a mesh axis; "
                "use a letter or underscore, then at most 63 letters, digits and underscores",
                field="mesh",
            )
        if size < 1:
            raise CallError(
                Reason.INVALID_MESH, f"mesh axis {name!r} has size {size}; a size is 1 or more", field="mesh"
            )
    if len(mesh.axes) > _MAX_MESH_AXES:
        raise CallError(
            Reason.INVALID_MESH,
            f"the mesh has {len(mesh.axes)} axes; give at most {_MAX_MESH_AXES}",
            field="mesh",
        )
    if not mesh.axes:
        raise CallError(Reason.INVALID_MESH, "the mesh has no axes; give one, such as x=1 for one device", field="mesh")
    if len(set(mesh.names)) < len(mesh.names):
        raise CallError(
            Reason.INVALID_MESH,
            f"the mesh ({shorten(str(mesh))}) names an axis twice; axis names are unique",
            field="mesh",
        )


def check_spec(field: str, name: str, spec: Spec, array: ArrayType, mesh: MeshAxes) -> Spec:
    """Checks a spec and returns it completed to the array's rank.

    Args:
        field: the field of the request that the error names.
        name: the name of the array, for the message.
        spec: the entries of the request, of at most the array's rank.
        mesh: the axes that entries may name.

    Raises:
        CallError: SPEC_TOO_LONG, UNKNOWN_MESH_AXIS or MESH_AXIS_REUSED.
    """
    subject = f"the spec of {name}, {shorten(format_spec(spec))},"
    if len(spec) > array.ndim:
        raise CallError(
            Reason.SPEC_TOO_LONG,
            f"{subject} has {len(spec)} entries, and {name} has {array.ndim} axes (shape {shorten(str(array.shape))}); "
            f"give at most {array.ndim}",
            field=field,
        )
    seen: set[str] = set()
    for axis_name in (axis_name for axis_names in spec for axis_name in axis_names):
        if axis_name not in mesh.names:
            raise CallError(
                Reason.UNKNOWN_MESH_AXIS,
                f"{subject} names {shorten(axis_name)!r}, no axis of the mesh ({mesh}); "
                f"{did_you_mean(axis_name, mesh.names)}",
                field=field,
            )
        if axis_name in seen:
            raise CallError(
                Reason.MESH_AXIS_REUSED,
                f"{subject} names mesh axis {axis_name!r} twice; a mesh axis can shard one array axis",
                field=field,
            )
        seen.add(axis_name)
    return spec + ((),) * (array.ndim - len(spec))


def check_put(
    array: ArrayType, spec: Spec | None, mesh: MeshAxes, device_ids: Sequence[int], existing_ids: Sequence[int]
) -> tuple[tuple[int, ...], Spec]:
    """Checks the placement of a resident array and returns its devices and its spec.

    Args:
        spec: the entries of the request; None shards the rows over all of the mesh.
        mesh: the axes that entries may name.
        device_ids: see `check_mesh`.
        existing_ids: the ids of all devices of the server.

    Raises:
        CallError: as `check_mesh` and `check_spec`.
    """
    ids = check_mesh(mesh, device_ids, existing_ids)
    return ids, check_spec("spec", "the array", row_sharding(array.ndim, mesh) if spec is None else spec, array, mesh)
