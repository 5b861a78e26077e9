"""Plans: everything about a call except its values."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element

from shardcall._src.device_arrays.plan_steps import (
    CallPlacements,
    PlanStep,
    numbered,
    steps_from_protos,
)
from shardcall._src.display.drawing import Drawing, element
from shardcall.v1 import kernel_pb2
from shardcall_core.markup import page
from shardcall_core.placements.placement import ArrayPlacement, placement_from_proto
from shardcall_core.placements.resharding import Transfer
from shardcall_core.types import mesh, specs
from shardcall_core.types.blocks import block_grid
from shardcall_core.types.errors import ProtocolError
from shardcall_core.types.mesh import Mesh
from shardcall_core.types.sizes import human

_WIDTH = 100
_MAX_DRAWN = 4
_MAX_DRAWN_STEPS = 16
_MAX_LINES = 64  # of operands, of results and of steps


@dataclass(frozen=True)
class Collective:
    """The collectives with one opcode in the compiled program; one in a loop's body counts once.

    Attributes:
        opcode: the operation in the compiled text, such as ``collective-permute``.
        count: the number of them.
        bytes_per_device: the total bytes of their results on one device.
    """

    opcode: str
    count: int
    bytes_per_device: int

    def __str__(self) -> str:
        return f"{self.count} {self.opcode} ({self.bytes_per_device:,} bytes a device)"


@dataclass(frozen=True)
class DeviceMemory:
    """The bytes that one device needs while the kernel runs."""

    argument_bytes: int
    output_bytes: int
    temp_bytes: int

    def __str__(self) -> str:
        parts = (self.argument_bytes, self.output_bytes, self.temp_bytes)
        return "{:,} + {:,} + {:,} bytes (operands + results + temporary) = ".format(*parts) + human(sum(parts))


@dataclass(frozen=True, repr=False)
class Plan(CallPlacements):
    """Everything about a call except its values.

    Attributes:
        kernel: the kernel's name.
        mesh: the mesh, with its device ids.
        operands: one per operand in the kernel's order; None for one left out.
        results: one per result.
        strategy: the name of the strategy; ``strategy_reason`` gives the reason for it.
        strategy_timings: the median seconds of each strategy that the server timed, the chosen one first, then by time.
        collectives: the collectives of the compiled program.
        flops_per_device: floating-point operations on one device, as the compiler estimates them, and of LAPACK's
            routines, which it does not count, by the textbook.
        memory: the memory of one device.
        key: the labelled parts of the program's key in the server's cache, in order.
        key_digest: the SHA-256 digest of the key, hexadecimal.
        cache_hit: True if the program was in the server's cache.
        explanation: after a miss, the parts of the key that differ from the most similar key in the cache.
        from_disk: after a miss, True if the compiled program was loaded from the server's disk.
        known_answers_pending: True if a known-answer test of a kernel in the program had not run yet.
        transfers: the operands on the mesh that are moved first, to the placement that the program takes. They are a
            property of the call, not of the program. Arrays that come with the call are placed, not moved.
        reproducible: True if the results of this call are the same bits on every mesh, in every layout and by every
            strategy.
        steps: the calls of kernels that a traced function, or another graph, consists of; none of other kernels.
        accessed_bytes_per_device: the bytes that one device reads and writes, as the compiler estimates them; a loop's
            body counts once.
        fusions: the loops of the compiled program, into which it fuses the steps.
    """

    kernel: str
    mesh: Mesh
    operands: tuple[ArrayPlacement | None, ...]
    results: tuple[ArrayPlacement, ...]
    strategy: str
    strategy_reason: str
    collectives: tuple[Collective, ...]
    flops_per_device: float
    memory: DeviceMemory
    key: Mapping[str, str] = field(hash=False)
    key_digest: str
    cache_hit: bool
    explanation: str
    strategy_timings: Mapping[str, float] = field(default_factory=dict, hash=False)
    from_disk: bool = False
    known_answers_pending: bool = False
    transfers: tuple[Transfer, ...] = ()
    reproducible: bool = False
    steps: tuple[PlanStep, ...] = ()
    accessed_bytes_per_device: int = 0
    fusions: int = 0

    @property
    def passes(self) -> float:
        """The bytes that a device reads and writes, as a multiple of its operands and results; at best 1."""
        return self.accessed_bytes_per_device / max(1, self.memory.argument_bytes + self.memory.output_bytes)

    def _moved(self, title: str) -> str:
        return "".join(f", moved {t.origin}" for t in self.transfers if title == f"operand {t.operand}")

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Returns the plan for a notebook, with the blocks of the first operands and results."""
        parts = [page.facts(facts(self)), page.beside(*map(drawn, self._distinct_drawings()))]
        if self.steps:
            parts.append(page.listing(["step", "call"], [(number, str(step)) for number, step in numbered(self.steps)]))
        return page.page(f"{self.kernel} on {self.mesh.short}", *parts)

    def _distinct_drawings(self) -> Iterator[Drawing]:
        """Yields a drawing for each layout of the first operands, results and steps, with what has it."""
        operands = [(f"operand {i}", item) for i, item in enumerate(self.operands) if item is not None]
        results = [(f"result {i}", item) for i, item in enumerate(self.results)]
        steps = [(f"step {number}", item) for number, step in numbered(self.steps) for item in step.results[:1]]
        titles: dict[tuple[Any, ...], list[str]] = {}
        for title, item in (*operands[:_MAX_DRAWN], *results[:_MAX_DRAWN], *steps[:_MAX_DRAWN_STEPS]):
            titles.setdefault((item.type, item.spec, self._moved(title)), []).append(title)
        for (array_type, spec, moved), alike in titles.items():
            more = f" and {len(alike) - _MAX_DRAWN} more" if len(alike) > _MAX_DRAWN else ""
            caption = f"{', '.join(alike[:_MAX_DRAWN])}{more}: {array_type} {spec} on {self.mesh.short}{moved}"
            yield Drawing(caption, block_grid(array_type.shape, spec, self.mesh))

    def __str__(self) -> str:
        origin = describe_origin(cache_hit=self.cache_hit, from_disk=self.from_disk)
        lines = [
            f"{self.kernel} on {self.mesh.short}",
            f"  strategy     {self.strategy}: {self.strategy_reason}",
            *_lines("operands", ((f"operand {i}", _line(p)) for i, p in enumerate(self.operands) if p is not None)),
            *_lines("results", ((f"result {i}", _line(p)) for i, p in enumerate(self.results))),
            *_lines("steps", ((f"step {number}", str(step)) for number, step in numbered(self.steps))),
            *(f"  transfer     {transfer}" for transfer in self.transfers),
            *(
                f"  collectives  {c.count} × {c.opcode}, {c.bytes_per_device:,} bytes a device"
                for c in self.collectives
            ),
            f"  bits         {_bits(self)}",
            f"  work         {self.flops_per_device:.4g} FLOPs a device",
            f"  passes       {_passes(self)}",
            f"  memory       {self.memory} a device",
            f"  key          {self.key_digest[:16]}, {origin}",
        ]
        if self.known_answers_pending:
            lines.append("  tests        known-answer tests are pending")
        # Wrapped, since it may name many parts of the key.
        miss = textwrap.fill(self.explanation, _WIDTH, initial_indent="  miss         ", subsequent_indent=" " * 15)
        return "\n".join([*lines, miss] if miss else lines)


