"""The help of every command, as in tests/client/help; `UPDATE_HELP=1` writes what is printed now."""

import os
from pathlib import Path

import pytest

typer = pytest.importorskip("typer")
testing = pytest.importorskip("typer.testing")
pytest.importorskip("shardcall_server.settings")

from shardcall.cli.app import make_app  # noqa: E402  # only with typer

HELP = Path(__file__).parent / "help"


def commands(command, path=()):
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


ALL = list(commands(typer.main.get_command(make_app())))


def printed(path):
    ended = testing.CliRunner().invoke(make_app(), [*path, "--help"], prog_name="shardcall", env={"COLUMNS": "80"})
    assert ended.exit_code == 0
    return ended.stdout


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_the_help_of_a_command_is_the_one_that_was_read(path):
    file = HELP / f"{'-'.join(('shardcall', *path))}.txt"
    text = printed(path)
    if os.environ.get("UPDATE_HELP"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), "read the difference, then write it by UPDATE_HELP=1"
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text.replace("]...", "").replace("COMMAND...", "")  # an ellipsis where text was cut


def test_no_snapshot_is_of_a_command_that_is_gone():
    assert {file.stem for file in HELP.glob("*.txt")} == {"-".join(("shardcall", *path)) for path in ALL}


def test_every_command_is_in_a_group():
    groups = [command.rich_help_panel for command in typer.main.get_command(make_app()).commands.values()]
    assert all(isinstance(group, str) for group in groups)


def test_options_of_a_connection_are_listed_apart():
    sections = [line for line in printed(("call",)).splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert sections == ["Arguments:", "Options:", "Connection:"]
