"""The timing of calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from shardcall.v1 import timing_pb2
from shardcall_core.markup import page

PHASES = ("receive", "queue", "compile", "place", "execute", "gather", "send")
_BAR_WIDTH = 24
_MAX_NAMED = 3


@dataclass(frozen=True, kw_only=True, repr=False)
class Timing:
    """The seconds of each phase of a call; ``print(timing)`` draws a table.

    All but ``round_trip`` are measured by the server's monotonic clock. Phases of a stream may overlap, so they need
    not add up to the total. A phase that was not reached is 0.

    Attributes:
        receive: first byte of the request until the last operand is complete.
        queue: waiting for admission and for the mesh.
        compile: this call's wait for a compilation, its own or another's.
        place: placing the blocks of operands on the devices.
        execute: launch until every shard is ready, with no earlier launch still running.
        gather: copying the result's shards into one array.
        send: first result byte handed to gRPC until the last; 0 in a unary answer.
        total: the server's wall time of the call.
        round_trip: the client's wall time of the call.
    """

    receive: float = 0.0
    queue: float = 0.0
    compile: float = 0.0
    place: float = 0.0
    execute: float = 0.0
    gather: float = 0.0
    send: float = 0.0
    total: float = 0.0
    round_trip: float = 0.0

    @property
    def transport(self) -> float:
        """The seconds outside the server: ``round_trip - total``."""
        return self.round_trip - self.total

    def __repr__(self) -> str:
        complete_s = self.round_trip or self.total
        longest = sorted(_parts(self).items(), key=lambda part: -part[1])[:_MAX_NAMED]
        parts = ", ".join(f"{name} {_milliseconds(seconds)}" for name, seconds in longest if seconds > 0)
        return f"<Timing {_milliseconds(complete_s)}{': ' if parts else ''}{parts}>"

    def _repr_html_(self) -> str:
        """Returns a bar of the phases for a notebook."""
        return page.page(f"Timing: {_milliseconds(self.round_trip or self.total)}", bar(self))

    def __str__(self) -> str:
        full = self.round_trip or self.total
        rows = [(name, getattr(self, name)) for name in PHASES]
        rows += [("total", self.total), ("transport", self.transport), ("round_trip", self.round_trip)]
        return "\n".join(_row(name, seconds, full) for name, seconds in rows)


def from_proto(message: timing_pb2.Timing, round_trip: float = 0.0) -> Timing:
    """Returns the server's timing with the client's round trip."""
    return Timing(
        receive=message.receive_seconds,
        queue=message.queue_seconds,
        compile=message.compile_seconds,
        place=message.place_seconds,
        execute=message.execute_seconds,
        gather=message.gather_seconds,
        send=message.send_seconds,
        total=message.total_seconds,
        round_trip=round_trip,
    )


def bar(timing: Timing) -> Element:
    """Returns a bar of the phases in HTML."""
    return page.bar(_parts(timing), timing.round_trip or timing.total)


def _parts(timing: Timing) -> Mapping[str, float]:
    """Returns the seconds of each phase, of the rest of the server's time, and outside the server."""
    parts = {name: float(getattr(timing, name)) for name in PHASES}
    return {**parts, "other": max(timing.total - sum(parts.values()), 0.0), "transport": max(timing.transport, 0.0)}


def _milliseconds(seconds: float) -> str:
    spent_ms = seconds * 1e3
    return f"{spent_ms:,.0f} ms" if spent_ms >= 100 else f"{spent_ms:.3g} ms"


def _row(name: str, seconds: float, full: float) -> str:
    share = seconds / full if full > 0 else 0.0
    bar = "█" * round(_BAR_WIDTH * min(max(share, 0.0), 1.0))
    return f"{name:<10} {seconds * 1e3:>12.3f} ms {share:>6.1%}  {bar}".rstrip()
