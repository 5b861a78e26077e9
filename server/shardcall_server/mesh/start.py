"""The beginning of a worker's process: whom it ends with is settled before JAX is imported, which takes seconds."""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Runs a worker on the link whose descriptor is given; returns when the front end is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--link-fd", type=int, required=True)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--log-level", default="info")
    arguments = parser.parse_args()
    _end_with(arguments.parent_pid)
    # Ctrl-C and service managers signal the whole process group; the front end drains and then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # What is imported stays: to look through it again and again takes a tenth of the time, and later time of calls.
    gc.disable()
    from shardcall_server.mesh import worker  # noqa: PLC0415  # with JAX

    gc.freeze()
    gc.enable()
    return worker.run(arguments.link_fd, arguments.log_level)


def _end_with(parent_pid: int) -> None:
    """Asks the kernel to end this process with the front end's thread that started it.

    The end of the link says the same, but only to a process whose threads still run.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit(1)  # the front end has ended, and has said why


if __name__ == "__main__":
    sys.exit(main())
