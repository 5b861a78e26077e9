"""Regions of programs: calls that a device computes for its block together, after one exchange of rows.

In a region a value is not in the blocks of its own layout. Along a sharded axis, device d has the rows from ``d * block
+ before`` to ``(d + 1) * block + behind``, where the block is the same for all values of the region, and the margins
are those that the results need. So a slice is a part of the rows that are there, and nothing is sent between the calls.
What the region takes is extended by its margins once, however many slices there are of it, and rows near the border of
a block are computed by two devices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from shardcall_core.graphs.graph import Constant, Value
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, block_shape
from shardcall_server.kernels.array_functions.moved_rows import MovedRows
from shardcall_server.kernels.core.blockwise import Blockwise
from shardcall_server.kernels.graphs.plan import GraphPlan
from shardcall_server.kernels.stencils.exchange import ShardedAxis

Names: TypeAlias = tuple[str, ...]

_MAX_MARGIN = 2
"""The part of a block that margins may be: 1 / this."""

_MIN_INNER_ROWS = 1
"""The minimum number of rows inside of a block that is computed in pieces, as a multiple of its margins."""

_MIN_BYTES_OF_PIECES = 1 << 18
"""The minimum bytes of the blocks of inputs for which pieces are compiled, since they are copied otherwise."""


class Margins(NamedTuple):
    """The rows of a value that a device has, relative to the block of the region with its index.

    Attributes:
        before: the first row, relative to the first of the block.
        behind: the row after the last, relative to that of the block.
    """

    before: int
    behind: int

    def moved(self, distance: int) -> Margins:
        """Returns the margins of rows at a distance."""
        return Margins(self.before + distance, self.behind + distance)

    def joined(self, other: Margins | None) -> Margins:
        """Returns the margins of both."""
        if other is None:
            return self
        return Margins(min(self.before, other.before), max(self.behind, other.behind))


class Placed(NamedTuple):
    """A value in a layout.

    Attributes:
        value: the value.
        spec: the spec.
    """

    value: Value
    spec: Spec


@dataclass(frozen=True)
class FusedRegion:
    """Some calls of a graph that are computed together.

    Attributes:
        calls: the calls, by the indices of their nodes, in order.
        inputs: what they take of others, in the layouts that they need.
        outputs: their results that others take.
        blocks: the number of rows of a block, by the mesh axes that shard an axis.
        margins: the margins of every value that is in the region, by the mesh axes that shard an axis.
    """

    calls: Mapping[int, Blockwise]
    inputs: tuple[Placed, ...]
    outputs: tuple[Value, ...]
    blocks: Mapping[Names, int]
    margins: Mapping[Placed, Mapping[Names, Margins]]

    @property
    def first_step(self) -> int:
        """The index of its first call."""
        return next(iter(self.calls))

    def form(self, plan: GraphPlan, types: Mapping[Value, ArrayType]) -> Hashable:
        """Returns what two regions have in common if one program computes both.

        Args:
            plan: the plan of the graph.
            types: the types of its values.
        """
        values = [*(placed.value for placed in self.inputs), *(Value(i, 0) for i in self.calls)]
        positions: dict[Value | Constant, int] = {value: k for k, value in enumerate(dict.fromkeys(values))}
        nodes = [(i - self.first_step, plan.nodes[i]) for i in self.calls]
        return (
            tuple(
                (i, node.kernel, node.problem, node.out_specs, tuple(positions.get(o, o) for o in node.operands))
                for i, node in nodes
            ),
            tuple((positions[value], types[value], spec) for value, spec in self.inputs),
            tuple((positions[value], plan.specs[value]) for value in self.outputs),
            tuple(self.blocks.items()),
            tuple((positions[value], spec, tuple(of.items())) for (value, spec), of in self.margins.items()),
        )

    def first_taker(self, plan: GraphPlan, placed: Placed) -> int:
        """Returns the index of the first call that takes an input at another distance than 0, or at any."""
        takers = [
            (not any(alignment and alignment.distance for alignment in aligned), i)
            for i, call in self.calls.items()
            for operand, aligned in zip(plan.nodes[i].operands, call.aligned, strict=True)
            if operand == placed.value
        ]
        return min(takers)[1]


class RegionPart(NamedTuple):
    """A part of the blocks of a region: those rows of an axis.

    Attributes:
        names: the mesh axes that shard the axis.
        start: the first row.
        stop: the row after the last.
    """

    names: Names
    start: int
    stop: int


Step: TypeAlias = int | FusedRegion
"""The index of a node, or a region."""


class RegionPlanner:
    """Divides a graph into regions, and nodes that are computed by their kernels' strategies.

    Args:
        plan: the plan of the graph.
        types: the types of its values.
        results: its results.
        mesh: the mesh.
    """

    def __init__(
        self, plan: GraphPlan, types: Mapping[Value, ArrayType], results: Sequence[Value], mesh: MeshAxes
    ) -> None:
        self._plan = plan
        self._types = types
        self._mesh = mesh
        self._results = frozenset(results)
        self._needed = _needed_nodes(plan, results)
        self._takers: dict[Value, list[int]] = {}
        for i in sorted(self._needed):
            for value in plan.nodes[i].operands:
                if isinstance(value, Value):
                    self._takers.setdefault(value, []).append(i)
        self._calls = {i: call for i in range(len(plan.nodes)) if (call := self._blockwise(i)) is not None}

    def steps(self) -> list[Step]:
        """Returns the steps of the graph in their sequence, without nodes that no result needs."""
        levels: dict[int, list[int]] = {}
        for i, of_node in enumerate(self._levels()):
            if i in self._needed:
                levels.setdefault(of_node, []).append(i)
        steps: list[Step] = []
        for level in sorted(levels):
            if level % 2:
                steps += levels[level]
                continue
            for connected in self._connected(levels[level]):
                region = self._region(connected) if self._needs_region(connected) else None
                steps += connected if region is None else [region]
        return steps

    def _blockwise(self, index: int) -> Blockwise | None:
        """Returns a node as a call of a region; None if it cannot be in one."""
        node = self._plan.nodes[index]
        if node.out_specs != node.problem.out_specs or not all(math.prod(r.shape) for r in node.problem.results):
            return None
        call = node.kernel.blockwise(node.problem)
        if call is None or not any(names for spec in node.out_specs for names in spec):
            return None
        for operand, aligned in zip(node.operands, call.aligned, strict=True):
            if isinstance(operand, Constant) and any(aligned):
                return None
        return call

    def _levels(self) -> list[int]:
        """Returns the level of each node: even ones of regions, odd ones of other nodes, each above what it needs."""
        levels: list[int] = []
        reaches: list[Mapping[Names, Margins]] = []
        for i, node in enumerate(self._plan.nodes):
            call = self._calls.get(i)
            alone = None if call is None else self._reach(i, call, [None] * len(node.operands))
            if alone is None:
                self._calls.pop(i, None)
            sources = [value.node if isinstance(value, Value) else -1 for value in node.operands]
            below = max((levels[k] for k in sources if k >= 0), default=0)
            if call is None or alone is None:
                levels.append(below + 1 - below % 2)
                reaches.append({})
                continue
            # A value that is needed in another layout than that of its region is moved between two regions.
            moved = [
                levels[k] + 2
                for k, spec, operand in zip(sources, call.in_specs, node.operands, strict=True)
                if k in self._calls and isinstance(operand, Value) and self._plan.specs[operand] != spec
            ]
            level = max([below + below % 2, *moved])
            reach = self._reach(i, call, [reaches[k] if k >= 0 and levels[k] == level else None for k in sources])
            levels.append(level if reach is not None else level + 2)
            reaches.append(alone if reach is None else reach)
        return levels

    def _reach(
        self, index: int, call: Blockwise, of_operands: Sequence[Mapping[Names, Margins] | None]
    ) -> Mapping[Names, Margins] | None:
        """Returns the rows of a region's inputs that a node needs; None if these are too many.

        Args:
            index: the index of the node.
            call: the call.
            of_operands: those that the operands need, for those that are computed in the region.
        """
        node, reach = self._plan.nodes[index], dict[Names, Margins]()
        (spec,), blocks = node.out_specs, self._natural_block(Value(index, 0))
        entries = zip(node.operands, call.in_specs, call.aligned, of_operands, strict=True)
        for operand, call_spec, aligned, before in entries:
            for axis, alignment in enumerate(aligned):
                if alignment is None or not isinstance(operand, Value):
                    continue
                names = spec[alignment.axis]
                so_far = Margins(0, 0) if before is None else before.get(names, Margins(0, 0))
                reach[names] = so_far.moved(alignment.distance).joined(reach.get(names))
                block = ShardedAxis.of(self._types[operand], call_spec, axis, self._mesh).block
                drift = (self._mesh.size(names) - 1) * abs(block - blocks[names])
                if max(-reach[names].before, reach[names].behind, drift) * _MAX_MARGIN > block:
                    return None
        return reach

    def _natural_block(self, value: Value) -> Mapping[Names, int]:
        """Returns the rows of the blocks of a value in its layout, by the mesh axes that shard its axes."""
        return self._blocks_of(Placed(value, self._plan.specs[value]))

    def _blocks_of(self, placed: Placed) -> Mapping[Names, int]:
        shape = block_shape(self._types[placed.value].shape, placed.spec, self._mesh)
        return {names: rows for names, rows in zip(placed.spec, shape, strict=True) if names}

    def _operands(self, index: int) -> Iterator[tuple[Placed, int]]:
        """Yields the operands of a node that are values, in the layout that the node needs, with their positions."""
        node, call = self._plan.nodes[index], self._calls[index]
        for k, (operand, spec) in enumerate(zip(node.operands, call.in_specs, strict=True)):
            if isinstance(operand, Value):
                yield Placed(operand, spec), k

    def _connected(self, nodes: Sequence[int]) -> list[list[int]]:
        """Returns the nodes of a level in groups, of which no two have a value in common."""
        parents: dict[Value, Value] = {}

        def root(value: Value) -> Value:
            while (parent := parents.setdefault(value, value)) != value:
                parents[value] = value = parents[parent]
            return value

        for i in nodes:
            for placed, _ in self._operands(i):
                parents[root(placed.value)] = root(Value(i, 0))
        groups: dict[Value, list[int]] = {}
        for i in nodes:
            groups.setdefault(root(Value(i, 0)), []).append(i)
        return list(groups.values())

    def _needs_region(self, nodes: Sequence[int]) -> bool:
        """Returns whether nodes are to be computed together; elementwise calls alone the compiler fuses as well."""
        return len(nodes) > 1 and any(self._plan.nodes[i].strategy.name != "gspmd" for i in nodes)

    def _region(self, nodes: Sequence[int]) -> FusedRegion | None:
        """Returns the region of some nodes; None if it would exchange more than margins."""
        inside = set(nodes)
        values = [Value(i, 0) for i in nodes]
        outputs = tuple(v for v in values if v in self._results or not inside.issuperset(self._takers.get(v, ())))
        placed = [placed for i in nodes for placed, _ in self._operands(i)]
        inputs = tuple(dict.fromkeys(item for item in placed if item.value.node not in inside))
        blocks = self._block_rows((*inputs, *(Placed(value, self._plan.specs[value]) for value in outputs)))
        margins = self._margins(nodes, outputs, blocks)
        for item in inputs:
            for moved_rows in extended_axes(self._types[item.value], item.spec, margins[item], blocks, self._mesh):
                if not moved_rows.has_margins:
                    return None
        return FusedRegion({i: self._calls[i] for i in nodes}, inputs, outputs, blocks, margins)

    def _block_rows(self, values: Sequence[Placed]) -> dict[Names, int]:
        """Returns the rows of a region's blocks: those of its inputs and outputs, of the more bytes if they differ."""
        nbytes: dict[Names, dict[int, int]] = {}
        for placed in values:
            for names, rows in self._blocks_of(placed).items():
                of_rows = nbytes.setdefault(names, {})
                of_rows[rows] = of_rows.get(rows, 0) + self._types[placed.value].nbytes
        return {names: max(of_rows, key=lambda rows: (of_rows[rows], rows)) for names, of_rows in nbytes.items()}

    def _margins(
        self, nodes: Sequence[int], outputs: Sequence[Value], blocks: Mapping[Names, int]
    ) -> dict[Placed, dict[Names, Margins]]:
        """Returns the margins of every value in a region: those that its results need."""
        margins: dict[Placed, dict[Names, Margins]] = {}
        for value in outputs:
            natural = self._natural_block(value)
            of_value = margins.setdefault(Placed(value, self._plan.specs[value]), {})
            for names, rows in natural.items():
                # Blocks of the value that are shorter than those of the region lie before them, longer ones behind.
                drift, devices = rows - blocks[names], self._mesh.size(names)
                of_value[names] = Margins(min(0, (devices - 1) * drift), max(0, devices * drift))
        for i in reversed(nodes):
            node, call = self._plan.nodes[i], self._calls[i]
            (spec,) = node.out_specs
            of_result = margins[Placed(Value(i, 0), spec)]
            for placed, k in self._operands(i):
                of_operand = margins.setdefault(placed, {})
                for alignment in call.aligned[k]:
                    if alignment is not None:
                        names = spec[alignment.axis]
                        needed = of_result[names].moved(alignment.distance)
                        of_operand[names] = needed.joined(of_operand.get(names))
        return margins


