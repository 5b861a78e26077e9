"""The duration of the answers to probes."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from end_to_end.live_pages import page_server

pytestmark = pytest.mark.long


def test_probes_are_quick_while_somebody_watches(tmp_path, figure):
    with page_server(tmp_path / "log", devices=1) as server, closing(server.snapshots()) as snapshots:
        next(snapshots)
        times = []
        for _ in range(50):
            for path in ("/healthz", "/readyz"):
                began = time.perf_counter()
                assert server.get(path)[0] == 200
                times.append(time.perf_counter() - began)
    figure(f"a probe took {sorted(times)[50] * 1e3:.2f} ms in the median, of the 5 that are promised")
