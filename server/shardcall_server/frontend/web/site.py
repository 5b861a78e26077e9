"""The contents of the HTTP server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from shardcall_server.frontend.web.page_access import PageAccess


@dataclass(frozen=True)
class LivePage:
    """The live page.

    Attributes:
        access: decides who may see it.
        snapshot: returns the state of the server, as values of JSON; any thread may call it.
        max_viewers: the limit of browsers that watch it at a time.
        interval_s: the seconds between two snapshots.
    """

    access: PageAccess
    snapshot: Callable[[], dict[str, object]]
    max_viewers: int
    interval_s: float = 1.0


@dataclass(frozen=True)
class Site:
    """The contents of the HTTP server.

    Attributes:
        registry: the metrics.
        not_ready_reason: returns why the server does not serve calls; empty if it does.
        page: the live page; None for none.
    """

    registry: CollectorRegistry
    not_ready_reason: Callable[[], str]
    page: LivePage | None = None
