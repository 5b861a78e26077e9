import json
import os
import re
import subprocess
import sys

import pytest
from rows import rows

import shardcall
from shardcall_core.access.addresses import parse_address
from shardcall_core.access.option_names import as_options
from shardcall_core.access.tls import Tls, find_tls
from shardcall_core.wire import token_file

typer = pytest.importorskip("typer")
testing = pytest.importorskip("typer.testing")


@pytest.fixture
def run():
    from shardcall.cli.app import make_app

    return lambda *arguments: testing.CliRunner().invoke(make_app(), arguments, env={"COLUMNS": "200"})


def test_version(run):
    ended = run("--version")
    assert (ended.exit_code, ended.output) == (0, f"shardcall {shardcall.__version__} (contract shardcall.v1)\n")


def test_info_shows_the_server(run, server):
    ended = run("info", server.address)
    assert ended.exit_code == 0
    for text in (server.address, "1 × cpu", "Mesh(x=1, device_ids=[0])", "268,435,456"):
        assert text in ended.output


def test_kernels_lists_the_kernels(run, server):
    listed = run("kernels", "--address", server.address)
    assert (listed.exit_code, listed.output) == (0, "echo()\n    Returns its operands.\n")
    described = run("kernels", "echo", "--json", "--address", server.address)
    assert json.loads(described.output)["signature"] == "echo()"
    assert run("kernels", "--search", "nothing", "--address", server.address).exit_code == 1


def test_info_without_a_server_says_how_to_start_one(run, tmp_path):
    ended = run("info", f"unix:{tmp_path}/no.sock")
    assert ended.exit_code == 3
    assert "start one with: shardcall serve" in ended.output
    assert "Traceback" not in ended.output


@rows(
    ("said", "expected"),
    [
        ("leave out ca_certificate= and tls=, or", "leave out --ca-certificate and --tls, or"),
        ("give client_certificate and client_key together", "give --client-certificate and --client-key together"),
        ("tls is False; leave out ca_certificate", "--no-tls is given; leave out --ca-certificate"),
        ("ca_certificate is '/client_key/tls=/a.pem'", "--ca-certificate is '/client_key/tls=/a.pem'"),
        ("or SHARDCALL_CA_CERTIFICATE, or say tls=False on", "or SHARDCALL_CA_CERTIFICATE, or say --no-tls on"),
        (
            "delete it by client.open('u2').delete(), or give replace=True",
            "delete it by shardcall rm u2, or give --replace",
        ),
        ("list the names by client.list(), or", "list the names by shardcall ls, or"),
        ("no file; client.files() lists the names", "no file; shardcall files lists the names"),
        ("by client.share(name, with_=…, write=True)", "by shardcall share NAME --with PRINCIPAL --write"),
        ("its values, for client.open(name)", "its values, for shardcall get NAME"),
    ],
)
def test_errors_name_commands_and_options(said, expected):
    assert as_options(said) == expected


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr("shardcall.cli.token.is_terminal", lambda: True)


def test_a_token_for_hosts_is_shown_as_the_worker_takes_it(run, tmp_path, terminal):
    ended = run("token", "add", "hosts", "--scopes", "host", "--token-file", str(tmp_path / "token"))
    assert ended.exit_code == 0
    assert "export SHARDCALL_TOKEN=" in ended.output
    assert "shardcall worker --join" in ended.output
    assert "shardcall.connect" not in ended.output


def test_tokens_are_printed_to_a_terminal_or_where_they_were_asked_for(run, tmp_path, monkeypatch):
    file = str(tmp_path / "token")
    said = run("token", "add", "bob", "--token-file", file).output + run("token", "--token-file", file).output
    assert f"{file} holds the token of bob; print it with: shardcall token show bob\n" in said
    first, bob = token_file.read(file)
    (admin,) = token_file.read(token_file.admin_path(file))
    assert not any(entry.token in said for entry in (first, bob, admin))
    assert bob.scopes == ("run", "arrays")
    for arguments, entry in (((), first), (("bob",), bob), (("--admin",), admin)):
        assert run("token", "show", *arguments, "--token-file", file).output == f"{entry.token}\n"
    monkeypatch.setattr("shardcall.cli.token.is_terminal", lambda: True)
    assert f'token="{first.token}"' in run("token", "--token-file", file).output


@rows(
    ("arguments", "says"),
    [(["nobody"], "there is no principal 'nobody'; there are: "), (["a", "--admin"], "leave out NAME, or --admin")],
)
def test_an_invalid_selection_of_a_token_is_refused(run, tmp_path, arguments, says):
    ended = run("token", "show", *arguments, "--token-file", str(tmp_path / "token"))
    assert ended.exit_code == 1
    assert says in ended.output


def test_scopes_may_have_spaces_between_them(run, tmp_path):
    file = str(tmp_path / "token")
    assert run("token", "add", "sp", "--scopes", " run , arrays", "--token-file", file).exit_code == 0
    assert "sp: run, arrays\n" in run("token", "--token-file", file).output


def shardcall_command(*arguments):
    command = [sys.executable, "-m", "shardcall", *arguments]
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)


def test_the_package_is_the_command():
    from importlib.metadata import version

    assert shardcall.__version__ == version("shardcall")
    assert shardcall_command("--version").stdout == f"shardcall {shardcall.__version__} (contract shardcall.v1)\n"
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
    from shardcall.cli.app import run as run_to_the_end

    with pytest.raises(SystemExit) as ended:
        run_to_the_end(arguments)
    said = capsys.readouterr()
    assert (ended.value.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert re.match(f"shardcall: {says}", said.err)


def test_the_help_of_serve_is_complete_in_80_columns():
    settings = pytest.importorskip("shardcall_server.settings").Settings
    output = shardcall_command("serve", "--help").stdout
    assert max(map(len, output.splitlines())) <= 80
    text = " ".join(output.split())
    shown = lambda value: ("off", "on")[value] if isinstance(value, bool) else value  # noqa: E731
    assert "--token " not in text  # other users see the arguments of a command
    for name, field in settings.model_fields.items():
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


def test_client_config_sets_what_a_client_elsewhere_needs(run, tmp_path, monkeypatch):
    from shardcall_server.certificate_authority import make_authority

    make_authority(tmp_path, [], 1, replace=False)
    tokens = str(tmp_path / "token")
    entries = [token_file.Entry.make("ada", ("run",)), token_file.Entry.make("hosts", ("host",))]
    token_file.create(tokens, entries)
    monkeypatch.delenv("SHARDCALL_TOKEN", raising=False)
    monkeypatch.setenv("SHARDCALL_TOKEN_FILE", tokens)
    monkeypatch.setenv("SHARDCALL_CA_CERTIFICATE", str(tmp_path / "ca.pem"))
    printed = run("client-config").stdout
    output = subprocess.run(
        ["sh", "-c", f'{printed}\nprintf %s "$SHARDCALL_TOKEN|$SHARDCALL_CA_CERTIFICATE"'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    token, _, authority = output.partition("|")
    assert token == entries[0].token
    monkeypatch.setenv("SHARDCALL_CA_CERTIFICATE", authority)
    assert find_tls(parse_address("localhost:1")) == Tls((tmp_path / "ca.pem").read_bytes())
    other = json.loads(run("client-config", "--json", "--principal", "hosts", "--address", "gpu1:9000").stdout)
    assert other == {"address": "gpu1:9000", "ca_certificate": authority, "token": entries[1].token}
    assert "there are: ada, hosts" in run("client-config", "--principal", "eve").stderr
