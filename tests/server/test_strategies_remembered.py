"""Choices outlast the server in a file, and a file that cannot be trusted costs only timing anew."""

from __future__ import annotations

import json
import os
import stat

import pytest

from shardcall_server.frontend.programs import tuning_cache as module
from shardcall_server.frontend.programs.strategies import Choice, Timing
from shardcall_server.frontend.programs.tuning_cache import TuningCache

NAMES = ("halo", "gspmd")
CHOICE = Choice("gspmd", NAMES, (Timing("gspmd", 0.1, 9), Timing("halo", 0.3, 9)))
DIGEST = "0123456789abcdef" * 4


def digest(number: int) -> str:
    return f"{number:064x}"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "not there yet" / "cache"


def test_a_choice_is_found_by_the_next_server(folder):
    TuningCache(str(folder)).keep(DIGEST, CHOICE)
    assert TuningCache(str(folder)).find(DIGEST, NAMES) == CHOICE
    assert TuningCache(str(folder)).find(digest(1), NAMES) is None


def test_a_choice_between_other_candidates_is_not_used(folder):
    tuning_cache = TuningCache(str(folder))
    tuning_cache.keep(DIGEST, CHOICE)
    assert tuning_cache.find(DIGEST, (*NAMES, "new")) is None
    assert tuning_cache.find(DIGEST, NAMES[::-1]) is None


def test_only_this_user_may_read_the_file(folder):
    TuningCache(str(folder)).keep(DIGEST, CHOICE)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()] == [0o600]


def test_servers_that_share_a_folder_add_to_it(folder):
    one, other = TuningCache(str(folder)), TuningCache(str(folder))
    one.keep(digest(1), CHOICE)
    other.keep(digest(2), CHOICE)
    again = TuningCache(str(folder))
    assert again.find(digest(1), NAMES) == again.find(digest(2), NAMES) == CHOICE


def test_what_was_decided_here_stays_when_another_server_decides_otherwise(folder):
    one, other = TuningCache(str(folder)), TuningCache(str(folder))
    one.keep(DIGEST, CHOICE)
    other.keep(DIGEST, Choice("halo", NAMES, CHOICE.timings[::-1]))
    one.keep(digest(2), CHOICE)
    assert one.find(DIGEST, NAMES) == CHOICE


def test_the_oldest_are_forgotten(folder, monkeypatch):
    monkeypatch.setattr(module, "_MAX_CHOICES", 3)
    tuning_cache = TuningCache(str(folder))
    for number in range(5):
        tuning_cache.keep(digest(number), CHOICE)
    for kept in (tuning_cache, TuningCache(str(folder))):
        assert [kept.find(digest(number), NAMES) is not None for number in range(5)] == [False, False, True, True, True]


def test_what_was_not_compared_is_tried_again_by_the_next_server(folder):
    tuning_cache = TuningCache(str(folder))
    tuning_cache.keep(DIGEST, Choice("halo", NAMES, (Timing("halo", 9.0, 1),)))
    assert tuning_cache.find(DIGEST, NAMES) is not None
    assert TuningCache(str(folder)).find(DIGEST, NAMES) is None


def entry(**changes: object) -> str:
    stored = {"strategy": "halo", "candidates": NAMES, "timings": [["halo", 0.1, 9], ["gspmd", 0.2, 9]], **changes}
    return json.dumps({"format": 1, "choices": {DIGEST: stored}})


def test_a_file_made_by_hand_is_read(folder):
    folder.mkdir(parents=True, mode=0o700)
    (folder / "strategies.json").write_text(entry())
    found = TuningCache(str(folder)).find(DIGEST, NAMES)
    assert found is not None
    assert found.strategy == "halo"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "\x00\xff",
        "[" * 100_000,
        '{"format": 2, "choices": {}}',
        '{"choices": {}}',
        '{"format": 1, "choices": {"short": {}}}',
        entry(strategy="gspmd"),
        entry(strategy="unknown", timings=[["unknown", 0.1, 9]]),
        entry(timings=[]),
        entry(timings=[["halo", float("nan"), 9]]),
        entry(timings=[["halo", -1.0, 9]]),
        entry(timings=[["halo", 0.1, float("inf")]]),
        entry(timings=[["halo", 10**400, 9]]),
        entry(timings=[["halo", 0.1]]),
        entry(candidates=5),
    ],
)
def test_a_damaged_file_is_ignored_and_written_anew(folder, text, capsys):
    folder.mkdir(parents=True, mode=0o700)
    (folder / "strategies.json").write_bytes(text.encode("latin-1"))
    tuning_cache = TuningCache(str(folder))
    assert "are timed anew" in capsys.readouterr().out
    assert tuning_cache.find(DIGEST, NAMES) is None
    tuning_cache.keep(DIGEST, CHOICE)
    assert TuningCache(str(folder)).find(DIGEST, NAMES) == CHOICE


@pytest.mark.parametrize("whose", ["folder", "file"])
def test_a_file_that_others_may_write_is_not_trusted(folder, whose, capsys):
    TuningCache(str(folder)).keep(DIGEST, CHOICE)
    os.chmod(folder if whose == "folder" else folder / "strategies.json", 0o777)
    assert TuningCache(str(folder)).find(DIGEST, NAMES) is None
    assert "must not let other users change it" in capsys.readouterr().out


def test_a_folder_that_cannot_be_made_costs_only_the_memory(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    tuning_cache = TuningCache(str(tmp_path / "file" / "cache"))
    tuning_cache.keep(DIGEST, CHOICE)
    assert "will not be remembered" in capsys.readouterr().out
    assert tuning_cache.find(DIGEST, NAMES) == CHOICE


def test_without_a_folder_nothing_outlasts_the_server():
    tuning_cache = TuningCache("")
    tuning_cache.keep(DIGEST, CHOICE)
    assert tuning_cache.find(DIGEST, NAMES) == CHOICE


def test_a_pipe_in_the_files_place_is_not_waited_for(folder, capsys):
    folder.mkdir(parents=True, mode=0o700)
    os.mkfifo(folder / "strategies.json", 0o600)
    assert TuningCache(str(folder)).find(DIGEST, NAMES) is None
    assert "not a regular file" in capsys.readouterr().out
