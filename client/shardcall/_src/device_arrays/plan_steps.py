"""The steps of the program of a graph of kernel calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shardcall._src.display.drawing import Drawing
from shardcall.v1 import kernel_pb2
from shardcall_core.placements.placement import ArrayPlacement, placement_from_proto
from shardcall_core.types.blocks import BlockGrid, block_grid
from shardcall_core.types.errors import InvalidOperandError
from shardcall_core.types.mesh import Mesh
from shardcall_core.types.sizes import human
from shardcall_core.types.tracebacks import shortened


@shortened
class CallPlacements:
    """The arrays of a call as they are placed on a mesh, with drawings of their blocks."""

    mesh: Mesh
    operands: tuple[ArrayPlacement | None, ...]
    results: tuple[ArrayPlacement, ...]

    def visualize(self, which: int | str = 0) -> Drawing:
        """Draws the blocks of an operand or result with the devices that hold them.

        Args:
            which: the index of an operand, or ``"operand 1"``, ``"result 0"``, ``"result"``.

        Returns:
            A drawing: ``print(plan.visualize())`` shows text, the cell of a notebook a picture.

        Raises:
            InvalidOperandError: if there is no such array.
        """
        title, placement = self._find(which)
        caption = f"{title}{self._caption}: {placement.type} {placement.spec} on {self.mesh.short}{self._moved(title)}"
        return Drawing(caption, self.blocks(which))

    def blocks(self, which: int | str = 0) -> BlockGrid:
        """Returns the blocks of an operand or result with the devices that hold them; ``which`` as for `visualize`."""
        _, placement = self._find(which)
        return block_grid(placement.type.shape, placement.spec, self.mesh)

    _caption = ""

    def _moved(self, title: str) -> str:
        """Returns the end of the caption of a drawing that says from where an array is moved."""
        return ""

    def _find(self, which: int | str) -> tuple[str, ArrayPlacement]:
        arrays_by_title: dict[str, ArrayPlacement | None] = {
            **{f"operand {i}": operand for i, operand in enumerate(self.operands)},
            **{f"result {i}": result for i, result in enumerate(self.results)},
        }
        title = f"operand {which}" if isinstance(which, int) else which if " " in which else f"{which} 0"
        placement = arrays_by_title.get(title)
        if placement is None:
            titles = ", ".join(name for name, item in arrays_by_title.items() if item is not None)
            raise InvalidOperandError(f"the plan has no {which!r}; there are: {titles}", field="which")
        return title, placement


@dataclass(frozen=True, repr=False)
class PlanStep(CallPlacements):
    """A call of a kernel that is a step of a program.

    Attributes:
        kernel: the name of the kernel.
        strategy: the name of the strategy; ``"together"`` for a step that a device computes for its block in one with
            others, after one exchange of rows.
        mesh: the mesh.
        operands: the operands as the step takes them; one whose source has another spec is moved first.
        sources: the source of each operand: an operand of the graph or a result of an earlier step.
        results: one per result.
        bytes_per_device: the bytes of the operands and results on one device.
        flops_per_device: the multiplications and additions of products and decompositions of matrices on one device, by
            their shapes; 0 for steps that have few for each element.
        bodies: the steps of each graph that it runs: the body of a loop, or the branches of a false and of a true
            condition.
        line: the file and line of the call in a traced function; empty elsewhere.
        exchanged_bytes_per_device: the bytes that one device receives from others for the step, and for the graphs that
            it runs. An exchange that serves several steps belongs to the first of them.
    """

    kernel: str
    strategy: str
    mesh: Mesh
    operands: tuple[ArrayPlacement, ...]
    sources: tuple[str, ...]
    results: tuple[ArrayPlacement, ...]
    bytes_per_device: int
    flops_per_device: float
    bodies: tuple[tuple[PlanStep, ...], ...] = ()
    line: str = ""
    exchanged_bytes_per_device: int = 0

    @property
    def _caption(self) -> str:  # type: ignore[override]
        return f" of {self.kernel}"

    @property
    def cost(self) -> str:
        """The bytes and operations of one device, as a text."""
        operations = f", {self.flops_per_device:.4g} FLOPs" if self.flops_per_device else ""
        exchanged = f", {human(self.exchanged_bytes_per_device)} exchanged" if self.exchanged_bytes_per_device else ""
        return f"{human(self.bytes_per_device)}{operations}{exchanged} a device"

    def __str__(self) -> str:
        results = ", ".join(f"{result.type} {result.spec}" for result in self.results)
        at = f", at {self.line}" if self.line else ""
        return f"{self.kernel} of {', '.join(self.sources) or 'nothing'} by {self.strategy}: {results}; {self.cost}{at}"

    def __repr__(self) -> str:
        return f"<PlanStep {self}>"


def steps_from_protos(messages: Iterable[kernel_pb2.PlanStep], program_mesh: Mesh) -> tuple[PlanStep, ...]:
    """Returns the steps in messages."""
    return tuple(
        PlanStep(
            kernel=message.kernel,
            strategy=message.strategy,
            mesh=program_mesh,
            operands=_placements(message.operands),
            sources=tuple(map(_source, message.sources)),
            results=_placements(message.results),
            bytes_per_device=message.bytes_per_device,
            flops_per_device=message.flops_per_device,
            bodies=tuple(steps_from_protos(body.steps, program_mesh) for body in message.bodies),
            exchanged_bytes_per_device=message.exchanged_bytes_per_device,
        )
        for message in messages
    )


def numbered(steps: Sequence[PlanStep], before: str = "") -> Iterator[tuple[str, PlanStep]]:
    """Yields steps with their numbers, and behind each those of the graphs that it runs: 2, 2.0, 2.1, 3.

    Args:
        steps: the steps.
        before: the beginning of their numbers.
    """
    for i, step in enumerate(steps):
        yield f"{before}{i}", step
        for k, body in enumerate(step.bodies):
            yield from numbered(body, f"{before}{i}.{f'{k}.' if len(step.bodies) > 1 else ''}")


def _placements(messages: Iterable[kernel_pb2.ArrayPlacement]) -> tuple[ArrayPlacement, ...]:
    return tuple(placed for message in messages if (placed := placement_from_proto(message)) is not None)


def _source(message: kernel_pb2.PlanSource) -> str:
    if message.constant:
        return message.constant
    if not message.HasField("step"):
        return f"operand {message.index}"
    return f"result {message.index} of step {message.step}" if message.index else f"step {message.step}"
