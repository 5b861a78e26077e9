"""The tests of `test_demo.py` that take long."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from shardcall.cli import demo
from shardcall.cli.app import make_app

pytestmark = pytest.mark.long


@pytest.fixture
def ask(monkeypatch):
    monkeypatch.setattr(demo, "ROWS", 48)
    monkeypatch.setattr(demo, "COLUMNS", 6)

    def ask(*arguments):
        ended = CliRunner().invoke(make_app(), ["demo", *map(str, arguments)])
        return ended.exit_code, ended.output

    return ask


def test_a_result_that_differs_ends_the_demo_with_status_1(server, ask, monkeypatch):
    monkeypatch.setattr(demo.np, "array_equal", lambda *_: False)
    status, said = ask(server.address)
    assert status == 1
    assert "RESULT DIFFERS FROM np.diff" in said
