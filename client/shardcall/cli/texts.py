"""Operands, meshes, specs and parameters as the arguments of a command."""

from __future__ import annotations

import ast
import re
from typing import Any

from shardcall.cli.exits import usage_error
from shardcall_core.types.arrays import Array
from shardcall_core.types.mesh import Mesh
from shardcall_core.types.specs import P, PartitionSpec

_TYPE = re.compile(r"(?P<dtype>[a-z][a-z0-9_]*)\s*\[(?P<shape>[\d\s,]*)\]")
_AXIS = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(\d+)\s*")
_KEYWORD = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_UNSHARDED = re.compile(r"(?<![\w'\"])-(?![\w'\"])")


def parse_type(text: str) -> Array | None:
    """Returns the type in a text such as ``float64[4096,4096]``; None for a text of another form.

    Raises:
        ShardcallError: for an element type that does not exist.
    """
    if (match := _TYPE.fullmatch(text.strip())) is None:
        return None
    return Array(tuple(int(size) for size in match["shape"].split(",") if size.strip()), match["dtype"])


def parse_mesh(text: str) -> Mesh:
    """Returns the mesh in a text such as ``x=4,y=2``.

    Raises:
        CommandError: for another text.
        ShardcallError: for a mesh that cannot be.
    """
    axes = [_AXIS.fullmatch(part) for part in text.split(",")]
    if not all(axes):
        raise usage_error(f"--mesh is {text!r}; give sizes by name, such as x=8 or x=4,y=2")
    names = [match[1] for match in axes if match]
    if len(set(names)) < len(names):
        raise usage_error(f"--mesh is {text!r}, which names an axis twice; give every axis another name")
    return Mesh({match[1]: int(match[2]) for match in axes if match})


def parse_spec(text: str, option: str = "--spec") -> PartitionSpec:
    """Returns the spec in a text such as ``x,-`` or ``P(("a", "b"), None)``; an empty one replicates.

    Raises:
        CommandError: for another text.
        ShardcallError: for a spec that cannot be.
    """
    inner = text.strip()
    if inner.startswith("P(") and inner.endswith(")"):
        inner = inner[2:-1]
    try:
        tree = ast.parse(f"({_UNSHARDED.sub('None', inner)},)" if inner.strip() else "()", mode="eval").body
        return P(*(_entry(node) for node in tree.elts)) if isinstance(tree, ast.Tuple) else P(_entry(tree))
    except (SyntaxError, ValueError):
        raise usage_error(
            f"{option} is {text!r}; name the mesh axis of each array axis, - for none, as in x,- or (a,b),-"
        ) from None


def keyword(text: str) -> tuple[str, str] | None:
    """Returns name and value of an argument of the form ``name=value``; None for another argument."""
    match = _KEYWORD.fullmatch(text)
    return (match[1], match[2]) if match else None


def parse_value(text: str) -> Any:
    """Returns the parameter in a text: None, a bool, a number or integers in Python's form, else the text itself."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return {"true": True, "false": False, "none": None, "inf": float("inf"), "nan": float("nan")}.get(text, text)


def is_number(value: object) -> bool:
    """Returns whether a parsed value is a number, which is an operand of rank 0."""
    return isinstance(value, int | float | complex)


def _entry(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str)):
        return node.value
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_entry(item) for item in node.elts)
    raise ValueError(ast.dump(node))
