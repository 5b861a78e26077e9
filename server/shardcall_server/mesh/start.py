"""Entry point of a worker process, which ties its lifetime to the front end before it imports JAX."""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Runs a worker on the link with the descriptor `--link-fd`; returns when the front end is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--link-fd", type=int, required=True)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-text", action="store_true", help="log text and not JSON")
    arguments = parser.parse_args()
    _exit_with_parent(arguments.parent_pid)
    # Ctrl-C, terminals and service managers signal the whole process group; the front end drains and then stops its
    # workers. The compiler processes inherit this.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    # Imported objects stay alive. Traversing them repeatedly takes a tenth of the import time, and slows down calls
    # later.
    gc.disable()
    from shardcall_server.mesh import worker  # noqa: PLC0415  # with JAX

    gc.freeze()
    gc.enable()
    return worker.run(arguments.link_fd, arguments.log_level, is_text=arguments.log_text)


def _exit_with_parent(parent_pid: int) -> None:
    """Asks the kernel to kill this process when the thread of the front end that started it exits.

    A closed link has the same effect, but only in a process whose threads still run.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit(1)  # the front end has exited and logged the reason


if __name__ == "__main__":
    sys.exit(main())
