"""Operands on the mesh that a call moves to the placement that its program takes."""

from __future__ import annotations

from collections.abc import Sequence

from shardcall.v1 import kernel_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.placements import resharding
from shardcall_core.placements.placement import placement_from_proto
from shardcall_core.placements.resharding import Transfer
from shardcall_core.types import mesh
from shardcall_server.frontend.memory.call_buffers import OperandSource
from shardcall_worker.v1 import link_pb2

_MAX_SHOWN = 150  # characters of a placement


def find_transfers(
    program: kernel_pb2.Plan, operands: Sequence[OperandSource], ready: link_pb2.Ready
) -> tuple[kernel_pb2.Transfer, ...]:
    """Returns the transfers of a call, to be added to the plan of its program."""
    return tuple(resharding.transfer_to_proto(transfer) for transfer in _transfers(program, operands, ready))


def check_no_transfers(program: kernel_pb2.Plan, operands: Sequence[OperandSource], ready: link_pb2.Ready) -> None:
    """Refuses a call that would move an operand.

    Raises:
        CallError: TRANSFER_REQUIRED; names the first such operand.
    """
    if transfers := _transfers(program, operands, ready):
        moved = transfers[0]
        raise CallError(
            Reason.TRANSFER_REQUIRED,
            f"operand {moved.operand} is {shorten(str(moved.type))} placed as "
            f"{_shown(moved.from_mesh, moved.from_spec)}, and the program takes it as "
            f"{_shown(moved.to_mesh, moved.to_spec)}; reshard it first, or leave refuse_transfers unset to move "
            f"{moved.received_bytes:,} bytes with the call",
            field=f"operand {moved.operand}",
            metadata={"bytes": str(moved.received_bytes)},
        )


def _transfers(program: kernel_pb2.Plan, operands: Sequence[OperandSource], ready: link_pb2.Ready) -> list[Transfer]:
    transfers = []
    for index, (operand, required) in enumerate(zip(operands, program.operands, strict=False)):
        resident = operand.resident
        # Equal messages are the usual case, and comparing them costs a hundredth of the rest.
        if resident is None or (resident.mesh == program.mesh and resident.placement == required):
            continue
        placed, target = placement_from_proto(resident.placement), placement_from_proto(required)
        assert placed is not None
        assert target is not None
        source_mesh, target_mesh = mesh.from_proto(resident.mesh), mesh.from_proto(program.mesh)
        hosts = len({device.process_index for device in ready.devices}) > 1
        transfer = resharding.find_transfer(index, source_mesh, placed, target_mesh, target, between_hosts=hosts)
        if transfer is not None:
            transfers.append(transfer)
    return transfers


def _shown(placed_on: mesh.Mesh, spec: object) -> str:
    return shorten(f"{spec} on {placed_on}", _MAX_SHOWN)
