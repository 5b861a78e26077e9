"""The command: what it prints, its help, whose first page is help.txt (`UPDATE_HELP=1` writes it), and refusals."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from rows import rows

import shardcall
from shardcall_core.access.addresses import parse_address
from shardcall_core.access.option_names import as_options
from shardcall_core.access.tls import Tls, find_tls
from shardcall_core.versions import build_version
from shardcall_core.wire import token_file

typer = pytest.importorskip("typer")
testing = pytest.importorskip("typer.testing")
Settings = pytest.importorskip("shardcall_server.settings").Settings

from shardcall.cli.app import make_app, run  # noqa: E402  # only with typer
from shardcall_server.certificate_authority import make_authority  # noqa: E402

HELP = Path(__file__).with_name("help.txt")
APP = make_app()
TREE = typer.main.get_command(APP)


def invoked(*arguments):
    return testing.CliRunner().invoke(APP, arguments, env={"COLUMNS": "200"})


@rows(
    ("said", "expected"),
    [
        ("leave out ca_certificate= and tls=, or", "leave out --ca-certificate and --tls, or"),
        ("give client_certificate and client_key together", "give --client-certificate and --client-key together"),
        ("tls is False; leave out ca_certificate", "--no-tls is given; leave out --ca-certificate"),
        ("ca_certificate is '/client_key/tls=/a.pem'", "--ca-certificate is '/client_key/tls=/a.pem'"),
        ("or SHARDCALL_CA_CERTIFICATE, or say tls=False on", "or SHARDCALL_CA_CERTIFICATE, or say --no-tls on"),
        ("it by client.open('u2').delete(), or give replace=True", "it by shardcall rm u2, or give --replace"),
        ("list the names by client.list(), or", "list the names by shardcall ls, or"),
        ("no file; client.files() lists the names", "no file; shardcall files lists the names"),
        ("by client.share(name, with_=…, write=True)", "by shardcall share NAME --with PRINCIPAL --write"),
        ("its values, for client.open(name)", "its values, for shardcall get NAME"),
    ],
)
def test_errors_name_commands_and_options(said, expected):
    assert as_options(said) == expected


def shardcall_command(*arguments):
    command = [sys.executable, "-m", "shardcall", *arguments]
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)


def test_the_package_is_the_command():
    assert shardcall.__version__ == version("shardcall")
    assert shardcall_command("--version").stdout == f"shardcall {build_version()} (contract shardcall.v1)\n"
    ended = shardcall_command()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Ask a server:" in ended.stdout


@rows(
    ("arguments", "says"),
    [
        (["put", "x.npy", "--keep-for", "-1"], "Invalid value '-1' for '--keep-for': .* equal to 1 "),
        (["top", "--interval", "0"], "Invalid value '0' for '--interval': .* equal to 0.1 "),
        (["bench", "--rounds", "many"], "Invalid value 'many' for '--rounds': "),
        (["inform"], r"No such command 'inform'. Did you mean 'info'\? \(see: shardcall --help\)$"),
        (["info", "--tiny"], r".*\(see: shardcall info --help\)$"),
        (["info", "a", "b"], r".*\(see: shardcall info --help\)$"),
    ],
)
def test_an_invalid_command_is_refused_in_one_line(capsys, arguments, says):
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    said = capsys.readouterr()
    assert (ended.value.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert re.match(f"shardcall: {says}", said.err)


def test_the_help_of_serve_is_complete_in_80_columns():
    output = shardcall_command("serve", "--help").stdout
    assert max(map(len, output.splitlines())) <= 80
    text = " ".join(output.split())
    shown = lambda value: ("off", "on")[value] if isinstance(value, bool) else value  # noqa: E731
    assert "--token " not in text  # other users see the arguments of a command
    for name, field in Settings.model_fields.items():
        if name == "token":
            continue
        assert f"--{name.replace('_', '-')} " in text
        default = "" if field.default_factory or field.default == "" else f" default: {shown(field.default)}]"
        assert f"SHARDCALL_{name.upper()};{default}" in text


@pytest.mark.parametrize(
    ("hidden", "arguments", "status", "says"),
    [
        ("typer", ["--version"], 0, "(contract shardcall.v1)"),
        ("typer", ["info"], 1, "pip install 'shardcall[cli]'"),
        ("typer", ["serve"], 1, "pip install 'shardcall[server]'"),
        ("pydantic_settings", ["serve"], 1, "pip install 'shardcall[server]'"),
        ("structlog", ["worker", "--join", "a:1"], 1, "pip install 'shardcall[server]'"),
        ("shardcall_server", ["serve", "--devices=8"], 1, "pip install 'shardcall[server]'"),
    ],
)
def test_a_missing_extra_is_named_where_it_is_needed(hidden, arguments, status, says):
    code = f"import sys; sys.modules[{hidden!r}] = None; sys.argv[1:] = {arguments!r}\n"
    code += "from shardcall.cli import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == status
    assert says in (ended.stderr if status else ended.stdout)
    assert "Traceback" not in ended.stderr


def test_client_config_sets_what_a_client_elsewhere_needs(tmp_path, monkeypatch):
    make_authority(tmp_path, [], 1, replace=False)
    tokens = str(tmp_path / "token")
    entries = [token_file.Entry.make("ada", ("run",)), token_file.Entry.make("hosts", ("host",))]
    token_file.create(tokens, entries)
    monkeypatch.delenv("SHARDCALL_TOKEN", raising=False)
    monkeypatch.setenv("SHARDCALL_TOKEN_FILE", tokens)
    monkeypatch.setenv("SHARDCALL_CA_CERTIFICATE", str(tmp_path / "ca.pem"))
    script = f'{invoked("client-config").stdout}\nprintf %s "$SHARDCALL_TOKEN|$SHARDCALL_CA_CERTIFICATE"'
    token, _, authority = subprocess.check_output(["sh", "-c", script], text=True).partition("|")
    assert token == entries[0].token
    monkeypatch.setenv("SHARDCALL_CA_CERTIFICATE", authority)
    assert find_tls(parse_address("localhost:1")) == Tls((tmp_path / "ca.pem").read_bytes())
    other = json.loads(invoked("client-config", "--json", "--principal", "hosts", "--address", "gpu1:9000").stdout)
    assert other == {"address": "gpu1:9000", "ca_certificate": authority, "token": entries[1].token}
    assert "there are: ada, hosts" in invoked("client-config", "--principal", "eve").stderr


# Help


def commands(command, path=()):
    """Yields each command with its path."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


