"""Trees of tuples, lists, dicts, dataclasses and None, and their leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from shardcall_core.types.arrays import Array


@dataclasses.dataclass(frozen=True)
class Structure:
    """The structure of a tree: everything but its leaves.

    Attributes:
        kind: the class of a node; None for a leaf.
        keys: the keys of its children: those of a dict, the fields of a dataclass, else indices.
        children: the structures of its children.
    """

    kind: type | None
    keys: tuple[Hashable, ...] = ()
    children: tuple[Structure, ...] = ()

    @property
    def leaf_count(self) -> int:
        """The number of leaves."""
        return 1 if self.kind is None else sum(child.leaf_count for child in self.children)

    def with_leaves(self, leaves: Iterable[Any]) -> Any:
        """Returns a tree of this structure."""
        return self._filled(iter(leaves))

    def paths(self, prefix: str = "") -> Iterator[str]:
        """Yields the names of the leaves, such as ``params['w'][0]``."""
        if self.kind is None:
            yield prefix
        for key, child in zip(self.keys, self.children, strict=True):
            is_field = dataclasses.is_dataclass(self.kind)
            yield from child.paths(f"{prefix}.{key}" if is_field else f"{prefix}[{key!r}]")

    def _filled(self, leaves: Iterator[Any]) -> Any:
        kind = self.kind
        if kind is None:
            return next(leaves)
        if kind is type(None):
            return None
        values = [child._filled(leaves) for child in self.children]
        if kind is dict:
            return dict(zip(self.keys, values, strict=True))
        if kind in (tuple, list):
            return kind(values)
        if issubclass(kind, tuple):  # a named tuple
            return kind(*values)
        made = object.__new__(kind)  # and no call of it, which could check or convert leaves that stand for others
        for key, value in zip(self.keys, values, strict=True):
            object.__setattr__(made, str(key), value)
        return made


_LEAF = Structure(None)
_NONE = Structure(type(None))


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Returns the leaves of a tree, and its structure.

    The entries of a dict come in the order of their keys, so that equal dicts have one structure.
    """
    leaves: list[Any] = []
    return leaves, _flattened(tree, leaves)


def _flattened(tree: Any, leaves: list[Any]) -> Structure:
    kind = type(tree)
    if tree is None:
        return _NONE
    if kind in (tuple, list) or (isinstance(tree, tuple) and hasattr(kind, "_fields")):
        return Structure(kind, tuple(range(len(tree))), tuple(_flattened(item, leaves) for item in tree))
    if kind is dict:
        keys = sorted(tree, key=lambda key: (type(key).__name__, key))
        return Structure(dict, tuple(keys), tuple(_flattened(tree[key], leaves) for key in keys))
    if dataclasses.is_dataclass(kind) and kind is not Array and not hasattr(kind, "__remote_array__"):
        names = [field.name for field in dataclasses.fields(kind)]
        return Structure(kind, tuple(names), tuple(_flattened(getattr(tree, name), leaves) for name in names))
    leaves.append(tree)
    return _LEAF
