"""The table of the arrays on a server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from shardcall_core.markup import page
from shardcall_core.markup.columns import aligned
from shardcall_core.types.arrays import Array
from shardcall_core.types.sizes import human
from shardcall_core.types.specs import PartitionSpec

_Array = TypeVar("_Array")
_COLUMNS = ("name", "owner", "shared with", "type", "spec", "bytes", "age", "ends in")
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


@dataclass(frozen=True)
class ArrayGuest:
    """A principal that an array is shared with.

    Attributes:
        principal: its name.
        write: whether it may write to the array.
    """

    principal: str
    write: bool

    def __str__(self) -> str:
        return f"{self.principal} (write)" if self.write else self.principal


@dataclass(frozen=True)
class ListedArray:
    """An array as the server listed it.

    Attributes:
        handle: its hexadecimal id on the server.
        name: its name; empty if it has none, and ``owner/name`` for one that another principal shares with this one.
        owner: the principal that it belongs to; empty if the server does not authenticate its callers.
        type: the shape and the element type.
        spec: the sharding.
        device_bytes: its bytes on all devices, replicas included.
        age_s: seconds since it was put or computed.
        expires_in_s: seconds until the server deletes it, unless its client renews its lease; None for no end.
        guests: the principals that it is shared with; only this one for the array of another.
        in_checkpoint: whether the last checkpoint has it with these values.
        suspect: the kernel that computed it and has failed a known-answer test since, with the test; empty if none.
    """

    handle: str
    name: str
    owner: str
    type: Array
    spec: PartitionSpec
    device_bytes: int
    age_s: float
    expires_in_s: float | None
    guests: tuple[ArrayGuest, ...] = ()
    in_checkpoint: bool = False
    suspect: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The cells of its row."""
        end = "" if self.expires_in_s is None else duration(self.expires_in_s)
        size, age = human(self.device_bytes), duration(self.age_s)
        guests = ", ".join(map(str, self.guests))
        return self.name, self.owner, guests, str(self.type), str(self.spec), size, age, end


class ArrayTable(list[_Array]):
    """Arrays on a server, oldest first; ``print`` shows them, and `entries` has what the server says of each.

    Args:
        arrays: the arrays.
        entries: the descriptions of these, in the same order.
    """

    def __init__(self, arrays: Iterable[_Array], entries: Iterable[ListedArray]) -> None:
        super().__init__(arrays)
        self.entries = tuple(entries)

    def __str__(self) -> str:
        return aligned(_COLUMNS, (entry.texts for entry in self.entries)) if self.entries else "no arrays"

    def _repr_html_(self) -> str:
        """Returns the table for a notebook."""
        table = page.listing(_COLUMNS, (entry.texts for entry in self.entries))
        return page.page(f"{len(self.entries)} arrays", page.scrolled(table))


def duration(seconds: float) -> str:
    """Returns a number of seconds in the largest unit of which there are two."""
    for unit_s, unit in _UNITS:
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds:.0f} s"
