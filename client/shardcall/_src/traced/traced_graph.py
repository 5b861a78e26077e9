"""Graphs as they were traced: the types of their values, and the lines of the caller's code that they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardcall._src.device_arrays.plan_steps import PlanStep
from shardcall_core.element_types import is_inexact
from shardcall_core.graphs.graph import Graph, Node, Value, bodies_of, is_dynamic
from shardcall_core.graphs.node_names import without_node
from shardcall_core.types.arrays import Array
from shardcall_core.types.errors import ShardcallError, with_message


@dataclass(frozen=True)
class TracedGraph:
    """A graph in its canonical form.

    Attributes:
        nodes: its nodes.
        inputs: the types of its inputs.
        types: the types of the results of each node.
        lines: the file and line of each node.
    """

    nodes: Sequence[Node]
    inputs: Sequence[Array]
    types: Sequence[Sequence[Array]]
    lines: Sequence[str]

    @property
    def calls(self) -> list[tuple[Node, str]]:
        """The nodes, each with its line."""
        return [*zip(self.nodes, self.lines, strict=True)]

    def type_of(self, value: Value) -> Array:
        """Returns the type of a value."""
        return self.inputs[value.number] if value.node < 0 else self.types[value.node][value.number]


Bodies = Mapping[Graph, TracedGraph]
"""Graphs that nodes run, as they were traced."""


def located(error: ShardcallError, calls: Sequence[tuple[Node, str]], bodies: Bodies) -> ShardcallError:
    """Returns an error of a program whose message names the line of a call where the server's names its node.

    Args:
        error: the error.
        calls: the nodes of the program, each with its line.
        bodies: the graphs that they run.
    """
    message, where, within = error.message, "", [calls]
    while (named := without_node(message)) is not None:
        index, message = named
        # The server does not say which branch of a cond it is, so there may be several calls.
        at = [lines[index] for lines in within if index < len(lines)]
        if not at:
            return error
        where = f"{_name(at[0][0])} at {' or '.join(sorted({line for _, line in at}))}: "
        within = [bodies[graph].calls for node, _ in at for graph in bodies_of(node)]
    return with_message(error, where + message) if where else error


def with_lines(steps: Sequence[PlanStep], calls: Sequence[tuple[Node, str]], bodies: Bodies) -> tuple[PlanStep, ...]:
    """Returns the steps of a plan with the lines of their calls.

    Args:
        steps: the steps.
        calls: the nodes that they are, each with its line.
        bodies: the graphs that the nodes run.
    """
    located_steps = []
    for step, (node, line) in zip(steps, calls, strict=True):
        within = (
            with_lines(body, bodies[graph].calls, bodies) if graph in bodies else body
            for body, graph in zip(step.bodies, bodies_of(node), strict=True)
        )
        located_steps.append(replace(step, line=line, bodies=tuple(within)))
    return tuple(located_steps)


def _name(node: Node) -> str:
    """Returns the name of what the caller wrote."""
    kernel = "loop" if node.kernel == "graph" else node.kernel
    return str(dict(node.parameters).get("transform", kernel))


def find_dynamic_loop(graph: Graph, bodies: Bodies, inputs: Sequence[int]) -> str | None:
    """Returns the line of a loop that has no derivative with respect to inputs of a graph; None if there is none.

    The server refuses the same.

    Args:
        graph: the graph.
        bodies: that graph and those in it.
        inputs: the inputs.
    """
    traced = bodies[graph]
    active = {Value(-1, i) for i in inputs if is_inexact(traced.inputs[i].dtype)}
    for i, node in enumerate(traced.nodes):
        differentiable = [Value(i, k) for k, result_type in enumerate(traced.types[i]) if is_inexact(result_type.dtype)]
        depends = [k for k, value in enumerate(node.operands) if value in active]
        if not depends or not differentiable:
            continue
        parameters = dict(node.parameters)
        if is_dynamic(node.kernel, parameters.get("carried"), parameters.get("count")):
            return traced.lines[i]
        is_plain = node.kernel == "vmap" or (node.kernel == "graph" and not parameters.get("carried"))
        for body in bodies_of(node):
            # In a loop what depends on an input may become any other one.
            within = [k for k in range(len(bodies[body].inputs)) if not is_plain or k in depends]
            line = find_dynamic_loop(body, bodies, within)
            if line is not None:
                return line
        active.update(differentiable)
    return None
