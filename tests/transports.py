"""The transport of the small calls that clients of a test make: a call stream or unary RPCs.

The folders whose tests have a choice import these names in their conftest. A test of such a folder runs over one
transport, chosen by its name; with ``--full`` over both. Marked ``both_transports`` it always runs over both, marked
``one_transport`` over the clients' own choice. The transport is that of every client of the test's process,
also of one that several tests share.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import pytest

from shardcall._src.transfer.call_stream import CallStream

TRANSPORTS = ("stream", "unary")
__all__ = ["call_stream", "pytest_generate_tests", "transport"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests over both transports: with ``--full`` those that may run over either, otherwise those marked."""
    marked = metafunc.definition.get_closest_marker("both_transports") is not None
    if (marked or metafunc.config.getoption("full")) and _runs_over_either(metafunc.definition):
        metafunc.parametrize("transport", TRANSPORTS, indirect=True)


@pytest.fixture(autouse=True)
def transport(request: pytest.FixtureRequest) -> Iterator[str]:
    """The transport of the test: "stream" or "unary"."""
    chosen = getattr(request, "param", None)
    if chosen is None:
        chosen = (
            TRANSPORTS[crc32(request.node.nodeid.encode()) % 2] if _runs_over_either(request.node) else TRANSPORTS[0]
        )
    with pytest.MonkeyPatch.context() as patches:
        if chosen == "unary":  # as if the server had refused the stream
            patches.setattr(CallStream, "is_refused", property(lambda _: True))
        yield chosen


@pytest.fixture(params=[True, False], ids=TRANSPORTS)
def call_stream(request: pytest.FixtureRequest) -> bool:
    """The argument of `shardcall.connect`: small calls are streamed, or unary RPCs."""
    return bool(request.param)


def _runs_over_either(item: pytest.Item) -> bool:
    chosen = any(item.get_closest_marker(name) for name in ("one_transport", "fuzz", "soak"))
    return not chosen and "call_stream" not in item.fixturenames  # type: ignore[attr-defined]
