"""The output of commands."""

import pytest
from rich.table import Table

from shardcall.cli.output import console


@pytest.mark.parametrize("columns", ["80", "20"])
def test_a_pipe_breaks_no_line(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", columns)
    name, spec = "n" * 64, "P('x', None) " * 20
    table = Table()
    for column in ("name", "spec"):
        table.add_column(column, overflow="fold")
    table.add_row(name, spec)
    console().print(table)
    console(stderr=True).print(f"{name} {spec}")
    output, errors = capsys.readouterr()
    (row,) = (line for line in output.splitlines() if name in line)
    assert spec.strip() in row
    assert len(errors.splitlines()) == 1
    assert len(output.splitlines()) == 5