def facts(plan: Plan) -> Mapping[str, str]:
    """Returns the facts about a plan that HTML displays show beside drawings, as texts by label."""
    rows = {
        "strategy": f"{plan.strategy}: {plan.strategy_reason}",
        "transfers": "; ".join(map(str, plan.transfers)),
        "collectives": "; ".join(map(str, plan.collectives)) or "none",
        "bits": _bits(plan),
        "work": f"{plan.flops_per_device:.4g} FLOPs a device",
        "passes": _passes(plan),
        "memory": f"{plan.memory} a device",
        "program": f"{plan.key_digest[:16]}, {describe_origin(cache_hit=plan.cache_hit, from_disk=plan.from_disk)}",
        "tests": "known-answer tests are pending" if plan.known_answers_pending else "",
        "miss": plan.explanation,
    }
    return {label: row for label, row in rows.items() if row}


def drawn(drawing: Drawing) -> Element:
    """Returns a drawing in HTML; it scrolls if it is high."""
    return page.scrolled(element(drawing))


def _lines(name: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    """Returns a line for each row, its label and its text, and one for those that are too many."""
    lines = [f"  {label:<12} {text}" for label, text in rows]
    more = [f"  {'':<12} {len(lines) - _MAX_LINES} more, in plan.{name}"] if len(lines) > _MAX_LINES else []
    return [*lines[:_MAX_LINES], *more]


def _bits(plan: Plan) -> str:
    return "the same on every mesh" if plan.reproducible else "may differ from mesh to mesh"


def _passes(plan: Plan) -> str:
    accessed = human(plan.accessed_bytes_per_device)
    loops = f"{plan.fusions} fused loop{'s' * (plan.fusions != 1)}"
    return f"{plan.passes:.1f} over operands and results, {accessed} read and written a device, {loops}"


def describe_origin(*, cache_hit: bool, from_disk: bool) -> str:
    """Returns the origin of a program as plans and results show it."""
    return "cached" if cache_hit else "loaded from disk" if from_disk else "compiled now"


def from_proto(message: kernel_pb2.Plan, cache: kernel_pb2.CacheAnswer) -> Plan:
    """Returns the plan in a message."""
    plan_mesh, operands = mesh.from_proto(message.mesh), tuple(map(placement_from_proto, message.operands))
    return Plan(
        kernel=message.kernel,
        mesh=plan_mesh,
        operands=operands,
        results=tuple(result for item in message.results if (result := placement_from_proto(item))),
        strategy=message.strategy,
        strategy_reason=message.strategy_reason,
        collectives=tuple(Collective(c.kind, c.count, c.bytes_per_device) for c in message.collectives),
        flops_per_device=message.flops_per_device,
        memory=DeviceMemory(message.memory.argument_bytes, message.memory.output_bytes, message.memory.temp_bytes),
        key={part.label: part.value for part in message.key},
        key_digest=message.key_digest,
        cache_hit=cache.outcome == kernel_pb2.CACHE_OUTCOME_HIT,
        from_disk=cache.from_disk,
        explanation=cache.explanation,
        known_answers_pending=cache.known_answers_pending,
        strategy_timings={timing.strategy: timing.seconds for timing in message.strategy_timings},
        transfers=tuple(_transfer(item, plan_mesh, operands) for item in message.transfers),
        reproducible=message.reproducible,
        steps=steps_from_protos(message.steps, plan_mesh),
        accessed_bytes_per_device=message.accessed_bytes_per_device,
        fusions=message.fusions,
    )


def _transfer(message: kernel_pb2.Transfer, plan_mesh: Mesh, operands: tuple[ArrayPlacement | None, ...]) -> Transfer:
    taken = operands[message.operand] if message.operand < len(operands) else None
    if taken is None:
        raise ProtocolError(
            f"the server reports that operand {message.operand} moves, and the plan has no such operand"
        )
    return Transfer(
        operand=message.operand,
        type=taken.type,
        from_mesh=mesh.from_proto(message.mesh),
        from_spec=specs.from_proto(message.spec),
        to_mesh=plan_mesh,
        to_spec=taken.spec,
        received_bytes=message.received_bytes,
        through_host=message.through_host,
    )


def _line(placement: ArrayPlacement) -> str:
    return f"{placement.type} {placement.spec}, blocks of {placement.block_shape}"
