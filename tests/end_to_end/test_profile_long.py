"""Profiles that are discarded with the mesh, the server or for their size, and those of collective products."""

import asyncio
import importlib
import os
import re
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from end_to_end.processes import wait_for
from end_to_end.test_profile import ACROSS, X, events, left_on_the_server
from servers import DEVICES

import shardcall as sc
from shardcall import aio

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("temporary_folder")]


def test_the_runs_of_collective_matmul_are_in_their_profiles(recorder, tmp_path, monkeypatch):
    """Each run of the notebook on collective matmul under a trace of its own."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "examples")
    collective_matmul = importlib.import_module("collective_matmul")
    runs = {
        "psum, psum_scatter and all_gather": lambda: collective_matmul.partial_sums(recorder),
        "all_gather and rings": lambda: collective_matmul.gathered_lhs(recorder, 256, 32, 64),
        "odd blocks": lambda: collective_matmul.gathered_lhs(recorder, 4 * 7, 32, 64),
        "psum_scatter and its ring": lambda: collective_matmul.scattered_sums(recorder, 256, 32, 64),
    }
    expected = {"all_gather and rings": "ppermute", "psum_scatter and its ring": "(reduce|psum)_scatter"}
    folders = set()
    for name, run in runs.items():
        with recorder.profile(tmp_path / "traces") as profile:
            assert profile.path is None
            assert all(run().values())
        assert profile.path.parent == tmp_path / "traces" / "plugins" / "profile"
        names = events(profile.path)
        assert any(re.match(expected.get(name, "dot|psum|.*fusion"), event) for event in names), names
        folders.add(profile.path)
    assert len(folders) == len(runs)
    assert left_on_the_server() == []


def test_a_restart_of_the_mesh_throws_it_away(recording, tmp_path):
    (worker,) = recording.worker_pids()
    with sc.connect(recording.address) as client:
        profile = client.profile(tmp_path / "traces")
        profile.start()
        assert len(left_on_the_server()) == 1
        os.kill(worker, 9)
        wait_for(lambda: left_on_the_server() == [])
        with pytest.raises(sc.InvalidRequestError, match=r"the last one ended with the mesh, which restar") as refused:
            profile.stop()
        assert refused.value.reason == "PROFILE_STATE"
        assert not [path for path in (tmp_path / "traces").rglob("*") if path.is_file()]
        with client.profile(tmp_path / "traces") as again:
            client.diff(X, axis=0, **ACROSS)
        assert events(again.path)


def test_the_end_of_a_server_throws_it_away_and_the_next_server_what_a_killed_one_left(server_factory, tmp_path):
    killed = server_factory(devices=1, why="it is killed")
    with sc.connect(killed.address) as client:
        client.profile(tmp_path / "traces").start()
        killed.process.kill()
        killed.process.wait(60)
    (left,) = left_on_the_server()
    an_hour_ago = time.time() - 3600
    os.utime(Path(tempfile.gettempdir(), left), (an_hour_ago, an_hour_ago))

    following = server_factory(devices=1, why="it is killed")
    assert left_on_the_server() == []
    with sc.connect(following.address) as client:
        client.profile(tmp_path / "traces").start()
        assert len(left_on_the_server()) == 1
        following.process.terminate()
        assert following.process.wait(60) == 0
    assert left_on_the_server() == []


def test_a_profile_beyond_the_limit_is_discarded_entirely(server_factory, tmp_path):
    with sc.connect(
        server_factory("--max-profile-bytes", str(1 << 20), why="its profiles are limited").address
    ) as client:
        profile = client.profile(tmp_path / "traces")
        profile.start()
        large = np.ones((64, 64), np.float32)
        for _ in range(400):
            client.matmul(large, large, mesh=sc.Mesh(x=DEVICES), lhs_spec=sc.P("x", None), out_spec=sc.P())
        with pytest.raises(sc.ResourceExhaustedError, match="--max-profile-bytes"):
            profile.stop()
    assert left_on_the_server() == []
    assert not [path for path in (tmp_path / "traces").rglob("*") if path.is_file()]


def test_it_can_be_awaited(recorder, tmp_path):
    async def record(address: str) -> Path:
        async with aio.connect(address) as client:
            async with client.profile(tmp_path / "traces") as profile:
                await client.diff(X, axis=0, **ACROSS)
            return profile.path

    assert events(asyncio.run(record(recorder.address)))
