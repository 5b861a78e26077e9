"""The lines of the caller's code in errors of the server, which names nodes of graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardcall._src.graphs.graph import Node, bodies_of, from_text
from shardcall._src.graphs.node_names import without_node
from shardcall._src.types.errors import ShardcallError, with_message

Lines = Mapping[str, Sequence[str]]
"""The file and line that each node of a graph comes from, by the text of the graph."""


def located(error: ShardcallError, graph: str, lines: Lines) -> ShardcallError:
    """Returns an error of a program whose message names the line of a call where the server's names its node.

    Args:
        error: the error.
        graph: the text of the program.
        lines: the lines of its nodes, and of those of the graphs in it.
    """
    message, texts, where = error.message, [graph], ""
    while (named := without_node(message)) is not None:
        index, rest = named
        # The server does not say which branch of a cond it is, so there may be several calls.
        written = {text: lines.get(text, ()) for text in texts}
        nodes = [(from_text(text).nodes[index], each[index]) for text, each in written.items() if index < len(each)]
        if not nodes:
            break
        where = f"{_name(nodes[0][0])} at {' or '.join(sorted({line for _, line in nodes}))}: "
        message, texts = rest, [body for node, _ in nodes for body in bodies_of(node)]
    return with_message(error, where + message) if where else error


def _name(node: Node) -> str:
    """Returns the name of what the caller wrote."""
    own = "loop" if node.kernel == "graph" else node.kernel
    return str(dict(node.parameters).get("transform", own))
