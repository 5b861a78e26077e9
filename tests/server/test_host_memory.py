"""Limits of memory and kills of processes, read from control groups in a folder of the test, and limits that follow."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rows import rows

from shardcall_server.frontend.dispatch.host_resources import _max_resident_bytes
from shardcall_server.frontend.dispatch.mesh_queue import make_queue
from shardcall_server.host_memory import memory_bytes, oom_kills
from shardcall_server.settings_sources import load_settings

HOST = memory_bytes()
MIB = 1 << 20
V1 = "33 31 0:4 {} /sys/fs/cgroup/memory rw,nosuid master:9 - cgroup cgroup rw,memory"
V2 = "31 23 0:28 {} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"


@pytest.fixture
def make(tmp_path: Path):
    """Makes a root folder with the mounts and groups of a process and files of control groups."""

    def make(mounts: str, groups: str, files: dict[str, str]) -> Path:
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in {"proc/self/mountinfo": mounts, "proc/self/cgroup": groups, **files}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return root

    return make


@rows(
    ("mounts", "groups", "limits", "expected"),
    [
        (V2.format("/"), "0::/a.slice/b.service", {"a.slice/b.service/memory.max": "943718400"}, 900 * MIB),
        (V2.format("/"), "0::/a/b", {"a/memory.max": f"{MIB}", "a/b/memory.max": f"{2 * MIB}", "memory.max": "9"}, 9),
        (V2.format("/"), "0::/a/b", {"a/memory.high": f"{MIB}", "a/b/memory.max": "max"}, MIB),
        (V2.format("/"), "0::/a", {"other/memory.max": "5", "a/memory.max": "max"}, HOST),
        (V2.format("/docker/1"), "0::/docker/1/init", {"init/memory.max": f"{MIB}"}, MIB),
        (V2.format("/docker/1"), "0::/", {"memory.max": f"{MIB}"}, MIB),
        (V2.format("/"), "0::/../2", {"memory.max": f"{MIB}"}, MIB),
        (V1.format("/"), "4:cpu,memory:/a/b\n0::/", {"memory/a/b/memory.limit_in_bytes": "943718400"}, 900 * MIB),
        (V1.format("/"), "4:memory:/a/b", {"memory/a/memory.limit_in_bytes": f"{MIB}"}, MIB),
        (V1.format("/d/1"), "4:memory:/d/1\n0::/", {"memory/memory.limit_in_bytes": f"{MIB}"}, MIB),
        (V1.format("/"), "4:memory:/a", {"memory/a/memory.limit_in_bytes": str(2**63 - 4096)}, HOST),
    ],
)
def test_the_smallest_limit_from_the_group_of_the_process_to_the_root_counts(make, mounts, groups, limits, expected):
    files = {f"sys/fs/cgroup/{name}": text for name, text in limits.items()}
    assert memory_bytes(make(mounts, groups, files)) == expected


def test_a_host_without_control_groups_has_its_memory(tmp_path):
    assert memory_bytes(tmp_path) == HOST
    assert oom_kills(tmp_path) == 0


VMSTAT = {"proc/vmstat": "nr_free_pages 12\noom_kill 7\nthp 1"}


@rows(
    ("mounts", "groups", "files", "expected"),
    [
        (V2.format("/"), "0::/a", {"sys/fs/cgroup/a/memory.events": "low 0\noom 4\noom_kill 3", **VMSTAT}, 3),
        (V1.format("/"), "4:memory:/a", {"sys/fs/cgroup/memory/a/memory.oom_control": "under_oom 0\noom_kill 2"}, 2),
        (V1.format("/"), "4:memory:/a", {"sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0", **VMSTAT}, 7),
        (V2.format("/"), "0::/", VMSTAT, 7),
    ],
)
def test_kills_are_counted_by_the_group_of_the_process_or_else_by_the_host(make, mounts, groups, files, expected):
    assert oom_kills(make(mounts, groups, files)) == expected


@rows(
    ("flags", "device_bytes", "limit"),
    [
        ({}, 800, 700),
        ({}, 0, memory_bytes() // 2),
        ({}, None, memory_bytes() // 2),
        ({"max_device_bytes": 600}, 800, 600),
        ({"max_resident_bytes": 750}, 800, 750),
    ],
)
def test_resident_arrays_may_take_seven_eighths_of_the_devices_or_half_of_the_host(flags, device_bytes, limit):
    session: Any = None if device_bytes is None else SimpleNamespace(device_bytes=device_bytes)
    assert _max_resident_bytes(load_settings(flags), lambda: session) == limit


def test_programs_and_arrays_may_take_what_the_devices_have_or_else_the_host():
    session: Any = SimpleNamespace(device_bytes=0)
    arrays: Any = SimpleNamespace(device_bytes=0)
    budget = make_queue(load_settings({}), lambda: session, arrays).budget
    assert budget.limit_bytes() == memory_bytes()
    session.device_bytes = 800
    assert budget.limit_bytes() == 800
    assert make_queue(load_settings({"max_device_bytes": 600}), lambda: session, arrays).budget.limit_bytes() == 600
