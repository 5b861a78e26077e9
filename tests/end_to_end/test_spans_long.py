"""A collector of spans that does not respond, and one whose package is missing."""

import subprocess
import sys

import numpy as np
import pytest
from end_to_end.test_spans import X
from servers import running_server

import shardcall as sc

pytestmark = pytest.mark.long


def test_an_unresponsive_collector_delays_no_call(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")  # so that the server does not try for long when it ends
    with (
        running_server(
            "--otel-endpoint", "http://127.0.0.1:1", devices=1, why="its collector does not respond"
        ) as running,
        sc.connect(running.address) as client,
    ):
        for _ in range(20):
            assert client.diff(X, axis=0).array.tolist() == np.diff(X, axis=0).tolist()


def test_a_missing_extra_is_named():
    code = (
        "import sys\n"
        "sys.modules['opentelemetry.exporter.otlp.proto.http.trace_exporter'] = None\n"
        "from shardcall_server.frontend.observability.spans import make_spans\n"
        "from shardcall_server.settings import SettingsError\n"
        "from shardcall_server.settings_sources import load_settings\n"
        "try:\n"
        "    make_spans(load_settings({'otel_endpoint': 'http://localhost:4318'}))\n"
        "except SettingsError as error:\n"
        "    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True).stdout
    assert "pip install 'shardcall[server,otel]'" in said
