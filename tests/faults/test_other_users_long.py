"""Other users of the machine at a socket of the server's, and at its token file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from faults.test_other_users import outcome

import shardcall as sc

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")]


def test_another_user_does_not_get_through_a_socket_of_the_servers(server_factory, tmp_path):
    server = server_factory("--unix-socket", str(tmp_path / "socket"), devices=1, why="another user tries its socket")
    with sc.connect(f"unix:{tmp_path / 'socket'}") as client:
        np.testing.assert_array_equal(client.diff([1.0, 4.0]).array, [3.0])
    tmp_path.chmod(0o755)
    assert "connected" not in outcome("connect", f"unix:{tmp_path / 'socket'}")
    assert server.process.poll() is None


def test_the_token_of_another_user_is_not_even_shown(server):
    said = outcome("connect_with_another_file", server.address)
    assert said.startswith("AccessDeniedError the call has no token")
    assert "no server of this user on this machine listens at" in said


def test_a_server_refuses_the_token_file_of_another_user():
    with tempfile.TemporaryDirectory() as folder:  # not in the test's own folder, which others may not enter
        file = Path(folder, "token")
        file.touch()
        os.chmod(folder, 0o755)
        for mode, says in ((0o600, "cannot be read: Permission denied"), (0o644, "belongs to user 0")):
            os.chmod(file, mode)
            assert says in outcome("serve", file)
