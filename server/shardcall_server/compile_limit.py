"""The error of a program that takes too long to compile."""

from __future__ import annotations

from shardcall_core.call_error import CallError, Reason


def compile_limit_error(limit_s: float) -> CallError:
    """Returns the error of a call whose program takes longer to compile."""
    return CallError(
        Reason.COMPILE_LIMIT,
        f"the program was compiled for over {limit_s:g} s, the longest that this server allows; name another strategy "
        "or a smaller mesh, or start the server with a larger --max-compile-s",
        metadata={"limit": f"{limit_s:g}"},
    )
