"""Reads of a call stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.access.policy import check_scope
from shardcall_server.frontend.access.principals import Scope
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.services.item_slot import ItemSlot
from shardcall_server.frontend.services.streamed_arrays import ArrayClaim
from shardcall_server.frontend.services.streamed_call import CallOutcome, StreamServices


async def read_streamed(
    services: StreamServices,
    call: ServerCall,
    claim: ArrayClaim,
    reserve: Callable[[int], Awaitable[None] | None],
) -> CallOutcome:
    """Copies an array from the mesh; arguments and errors as of `run_streamed`."""
    services.recorder.begin(call)
    is_counted = False
    try:
        services.drain.enter(call.connection)
        is_counted = True
        check_scope(call.principal, Scope.ARRAYS, "a read")
        (resident,) = await claim.resolve(call)
        assert resident is not None
        async with ItemSlot(services.admission.calls, call, reserve) as slot:
            response = await services.reader.read(call, resident, lambda: claim.launched(()), slot.reserve)
    except Exception as error:
        claim.failed(error if isinstance(error, CallError) else CallError(Reason.INTERNAL, "the read failed"))
        raise
    finally:
        if is_counted:
            services.drain.leave()
    return response, None, None
