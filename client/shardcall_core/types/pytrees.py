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
        node_type: the class of a node; None for a leaf.
        keys: the keys of its children: those of a dict, the fields of a dataclass, else indices.
        children: the structures of its children.
    """

    node_type: type | None
    keys: tuple[Hashable, ...] = ()
    children: tuple[Structure, ...] = ()

    @property
    def leaf_count(self) -> int:
        """The number of leaves."""
        return 1 if self.node_type is None else sum(child.leaf_count for child in self.children)

    def with_leaves(self, leaves: Iterable[Any]) -> Any:
        """Returns a tree of this structure."""
        return self._filled(iter(leaves))

    def paths(self, prefix: str = "") -> Iterator[str]:
        """Yields the names of the leaves, such as ``params['w'][0]``."""
        if self.node_type is None:
            yield prefix
        for key, child in zip(self.keys, self.children, strict=True):
            is_field = dataclasses.is_dataclass(self.node_type)
            yield from child.paths(f"{prefix}.{key}" if is_field else f"{prefix}[{key!r}]")

    def _filled(self, leaves: Iterator[Any]) -> Any:
        node_type = self.node_type
        if node_type is None:
            return next(leaves)
        if node_type is type(None):
            return None
        values = [child._filled(leaves) for child in self.children]
        if node_type is dict:
            return dict(zip(self.keys, values, strict=True))
        if node_type in (tuple, list):
            return node_type(values)
        if issubclass(node_type, tuple):  # a named tuple
            return node_type(*values)
        # The class is not called: it could check or convert leaves that stand for others.
        instance = object.__new__(node_type)
        for key, value in zip(self.keys, values, strict=True):
            object.__setattr__(instance, str(key), value)
        return instance


_LEAF = Structure(None)
_NONE = Structure(type(None))


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Returns the leaves of a tree, and its structure.

    The entries of a dict come in the order of their keys, so that equal dicts have one structure.
    """
    leaves: list[Any] = []
    return leaves, _flattened(tree, leaves)


def _flattened(tree: Any, leaves: list[Any]) -> Structure:
    node_type = type(tree)
    if tree is None:
        return _NONE
    if node_type in (tuple, list) or (isinstance(tree, tuple) and hasattr(node_type, "_fields")):
        return Structure(node_type, tuple(range(len(tree))), tuple(_flattened(item, leaves) for item in tree))
    if node_type is dict:
        keys = sorted(tree, key=lambda key: (type(key).__name__, key))
        return Structure(dict, tuple(keys), tuple(_flattened(tree[key], leaves) for key in keys))
    if dataclasses.is_dataclass(node_type) and node_type is not Array and not hasattr(node_type, "__remote_array__"):
        names = [field.name for field in dataclasses.fields(node_type)]
        return Structure(node_type, tuple(names), tuple(_flattened(getattr(tree, name), leaves) for name in names))
    leaves.append(tree)
    return _LEAF
