"""Recording in a worker, where files cannot be written."""

import jax
import jax.numpy as jnp
import pytest

from shardcall_core.call_error import CallError, Reason
from shardcall_server.mesh.profiling import Profiler


@pytest.fixture
def profiler():
    return Profiler()


def written(directory) -> list[str]:
    return [path.suffix for path in directory.rglob("*") if path.is_file()]


def test_one_recording_at_a_time(profiler, tmp_path):
    profiler.start(str(tmp_path / "one"))
    with pytest.raises(CallError) as refused:
        profiler.start(str(tmp_path / "two"))
    assert refused.value.reason is Reason.PROFILE_STATE
    jnp.ones(3).block_until_ready()
    profiler.stop()
    assert ".pb" in written(tmp_path / "one")
    with pytest.raises(CallError) as refused:
        profiler.stop()
    assert refused.value.reason is Reason.PROFILE_STATE


def test_a_full_disk_ends_one_recording_and_no_later_one(profiler, tmp_path, monkeypatch):
    stop_trace, failures = jax.profiler.stop_trace, iter([True])

    def disk_full() -> None:
        if next(failures, False):
            (tmp_path / "one" / "part").mkdir(parents=True)
            raise RuntimeError("RESOURCE_EXHAUSTED: No space left on device")
        stop_trace()

    monkeypatch.setattr(jax.profiler, "stop_trace", disk_full)
    profiler.start(str(tmp_path / "one"))
    with pytest.raises(CallError, match="lack of disk space") as refused:
        profiler.stop()
    assert refused.value.reason is Reason.CALL_TOO_LARGE
    assert not (tmp_path / "one" / "part").exists()
    profiler.start(str(tmp_path / "two"))
    profiler.stop()
    assert ".pb" in written(tmp_path / "two")