def _needed_nodes(plan: GraphPlan, results: Sequence[Value]) -> set[int]:
    """Returns the indices of the nodes that results and flags need."""
    needed, waiting = set[int](), [value.node for value in results]
    waiting += (i for i, node in enumerate(plan.nodes) if node.problem.checks)
    while waiting:
        i = waiting.pop()
        if i >= 0 and i not in needed:
            needed.add(i)
            waiting += (value.node for value in plan.nodes[i].operands if isinstance(value, Value))
    return needed


def pieces_of(
    region: FusedRegion, types: Mapping[Value, ArrayType], specs: Mapping[Value, Spec], mesh: MeshAxes
) -> list[RegionPart]:
    """Returns the pieces in which a device computes its block: the rows that need no others, and those around them.

    So no input is copied to be extended. There is one piece, the block, where margins are at several axes, where blocks
    are of several sizes, and where they are short.

    Args:
        region: the region.
        types: the types of values.
        specs: the specs of its outputs.
        mesh: the mesh.
    """
    before, behind, nbytes = dict[Names, int](), dict[Names, int](), 0
    is_even = True
    for placed in (*region.inputs, *(Placed(value, specs[value]) for value in region.outputs)):
        array, margins = types[placed.value], region.margins[placed]
        shape = block_shape(array.shape, placed.spec, mesh)
        is_input = placed in region.inputs
        nbytes += math.prod(shape) * array.dtype.itemsize * is_input
        for rows, names in zip(shape, placed.spec, strict=True):
            if names:
                is_even &= rows == region.blocks[names] and (is_input or margins[names] == (0, 0))
                before[names] = max(before.get(names, 0), -margins[names].before)
                behind[names] = max(behind.get(names, 0), margins[names].behind)
    extended = [names for names in before if before[names] or behind[names]]
    names = extended[0] if extended else next(iter(region.blocks))
    rows = region.blocks[names]
    margin = before[names] + behind[names]
    inner = rows - margin
    if not is_even or len(extended) != 1 or inner < _MIN_INNER_ROWS * margin or nbytes < _MIN_BYTES_OF_PIECES:
        return [RegionPart(names, 0, rows)]
    bounds = [0, before[names], rows - behind[names], rows]
    return [RegionPart(names, start, stop) for start, stop in itertools.pairwise(bounds) if start < stop]


def extended_axes(
    array: ArrayType, spec: Spec, margins: Mapping[Names, Margins], blocks: Mapping[Names, int], mesh: MeshAxes
) -> list[MovedRows]:
    """Returns the exchanges that extend the blocks of an array by the margins of a region.

    Args:
        array: the array.
        spec: its spec.
        margins: its margins in the region.
        blocks: the rows of the region's blocks.
        mesh: the mesh.
    """
    exchanges = []
    for axis, names in enumerate(spec):
        if not names:
            continue
        along, block, (before, behind) = ShardedAxis.of(array, spec, axis, mesh), blocks[names], margins[names]
        if along.block != block or before or behind:
            firsts = [device * block + before for device in range(along.devices)]
            exchanges.append(MovedRows.of(along, firsts, block + behind - before, 0))
    return exchanges
