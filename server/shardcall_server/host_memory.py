"""Memory limits of this process, and the processes that the kernel has killed for lack of memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

_ROOT = Path("/")
_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
_EVENTS = ("memory.events", "memory.oom_control")


@cache
def memory_bytes(root: Path = _ROOT) -> int:
    """Returns the bytes of memory that this process may use, at first use.

    They are the memory of the host, or the smallest limit of the process's own control group and those around it.

    Args:
        root: the folder of ``proc`` and of the mounted control groups.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for group in _memory_groups(root):
        for name in _LIMITS:
            try:
                limits.append(int((group / name).read_text()))
            except (OSError, ValueError):  # another version, or "max"
                continue
    return min(limits)


def oom_kills(root: Path = _ROOT) -> int:
    """Returns the number of processes of this process's control group that the kernel has killed for lack of memory.

    Where no group counts them, those of the host since it booted; 0 if unknown.

    Args:
        root: as of `memory_bytes`.
    """
    for path in (*(group / name for group in _memory_groups(root) for name in _EVENTS), root / "proc/vmstat"):
        try:
            rows = dict(row.split(maxsplit=1) for row in path.read_text().splitlines())
            return int(rows["oom_kill"])
        except (OSError, ValueError, KeyError):
            continue
    return 0


def _memory_groups(root: Path) -> Iterator[Path]:
    """Yields the folders of the control groups that limit this process's memory, the innermost of each version first.

    The groups outside the mounted tree, as around a container, cannot be seen.
    """
    try:
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
        groups = [row.split(":", 2) for row in (root / "proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return
    for row in mounts:
        mount, _, source = row.partition(" - ")
        file_system, _, options = source.split(" ", 2)
        for _, controllers, path in groups:
            is_version_2 = file_system == "cgroup2" and not controllers
            if is_version_2 or (file_system == "cgroup" and "memory" in options.split(",") and "memory" in controllers):
                tree, mount_point = mount.split()[3:5]
                yield from _innermost_first(root / mount_point.lstrip("/"), tree, path)


def _innermost_first(mount_point: Path, tree: str, path: str) -> Iterator[Path]:
    """Yields the folder of a control group and those around it.

    Args:
        mount_point: where the tree of groups is mounted.
        tree: the group at the mount point.
        path: the group.
    """
    inside = PurePosixPath(path)
    # The paths of a container may be those of its host.
    is_seen = inside.is_relative_to(tree) and ".." not in inside.parts
    inner = inside.relative_to(tree).parts if is_seen else ()
    for depth in range(len(inner), -1, -1):
        yield mount_point.joinpath(*inner[:depth])
