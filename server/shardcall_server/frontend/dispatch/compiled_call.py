"""Calls whose programs are compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardcall.v1 import kernel_pb2, kernel_service_pb2
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.frontend.dispatch.supervisor import ReadyMesh
from shardcall_server.frontend.memory.call_buffers import CallBytes, OperandSource
from shardcall_server.frontend.programs.cache_entry import CacheEntry
from shardcall_server.frontend.programs.keys import AbstractCall

NO_TRANSFERS = kernel_pb2.Plan()
"""The plan of the transfers of a call that has none."""

_SMALL_BYTES = 1 << 20  # on all devices
# With 32 callers, the front end uses a quarter less processor time than if every call counted in full.
_SMALL_SHARE = 0.25


class CallTemplate:
    """The kernel and the arguments that calls with different operands have in common.

    Args:
        call: the kernel and its arguments.
        keeps: whether the results stay on the mesh, so that the size limit of calls does not apply to them.
        lease_id: the lease of results that stay.
        refuse_transfers: whether to refuse a call that would transfer an operand between devices.

    Attributes:
        message: the call, serialized.
        recent: the last compiled call of this template.
    """

    def __init__(
        self, call: kernel_pb2.KernelCall, *, keeps: bool = False, lease_id: bytes = b"", refuse_transfers: bool = False
    ) -> None:
        self.call = call
        self.keeps = keeps
        self.lease_id = lease_id
        self.refuse_transfers = refuse_transfers
        self.message = call.SerializeToString()
        self.recent: CompiledCall | None = None


@dataclass(frozen=True, eq=False)
class CompiledCall:
    """A call whose program is compiled, and all of its template whose operands have the same types and placements.

    Attributes:
        template: its template.
        call: the call with the defaults of the mesh filled in.
        types: the types of the operands; None for omitted ones.
        placements: the mesh and the placement of each operand; empty for those that are not on the mesh.
        mesh: the mesh that holds the program.
        version: the version of the mesh's program table.
        entry: the cache entry of the program.
        nbytes: the bytes of its arrays.
        device_bytes: the device memory that it takes beside its resident arrays, in bytes.
        transfers: a plan with only the transfers of the call.
    """

    template: CallTemplate
    call: AbstractCall
    types: Sequence[ArrayType | None]
    placements: Sequence[bytes]
    mesh: ReadyMesh
    version: int
    entry: CacheEntry
    nbytes: CallBytes
    device_bytes: int
    transfers: kernel_pb2.Plan

    def applies_to(self, mesh: ReadyMesh, operands: Sequence[OperandSource]) -> bool:
        """Returns whether a call of the same template differs only in the values of its operands.

        Args:
            mesh: the mesh that is to run it.
            operands: the sources of its operands, none of which is in a segment.
        """
        if mesh is not self.mesh or mesh.programs.table.version != self.version or len(operands) != len(self.types):
            return False
        for index, operand in enumerate(operands):
            expected, resident = self.types[index], operand.resident
            if operand.type is not expected and operand.type != expected:
                return False
            if resident is None:
                if self.placements[index]:
                    return False
            elif resident.epoch != mesh.session.epoch or resident.placement_key != self.placements[index]:
                return False
        return True

    @property
    def launch_share(self) -> float:
        """The part of the limit of launched calls that the call takes.

        A small one counts less: it keeps the mesh busy for less time than its messages take.
        """
        program = self.entry.program
        is_small = 0 < program.device_bytes <= _SMALL_BYTES and not program.is_slow
        return _SMALL_SHARE if is_small else 1.0

    @property
    def is_sliced(self) -> bool:
        """True for a loop that runs in slices."""
        return self.entry.program.is_sliced

    @property
    def uses_resident_arrays(self) -> bool:
        """True if an operand is on the mesh."""
        return any(self.placements)

    @property
    def answer(self) -> kernel_pb2.CacheAnswer:
        """The origin of the program, and whether tests of it are pending; do not modify it."""
        answer = self.entry.answer
        if not self.entry.program.trusted:
            answer = kernel_pb2.CacheAnswer()
            answer.CopyFrom(self.entry.answer)
            answer.known_answers_pending = True
        return answer

    @property
    def plan(self) -> kernel_pb2.Plan:
        """The plan of this call; do not modify it."""
        if not self.transfers.transfers:
            return self.entry.plan
        plan = kernel_pb2.Plan()
        plan.CopyFrom(self.entry.plan)
        plan.MergeFrom(self.transfers)
        return plan

    @property
    def plan_field(self) -> bytes:
        """The plan as the field of an `ExecuteResponse`, to be appended to the bytes of its other fields."""
        if not self.transfers.transfers:
            return self.entry.plan_field
        # Parsers merge a message field that occurs twice.
        return self.entry.plan_field + kernel_service_pb2.ExecuteResponse(plan=self.transfers).SerializeToString()
