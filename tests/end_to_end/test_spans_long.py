"""Spans for a collector that does not answer."""

from __future__ import annotations

import numpy as np
import pytest
from end_to_end.test_spans import X
from servers import running_server

import shardcall as sc

pytestmark = pytest.mark.long


def test_an_unresponsive_collector_delays_no_call(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")  # so that the server does not try for long when it ends
    with (
        running_server("--otel-endpoint", "http://127.0.0.1:1", devices=1, why="no collector answers it") as running,
        sc.connect(running.address) as client,
    ):
        for _ in range(20):
            assert client.diff(X, axis=0).array.tolist() == np.diff(X, axis=0).tolist()
