"""Limits on this process, for the messages of a start that they prevent."""

from __future__ import annotations

_TOO_SMALL_BYTES = 1 << 30  # with which not all threads start, whatever the settings


def memory_refusal() -> str:
    """Returns a message if the limit on virtual memory is too small for a server; empty otherwise."""
    limit = _memory_bytes()
    if limit is None or limit >= _TOO_SMALL_BYTES:
        return ""
    return f"the server needs more virtual memory than this process may have; {thread_advice()}"


def thread_advice() -> str:
    """Returns what to do where the system starts no more threads."""
    limit = _memory_bytes()
    if limit is not None:
        return f"raise the limit on virtual memory, which is {limit >> 10} KiB (ulimit -v unlimited)"
    return "raise the limit on processes (ulimit -u, TasksMax= of systemd, --pids-limit of a container)"


def _memory_bytes() -> int | None:
    """Returns the limit on virtual memory; None if there is none."""
    try:
        import resource  # noqa: PLC0415  # not everywhere
    except ImportError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit
