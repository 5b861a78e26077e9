"""Recording in a worker, where files cannot be written, and where there are too many events."""

import time
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from server.conftest import refusal, refused

from shardcall_core.call_error import Reason
from shardcall_server.mesh import profiling
from shardcall_server.mesh.profiling import Profiler, count_events, recordable

PROGRAM = SimpleNamespace(
    instruction_count=10, resolved=SimpleNamespace(problem=SimpleNamespace(mesh=SimpleNamespace(device_count=1)))
)


@pytest.fixture
def full():
    """The calls because a recording was full."""
    return []


@pytest.fixture
def profiler(full):
    recorder = Profiler(lambda: full.append(None))
    yield recorder
    profiling._recordings.discard(recorder)


def written(directory) -> list[str]:
    return [path.suffix for path in directory.rglob("*") if path.is_file()]


def fill_disk_once(monkeypatch: pytest.MonkeyPatch, part: Path) -> None:
    """Has the next end of a recording fail, with a part of it written."""
    stop_trace, failures = jax.profiler.stop_trace, iter([True])

    def disk_full() -> None:
        if next(failures, False):
            part.mkdir(parents=True)
            raise RuntimeError("RESOURCE_EXHAUSTED: No space left on device")
        stop_trace()

    monkeypatch.setattr(jax.profiler, "stop_trace", disk_full)


def test_one_recording_at_a_time(profiler, full, tmp_path):
    profiler.start(str(tmp_path / "one"))
    assert refusal(profiler.start, str(tmp_path / "two")).reason is Reason.PROFILE_STATE
    count_events(PROGRAM, time.monotonic() - 1e9, 10**6)
    assert not full, "a launch that began long before the recording counts in part"
    jnp.ones(3).block_until_ready()
    profiler.stop()
    assert ".pb" in written(tmp_path / "one")
    assert refusal(profiler.stop).reason is Reason.PROFILE_STATE


def test_a_full_disk_ends_one_recording_and_no_later_one(profiler, tmp_path, monkeypatch):
    fill_disk_once(monkeypatch, tmp_path / "one" / "part")
    profiler.start(str(tmp_path / "one"))
    with refused(Reason.CALL_TOO_LARGE, "lack of disk space"):
        profiler.stop()
    assert not (tmp_path / "one" / "part").exists()
    profiler.start(str(tmp_path / "two"))
    profiler.stop()
    assert ".pb" in written(tmp_path / "two")


def test_a_recording_with_too_many_events_ends_and_keeps_its_files(profiler, full, tmp_path, monkeypatch):
    monkeypatch.setattr(profiling, "_MAX_EVENTS", 1000)
    assert recordable(PROGRAM, 10**8) == 10**8
    profiler.start(str(tmp_path / "one"))
    count_events(PROGRAM, time.monotonic(), 60)
    assert (recordable(PROGRAM, 10**8), recordable(PROGRAM, 7)) == (40, 7)
    profiler.truncate()
    assert not full
    assert not written(tmp_path)
    count_events(PROGRAM, time.monotonic(), 40)
    assert len(full) == 1
    profiler.truncate()
    files = written(tmp_path)
    assert ".pb" in files
    assert recordable(PROGRAM, 10**8) == 10**8
    profiler.truncate()
    assert profiler.stop()
    assert written(tmp_path) == files
    profiler.start(str(tmp_path / "two"))
    assert not profiler.stop()


def test_a_truncated_recording_that_could_not_be_written_fails_when_it_is_stopped(profiler, tmp_path, monkeypatch):
    monkeypatch.setattr(profiling, "_MAX_EVENTS", 1)
    fill_disk_once(monkeypatch, tmp_path / "one" / "part")
    profiler.start(str(tmp_path / "one"))
    count_events(PROGRAM, time.monotonic())
    profiler.truncate()
    with refused(Reason.CALL_TOO_LARGE, "lack of disk space"):
        profiler.stop()
    profiler.start(str(tmp_path / "two"))
    assert not profiler.stop()
