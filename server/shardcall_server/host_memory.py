"""The memory of this host."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def memory_bytes() -> int:
    """Returns the bytes of memory that this process may use: the host's, or its container's limit, at first use."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # another cgroup version, or "max"
            continue
    return min(limits)
