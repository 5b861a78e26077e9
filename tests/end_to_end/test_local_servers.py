"""Private servers, which end with whoever started them."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from end_to_end.commands import python
from end_to_end.processes import wait_for

import shardcall as sc
from shardcall import aio

pytestmark = pytest.mark.long


def test_a_private_server_ends_with_its_client() -> None:
    async def use() -> str:
        async with aio.local(devices=1) as client:
            assert (await client.diff([1.0, 4.0])).array == [3.0]
            return client.address

    address = asyncio.run(use())
    with pytest.raises(sc.ServerUnavailableError):
        sc.connect(address)


def test_a_private_server_ends_with_its_owner():
    script = (
        "import os, shardcall as sc\n"
        "client = sc.local(devices=2)\n"
        "print(client.diff([1.0, 4.0, 9.0]).array.tolist(), client.address, flush=True)\n"
        "os._exit(9)\n"  # no clean-up of any kind
    )
    owner = python(script)
    assert owner.returncode == 9, owner.stderr
    values, address = owner.stdout.rsplit(" ", 1)
    assert json.loads(values) == [3.0, 5.0]
    host, port = address.strip().rsplit(":", 1)

    def gone() -> bool:
        try:
            socket.create_connection((host, int(port))).close()
        except OSError:
            return True
        return False

    wait_for(gone)


FORKS = """
import os
import sys
import numpy as np
import shardcall as sc

with sc.local(devices=2) as client:
    for deed in (client.close, sys.exit):
        child = os.fork()
        if not child:
            deed()
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
    assert client.diff(np.ones(8)).array.shape == (7,)
"""


def test_children_that_end_leave_a_local_server_to_their_parent():
    ended = python(FORKS)
    assert ended.returncode == 0, ended.stderr
