"""Tuning results outlast the server in a file, and an untrusted file only costs new trials."""

import json
import os
import stat
from unittest.mock import Mock

import pytest
from rows import rows
from server.conftest import NO_JSON_OBJECTS
from structlog.testing import capture_logs

from shardcall_server.frontend.autotune.tuning_cache import TuningCache
from shardcall_server.frontend.autotune.tuning_result import StrategyTiming, TuningResult
from shardcall_server.frontend.programs import digest_file as module

NAMES = ("halo", "gspmd")
RESULT = TuningResult("gspmd", NAMES, (StrategyTiming("gspmd", 0.1, 9), StrategyTiming("halo", 0.3, 9)))
DIGEST = "0123456789abcdef" * 4


def digest(number: int) -> str:
    return f"{number:064x}"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "not there yet" / "cache"


def test_a_result_between_the_same_candidates_is_loaded_by_the_next_server(folder):
    TuningCache(str(folder)).put(DIGEST, RESULT)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()] == [0o600]
    following = TuningCache(str(folder))
    assert following.get(DIGEST, NAMES) == RESULT
    assert following.get(digest(1), NAMES) is None
    assert following.get(DIGEST, (*NAMES, "new")) is None
    assert following.get(DIGEST, NAMES[::-1]) is None


def test_servers_that_share_a_folder_add_to_it_and_keep_what_they_decided(folder):
    one, other = TuningCache(str(folder)), TuningCache(str(folder))
    one.put(DIGEST, RESULT)
    other.put(DIGEST, TuningResult("halo", NAMES, RESULT.timings[::-1]))
    other.put(digest(1), RESULT)
    one.put(digest(2), RESULT)
    assert one.get(DIGEST, NAMES) == RESULT
    again = TuningCache(str(folder))
    assert again.get(digest(1), NAMES) == again.get(digest(2), NAMES) == RESULT


def test_the_oldest_are_forgotten(folder, monkeypatch):
    monkeypatch.setattr(module, "MAX_VALUES", 3)
    tuning_cache = TuningCache(str(folder))
    for number in range(5):
        tuning_cache.put(digest(number), RESULT)
    for kept in (tuning_cache, TuningCache(str(folder))):
        assert [kept.get(digest(number), NAMES) is not None for number in range(5)] == [False, False, True, True, True]


def test_what_was_not_compared_is_tried_again_by_the_next_server(folder):
    tuning_cache = TuningCache(str(folder))
    tuning_cache.put(DIGEST, TuningResult("halo", NAMES, (StrategyTiming("halo", 9.0, 1),)))
    assert tuning_cache.get(DIGEST, NAMES) is not None
    assert TuningCache(str(folder)).get(DIGEST, NAMES) is None


def test_a_result_that_does_not_last_replaces_none_of_another_server(folder):
    one, other = TuningCache(str(folder)), TuningCache(str(folder))
    one.put(DIGEST, RESULT)
    other.put(DIGEST, TuningResult("halo", NAMES, (StrategyTiming("halo", 9.0, 1),)))
    for tuning_cache in (other, TuningCache(str(folder))):
        assert tuning_cache.get(DIGEST, NAMES) == RESULT


def test_a_file_that_cannot_be_read_now_is_not_replaced(folder, monkeypatch):
    one, other = TuningCache(str(folder)), TuningCache(str(folder))
    one.put(DIGEST, RESULT)
    with monkeypatch.context() as without_files, capture_logs() as logs:
        without_files.setattr(module.private_files, "read_file", Mock(side_effect=OSError("Too many open files")))
        other.put(digest(1), RESULT)
    assert [log["event"] for log in logs] == [TuningCache.NOT_WRITTEN]
    assert other.get(digest(1), NAMES) == TuningCache(str(folder)).get(DIGEST, NAMES) == RESULT


def entry(**changes: object) -> str:
    stored = {"strategy": "halo", "candidates": NAMES, "timings": [["halo", 0.1, 9], ["gspmd", 0.2, 9]], **changes}
    return json.dumps({"format": 1, "results": {DIGEST: stored}})


def test_a_file_written_by_a_person_is_read(folder):
    folder.mkdir(parents=True, mode=0o700)
    (folder / "tuning.json").write_text(entry())
    assert TuningCache(str(folder)).get(DIGEST, NAMES).strategy == "halo"


TIMINGS = (["halo", float("nan"), 9], ["halo", -1, 9], ["halo", 0.1, float("inf")], ["halo", 10**400, 9], ["halo", 0.1])


@rows(
    "text",
    [
        *(content.decode("latin-1") for content in NO_JSON_OBJECTS),
        '{"format": 2, "results": {}}',
        '{"results": {}}',
        '{"format": 1, "results": {"short": {}}}',
        entry(strategy="gspmd"),
        entry(strategy="unknown", timings=[["unknown", 0.1, 9]]),
        entry(timings=[]),
        *(entry(timings=[timing]) for timing in TIMINGS),
        entry(candidates=5),
    ],
)
def test_a_damaged_file_is_ignored_and_written_anew(folder, text, capsys):
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    (folder / "tuning.json").write_bytes(text.encode("latin-1"))
    tuning_cache = TuningCache(str(folder))
    assert "are timed anew" in capsys.readouterr().out
    assert tuning_cache.get(DIGEST, NAMES) is None
    tuning_cache.put(DIGEST, RESULT)
    assert TuningCache(str(folder)).get(DIGEST, NAMES) == RESULT


@pytest.mark.parametrize("whose", ["folder", "file"])
def test_a_file_that_others_may_write_is_not_trusted(folder, whose, capsys):
    TuningCache(str(folder)).put(DIGEST, RESULT)
    os.chmod(folder if whose == "folder" else folder / "tuning.json", 0o777)
    assert TuningCache(str(folder)).get(DIGEST, NAMES) is None
    assert "must not let other users change it" in capsys.readouterr().out


@pytest.mark.parametrize("has_folder", [False, True])
def test_without_a_folder_or_one_that_can_be_created_results_stay_in_memory(tmp_path, capsys, has_folder):
    (tmp_path / "file").write_text("")
    tuning_cache = TuningCache(str(tmp_path / "file" / "cache") if has_folder else "")
    tuning_cache.put(DIGEST, RESULT)
    assert ("will not be kept on disk" in capsys.readouterr().out) == has_folder
    assert tuning_cache.get(DIGEST, NAMES) == RESULT
