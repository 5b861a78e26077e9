"""Processes of another user than that of the tests."""

import os
import subprocess
import sys

import pytest

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process as another user")
BECOME_NOBODY = """
import os, socket, sys
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
"""
_VISIT = f"""
{BECOME_NOBODY}
visitor = socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[1]))
try:
    visitor.connect(sys.argv[2])
    visitor.send(bytes.fromhex(sys.argv[3]))
    print(socket.recv_fds(visitor, 64, 4)[0])
except (BrokenPipeError, ConnectionResetError):
    print(b"")
except PermissionError:
    print("PermissionError")
"""


def answer_to_nobody(kind: str, path: str, data: bytes) -> str:
    """Returns what another user gets who sends data to a Unix socket: a repr of bytes, or ``PermissionError``.

    Args:
        kind: of the socket, as ``SOCK_STREAM``.
        path: its path.
        data: what is sent.
    """
    command = [sys.executable, "-c", _VISIT, kind, path, data.hex()]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
