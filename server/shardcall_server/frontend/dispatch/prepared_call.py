"""Calls whose programs are compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from shardcall.v1 import kernel_pb2, kernel_service_pb2
from shardcall_server.frontend.dispatch.supervisor import ReadyMesh
from shardcall_server.frontend.dispatch.transfers import find_transfers
from shardcall_server.frontend.memory.call_buffers import CallBytes, OperandSource
from shardcall_server.frontend.programs.cache_entry import CacheEntry
from shardcall_server.frontend.programs.keys import AbstractCall

_NO_TRANSFERS = kernel_pb2.Plan()


class CallKind:
    """The kernel and the arguments of calls that differ in their operands only.

    Args:
        call: the kernel and its arguments.
        keeps: whether the results stay on the mesh, so that the size limit of calls does not apply to them.
        lease_id: the lease of results that stay.
        refuse_transfers: whether to refuse a call that would transfer an operand between devices.

    Attributes:
        message: the call, serialized.
        recent: the last call of this kind.
    """

    def __init__(
        self, call: kernel_pb2.KernelCall, *, keeps: bool = False, lease_id: bytes = b"", refuse_transfers: bool = False
    ) -> None:
        self.call = call
        self.keeps = keeps
        self.lease_id = lease_id
        self.refuse_transfers = refuse_transfers
        self.message = call.SerializeToString()
        self.recent: Prepared | None = None


@dataclass(frozen=True, eq=False)
class Prepared:
    """A call whose program is compiled, and all others of its kind whose operands have the same types and placements.

    Attributes:
        kind: its kind.
        call: the call with the defaults of the mesh filled in.
        operands: the sources of the operands of the call that was prepared first.
        mesh: the mesh that holds the program.
        version: the version of the mesh's program table.
        entry: the cache entry of the program.
        nbytes: the bytes of its arrays.
        device_bytes: the device memory that it takes beside its resident arrays, in bytes.
        launch_share: what it counts of the limit of launched calls.
        uses_resident_arrays: whether any operand is on the mesh.
    """

    kind: CallKind
    call: AbstractCall
    operands: Sequence[OperandSource]
    mesh: ReadyMesh
    version: int
    entry: CacheEntry
    nbytes: CallBytes
    device_bytes: int
    launch_share: float
    uses_resident_arrays: bool

    def applies_to(self, mesh: ReadyMesh, operands: Sequence[OperandSource]) -> bool:
        """Returns whether a call of the same kind is the same but for the values of its operands.

        Args:
            mesh: the mesh that is to run it.
            operands: the sources of its operands.
        """
        if mesh is not self.mesh or mesh.programs.table.version != self.version:
            return False
        for operand, ours in zip(operands, self.operands, strict=True):
            if operand is ours:  # of its slot, which has no value
                if operand.resident is None:
                    continue
            elif operand.type != ours.type or (operand.resident is None) != (ours.resident is None):
                return False
            if operand.resident is not None and ours.resident is not None:
                if operand.resident.epoch != mesh.session.epoch:
                    return False
                if operand.resident.placement_key != ours.resident.placement_key:
                    return False
        return True

    @cached_property
    def transfers(self) -> kernel_pb2.Plan:
        """A plan with only the transfers of this call."""
        transfers = find_transfers(self.entry.plan, self.operands, self.mesh.ready)
        return kernel_pb2.Plan(transfers=transfers) if transfers else _NO_TRANSFERS

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
