"""The help of every command, and the first page as in help.txt, which `UPDATE_HELP=1` writes anew."""

import os
from pathlib import Path

import pytest
from rows import rows

typer = pytest.importorskip("typer")
testing = pytest.importorskip("typer.testing")
pytest.importorskip("shardcall_server.settings")

from shardcall.cli.app import make_app  # noqa: E402  # only with typer

HELP = Path(__file__).with_name("help.txt")


def commands(command, path=()):
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


APP = make_app()
TREE = typer.main.get_command(APP)
ALL = list(commands(TREE))


def command_of(path):
    command = TREE
    for name in path:
        command = command.commands[name]
    return command


def printed(path):
    ended = testing.CliRunner().invoke(APP, [*path, "--help"], prog_name="shardcall", env={"COLUMNS": "80"})
    assert ended.exit_code == 0
    return ended.stdout


@rows("path", ALL)
def test_the_help_of_a_command_is_complete_in_80_columns(path):
    text = printed(path)
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text.replace("]...", "").replace("COMMAND...", "")  # an ellipsis where text was cut
    command = command_of(path)
    assert command.help or command.callback.__doc__
    for parameter in command.params:
        assert parameter.help, f"{parameter.name} says nothing"
        assert " ".join(parameter.help.split()) in " ".join(text.split())
        if parameter.param_type_name == "option":
            assert all(name in text for name in parameter.opts)


def test_the_first_page_is_the_one_that_was_read():
    text = printed(())
    if os.environ.get("UPDATE_HELP"):
        HELP.write_text(text)
    assert text == HELP.read_text(), "read the difference, then write it by UPDATE_HELP=1"


def test_every_command_is_in_a_group():
    groups = [command.rich_help_panel for command in TREE.commands.values()]
    assert all(isinstance(group, str) for group in groups)


def test_options_of_a_connection_are_listed_apart():
    sections = [line for line in printed(("call",)).splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert sections == ["Arguments:", "Options:", "Connection:"]
