"""Other users of the machine: refused as callers, and sent nothing where they listen themselves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import shardcall as sc

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")

_SCRIPT = Path(__file__).with_name("other_user.py")
_NOBODY = 65534


def other_user(deed: str, where: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(_SCRIPT), str(_NOBODY), deed, str(where)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
    )


def outcome(deed: str, where: object) -> str:
    """The output of another user's process that does something."""
    out, err = other_user(deed, where).communicate(timeout=300)
    assert not err or "Traceback" not in err, err
    return out


@only_root
def test_another_user_who_has_no_token_is_refused(server):
    said = outcome("connect", server.address)
    assert said.startswith("AccessDeniedError the call has no token")
    assert "cannot be read: Permission denied" in said or "belongs to user 0" in said


@only_root
def test_who_took_a_port_before_the_server_is_shown_no_token():
    squatter = other_user("squat", "")
    assert squatter.stdin is not None
    assert squatter.stdout is not None
    try:
        address = squatter.stdout.readline().strip()
        with sc.connect(address, shared_memory=False):
            pass
        called = squatter.stdout.readline()
        assert called.startswith("called with ")
        assert "shardcall-timeout" in called
        assert "authorization" not in called
        with sc.connect(address, token="given-by-hand-0123456789", shared_memory=False):
            pass
        assert "authorization" in squatter.stdout.readline()
    finally:
        squatter.communicate(timeout=60)
