"""Failures of commands, as messages for the front end and as log entries."""

from __future__ import annotations

import secrets
from concurrent.futures import CancelledError

import structlog

from shardcall_core.call_error import CallError, Reason
from shardcall_server.compilation.program import BuildError, is_out_of_memory
from shardcall_server.compilation.resolve import Resolution
from shardcall_server.link.failures import encode_failure
from shardcall_worker.v1 import link_pb2


def failure_of(error: BaseException) -> link_pb2.Failure:
    """Returns the answer to a command that raised an error."""
    if isinstance(error, CallError):
        return encode_failure(error)
    if is_out_of_memory(error):
        return link_pb2.Failure(
            reason=Reason.OUT_OF_DEVICE_MEMORY.value,
            message="the devices do not have the memory for this call; shard the arrays over more devices, "
            "or make them smaller",
        )
    if isinstance(error, CancelledError):  # of a thread pool that shuts down
        return link_pb2.Failure(
            reason=Reason.SERVER_DRAINING.value,
            message="the server is stopping and did not begin this call; use another, or repeat the call later",
        )
    error_id = secrets.token_hex(4)
    structlog.get_logger().error("a call failed unexpectedly", error_id=error_id, exc_info=error)
    return link_pb2.Failure(
        reason=Reason.INTERNAL.value,
        message=f"internal server error {error_id}; report this id to the administrator",
        metadata={"error_id": error_id},
    )


def compiler_ended(resolved: Resolution) -> CallError:
    """Returns the error of a call whose program ended the process that compiled it."""
    kernel, strategy, error_id = resolved.kernel.name, resolved.strategy.name, secrets.token_hex(4)
    structlog.get_logger().error(
        "a program ended the compiler process", kernel=kernel, strategy=strategy, error_id=error_id
    )
    return CallError(
        Reason.COMPILE_FAILED,
        f"the compiler crashed, or allocated more than --max-compiler-bytes, on kernel {kernel!r} with strategy "
        f"{strategy!r} for these shapes and specs; try another strategy or a smaller program; the server's log has "
        f"more: error {error_id}",
        metadata={"error_id": error_id},
    )


def compile_failed(resolved: Resolution, error: Exception) -> CallError:
    """Returns the error of a call whose program could not be compiled; the details go to the log only."""
    kernel, strategy, error_id = resolved.kernel.name, resolved.strategy.name, secrets.token_hex(4)
    log = structlog.get_logger().bind(kernel=kernel, strategy=strategy, error_id=error_id)
    if isinstance(error, BuildError):
        log.error("the code of a kernel failed", exc_info=error.__cause__)
        what = f"the code of kernel {kernel!r} itself failed with strategy {strategy!r}"
    else:
        log.error("a program could not be compiled", exc_info=error)
        what = f"the compiler refused kernel {kernel!r} with strategy {strategy!r}"
    return CallError(
        Reason.COMPILE_FAILED,
        f"{what} for these shapes and specs; try another strategy; the server's log has the reason: error {error_id}",
        metadata={"error_id": error_id},
    )
