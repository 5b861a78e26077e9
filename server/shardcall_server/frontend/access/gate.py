"""Who is let in: the one place that decides whether a call may reach its method."""

from __future__ import annotations

from collections.abc import Sequence

from shardcall_server.frontend.access.principals import Principal


class Gate:
    """Lets everybody in."""

    def admit(self, method: str, metadata: Sequence[tuple[str, str | bytes]]) -> Principal | None:
        """Who calls; None where nobody is asked.

        Args:
            method: the full name, "/shardcall.v1.KernelService/Execute".
            metadata: of the call.

        Raises:
            CallError: TOKEN_REQUIRED, SCOPE_MISSING.
        """
        return None
