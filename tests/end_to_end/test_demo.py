"""`shardcall demo`: the first question, its check against NumPy and its picture."""

from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from shardcall._src.local import server_packages
from shardcall.cli import demo
from shardcall.cli.app import make_app


@pytest.fixture
def ask(monkeypatch):
    monkeypatch.setattr(demo, "ROWS", 48)
    monkeypatch.setattr(demo, "COLUMNS", 6)

    def ask(*arguments):
        ended = CliRunner().invoke(make_app(), ["demo", *map(str, arguments)])
        return ended.exit_code, ended.output

    return ask


def test_the_demo_answers_the_first_question_and_its_picture_shows_the_blocks_and_the_times(server, ask, tmp_path):
    file = tmp_path / "demo.svg"
    status, said = ask(server.address, "--picture", file)
    assert status == 0
    assert "result equals np.diff, bit for bit" in said
    compared = said.partition("The best of 10 rounds each:\n")[2].splitlines()
    expected = ["np.diff", "halo, the kernel", "gspmd, the kernel", "halo, the call"]
    assert [line.split("  ")[1] for line in compared[:4]] == expected
    assert f"The picture is in {file}." in said
    texts = [item.text for item in ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}text")]
    assert {"0:6", "42:48", "np.diff, one core", "shardcall, halo", "compiler (gspmd)"} <= set(texts)
    assert len([text for text in texts if text.endswith(" ms")]) == 3


def test_a_picture_that_cannot_be_written_is_refused_before_the_server_starts(ask, tmp_path):
    file = tmp_path / "absent/demo.svg"
    assert ask("--picture", file) == (1, f"shardcall: {file} cannot be written: there is no folder {file.parent}\n")


def test_without_the_server_the_demo_says_how_to_install_it(ask, monkeypatch):
    monkeypatch.setattr(server_packages, "missing_packages", lambda: ["jax"])
    status, said = ask()
    assert status == 3
    assert "jax is missing; pip install 'shardcall[server]'" in said


def test_a_result_that_differs_ends_the_demo_with_status_1(server, ask, monkeypatch):
    monkeypatch.setattr(demo.np, "array_equal", lambda *_: False)
    status, said = ask(server.address)
    assert status == 1
    assert "RESULT DIFFERS FROM np.diff" in said
