"""The nodes of graphs in the messages of errors, which begin with them: the outermost first."""

from __future__ import annotations

import re

_NODE = re.compile(r"node (\d+), [^:]*: ")


def with_node(index: int, kernel: str, message: str) -> str:
    """Returns the message of an error of a node.

    Args:
        index: the index of the node in its graph.
        kernel: the name of its kernel.
        message: the message of the kernel, or of a node in a graph that it runs.
    """
    return f"node {index}, {kernel}: {message}"


def without_node(message: str) -> tuple[int, str] | None:
    """Returns the index of the node that a message begins with, and the rest; None if it begins with none."""
    match = _NODE.match(message)
    return None if match is None else (int(match[1]), message[match.end() :])