def help_of(path):
    ended = testing.CliRunner().invoke(APP, [*path, "--help"], prog_name="shardcall", env={"COLUMNS": "80"})
    assert ended.exit_code == 0
    return ended.stdout


@rows(("path", "command"), commands(TREE))
def test_the_help_of_a_command_is_complete_in_80_columns(path, command):
    text = help_of(path)
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text.replace("]...", "").replace("COMMAND...", "")  # an ellipsis where text was cut
    assert command.help or command.callback.__doc__
    for parameter in command.params:
        assert parameter.help, f"{parameter.name} says nothing"
        assert " ".join(parameter.help.split()) in " ".join(text.split())
        if parameter.param_type_name == "option":
            assert all(name in text for name in parameter.opts)


def test_the_first_page_is_the_one_that_was_read_and_has_every_command_in_a_group():
    text = help_of(())
    if os.environ.get("UPDATE_HELP"):
        HELP.write_text(text)
    assert text == HELP.read_text(), "read the difference, then write it by UPDATE_HELP=1"
    assert all(isinstance(command.rich_help_panel, str) for command in TREE.commands.values())


def test_options_of_a_connection_are_listed_apart():
    sections = [line for line in help_of(("call",)).splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert sections == ["Arguments:", "Options:", "Connection:"]
