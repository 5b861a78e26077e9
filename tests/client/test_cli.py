import subprocess
import sys

import pytest

import shardcall

typer = pytest.importorskip("typer")
testing = pytest.importorskip("typer.testing")


@pytest.fixture
def run():
    from shardcall.cli.app import make_app

    return lambda *words: testing.CliRunner().invoke(make_app(), words, env={"COLUMNS": "200"})


def test_version(run):
    ended = run("--version")
    assert (ended.exit_code, ended.output) == (0, f"shardcall {shardcall.__version__}\n")


def test_info_shows_server_and_kernels(run, server):
    ended = run("info", server.address)
    assert ended.exit_code == 0
    for text in (
        server.address,
        "1 × cpu",
        "Mesh(x=1, device_ids=[0])",
        "268,435,456",
        "echo()",
        "Returns its operands.",
    ):
        assert text in ended.output


def test_info_without_a_server_says_how_to_start_one(run, tmp_path):
    ended = run("info", f"unix:{tmp_path}/no.sock")
    assert ended.exit_code == 1
    assert "start one with: shardcall serve" in ended.output
    assert "Traceback" not in ended.output


@pytest.mark.parametrize(
    ("hidden", "words", "says"),
    [
        ("typer", ["info"], "pip install 'shardcall[cli]'"),
        ("pydantic_settings", ["serve"], "pip install 'shardcall[server]'"),
    ],
)
def test_a_missing_extra_is_named(hidden, words, says):
    code = (
        f"import sys; sys.modules[{hidden!r}] = None; sys.argv[1:] = {words!r}\nfrom shardcall.cli import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_version_is_the_distributions():
    from importlib.metadata import version

    assert shardcall.__version__ == version("shardcall")
