"""Starts the front end, and with it all it starts, with the allocator set for large arrays."""

from __future__ import annotations

import os
import sys

# By default glibc gives every block of 32 MiB and more back to the kernel when it is freed, so each call
# pays the page faults of fresh memory: a 128 MiB diff takes 66-80 ms instead of 14.
_TUNABLES = {
    "glibc.malloc.hugetlb": "1",
    "glibc.malloc.mmap_threshold": str(4 << 30),
    "glibc.malloc.trim_threshold": str(16 << 30),
    "glibc.malloc.top_pad": str(256 << 20),
    "glibc.malloc.arena_max": "1",
}


def tuned_environment(environment: dict[str, str]) -> dict[str, str]:
    """The environment with the allocator set; what is set there already stays as it is.

    glibc reads it before a program's first instruction, so it must stand before exec.
    """
    given = environment.get("GLIBC_TUNABLES", "")
    names = {tunable.partition("=")[0] for tunable in given.split(":")}
    added = [f"{name}={value}" for name, value in _TUNABLES.items() if name not in names]
    return {**environment, "GLIBC_TUNABLES": ":".join(filter(None, [given, *added]))}


def ensure_allocator() -> None:
    """Starts this very command again, in the same process, with the allocator set; returns if it is."""
    environment = dict(os.environ)
    tuned = tuned_environment(environment)
    if sys.platform == "linux" and tuned != environment:
        os.execve(sys.executable, sys.orig_argv, tuned)  # noqa: S606  # this program again, as it was called
