"""Partition specs: the sharding of arrays over a mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from shardcall.v1 import mesh_pb2
from shardcall_core.types.errors import ShardingError
from shardcall_core.types.tracebacks import shortened

Entry: TypeAlias = str | tuple[str, ...] | None
"""The mesh axes of one array axis: none, one, or several, outermost first."""

SpecLike: TypeAlias = str | Iterable[Any]
"""A `PartitionSpec`, ours or JAX's, or its entries: ``("x", None)``; ``"x"`` is ``P("x")``."""


class PartitionSpec(tuple[Entry, ...]):
    """The sharding of an array: entry i names the mesh axes that array axis i is sharded over.

    ``P("x", None)`` shards rows over mesh axis ``x``; ``P(("x", "y"))`` shards the first axis over both, ``x``
    outermost; ``P()`` replicates. Array axes without an entry are not sharded.

    Args:
        entries: None, the name of a mesh axis, or several names.

    Raises:
        ShardingError: if an entry is anything else, or a mesh axis is named twice.
    """

    __slots__ = ()

    @shortened
    def __new__(cls, *entries: Entry | Sequence[str]) -> PartitionSpec:
        """Checks the entries, which a tuple takes at construction."""
        canonical = tuple(_canonical(entry) for entry in entries)
        names = [name for entry in canonical for name in axis_names(entry)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ShardingError(
                f"{_text(canonical)} names mesh axis {twice[0]!r} twice; a mesh axis can shard only one array axis",
                reason="MESH_AXIS_REUSED",
                field="spec",
            )
        return super().__new__(cls, canonical)

    def __getnewargs__(self) -> tuple[Entry, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return _text(self)


P = PartitionSpec


def axis_names(entry: Entry) -> tuple[str, ...]:
    """Returns the mesh axes of one entry, outermost first."""
    return (entry,) if isinstance(entry, str) else entry or ()


def as_spec(value: SpecLike, field: str = "spec") -> PartitionSpec:
    """Returns a spec of this class for one of JAX's, for entries, or for the name of one mesh axis.

    Raises:
        ShardingError: for anything else.
    """
    if type(value) is PartitionSpec:
        return value
    # JAX's class has been named PartitionSpec and P; this attribute has stayed.
    if not isinstance(value, str | tuple | list) and not hasattr(type(value), "UNCONSTRAINED"):
        raise ShardingError(
            f'{field} is {value!r}; give shardcall.P(…), such as P("x", None), or None for the default',
            field=field,
        )
    if getattr(value, "unreduced", None) or getattr(value, "reduced", None):
        raise ShardingError(f"{field} is {value!r}; unreduced axes are not supported", field=field)
    try:
        return PartitionSpec(value) if isinstance(value, str) else PartitionSpec(*value)
    except ShardingError as error:
        raise ShardingError(f"{field} is {value!r}: {error}", reason=error.reason, field=field) from None


def as_specs(
    values: Sequence[SpecLike | None] | None, field: str, caller_name: Callable[[str], str] = str
) -> tuple[PartitionSpec | None, ...] | None:
    """Returns one spec for each operand or result; None stays None.

    Args:
        field: the name of all of them in errors.
        caller_name: returns the name of one in errors, of ``in_specs[0]``.

    Raises:
        ShardingError: for an invalid spec, and for a single spec instead of a list.
    """
    if values is None:
        return None
    if isinstance(values, PartitionSpec) or not isinstance(values, list | tuple):
        raise ShardingError(
            f"{field} is {values!r}; give a list, one spec or None for each, such as [P('x', None), None]",
            field=field,
        )
    named = ((spec, caller_name(f"{field}[{i}]")) for i, spec in enumerate(values))
    return tuple(None if spec is None else as_spec(spec, name) for spec, name in named)


def to_proto(spec: PartitionSpec | None) -> mesh_pb2.OptionalPartitionSpec:
    """Returns a spec as a message; None is unset."""
    if spec is None:
        return mesh_pb2.OptionalPartitionSpec()
    entries = [mesh_pb2.PartitionSpecEntry(axis_names=axis_names(entry)) for entry in spec]
    return mesh_pb2.OptionalPartitionSpec(spec=mesh_pb2.PartitionSpec(entries=entries))


def from_proto(message: mesh_pb2.PartitionSpec) -> PartitionSpec:
    """Returns the spec in a message."""
    return PartitionSpec(*(tuple(entry.axis_names) for entry in message.entries))


def _canonical(entry: object) -> Entry:
    if entry is None or isinstance(entry, str):
        return entry
    if isinstance(entry, tuple | list) and all(isinstance(name, str) for name in entry):
        return tuple(entry) if len(entry) > 1 else entry[0] if entry else None
    raise ShardingError(
        f"a spec's entry is {entry!r}; an entry is None, the name of a mesh axis, or a tuple of names",
        field="spec",
    )


def _text(entries: Iterable[Entry]) -> str:
    return f"P({', '.join(map(repr, entries))})"
