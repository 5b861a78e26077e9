"""Arrays with names that several processes write, delete and lose."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from end_to_end.filing import same
from end_to_end.messages import token_of
from end_to_end.processes import repeated, wait_for
from end_to_end.test_shared_names import SHARED, X

import shardcall as sc

pytestmark = pytest.mark.long

_WRITER = Path(__file__).parent / "named_writer.py"


def test_an_owner_shares_and_deletes_while_a_guest_reads_and_writes(leasing_server, ours):
    """Every use succeeds with a value that somebody wrote, or is refused for a reason that is documented."""
    h = ours.put(np.zeros((8, 4)), name="u")

    def use(guest: sc.Client) -> None:
        try:
            g = guest.open(SHARED)
            values = g.get()
            assert (values == values[0, 0]).all(), values
            g += 1
        except (sc.ArrayLostError, sc.AccessDeniedError):
            pass
        except sc.InvalidRequestError as error:
            assert error.reason == "NAME_TAKEN"  # noqa: PT017

    token = token_of("guest")
    with (
        sc.connect(leasing_server.address, token=token) as one,
        sc.connect(leasing_server.address, token=token) as other,
        repeated(lambda: use(one)),
        repeated(lambda: use(other)),
    ):
        for i in range(30):
            ours.share("u", with_="guest", write=i % 3 != 0)
            with suppress(sc.InvalidRequestError, sc.ArrayLostError):
                h += 1
            ours.unshare("u", with_="guest" if i % 2 else None)
            if i % 10 == 9:
                h.delete()
                h = ours.put(np.zeros((8, 4)), name="u")
    values = h.get()
    assert (values == values[0, 0]).all()
    h.delete()
    wait_for(lambda: (ours.usage().arrays, ours.usage().leases) == (0, 0))


def test_a_guest_that_is_killed_while_it_writes_leaves_one_of_the_values(leasing_server, ours):
    """Two processes of two principals write; one is killed, the other goes on, and nothing of the one stays."""
    h = ours.put(np.zeros((64, 4)), name="u", mesh=sc.Mesh(x=8))
    ours.share("u", with_="guest", write=True)
    workers = leasing_server.worker_pids()
    for _ in range(3):
        environment = {**os.environ, "SHARDCALL_TOKEN": token_of("guest")}
        command = [sys.executable, str(_WRITER), leasing_server.address, SHARED]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "writing\n"
            for _ in range(5):
                with suppress(sc.InvalidRequestError, sc.ArrayLostError):  # the other was faster
                    h[...] = -1
            writer.send_signal(signal.SIGKILL)
        values = h.get()
        assert (values == values[0, 0]).all()
        assert values[0, 0] == -1 or values[0, 0] in range(1, 1 << 20)
        h += 1
        same(h.get(), values + 1)
    wait_for(lambda: (ours.usage().arrays, ours.usage().leases) == (1, 0))
    same(ours.open("u").get(), values + 1)
    h.delete()
    assert ours.usage().arrays == 0
    assert leasing_server.worker_pids() == workers


def test_a_mesh_that_restarts_loses_names_with_a_clear_error(leasing_server, ours):
    h = ours.put(X, name="u")
    (worker,) = leasing_server.worker_pids()
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: ours.usage().arrays == 0)
    for use in (h.get, lambda: ours.open("u"), lambda: h + 1):
        with pytest.raises(sc.ArrayLostError, match=r"no array has the name 'u'.*the mesh or the server restarted"):
            use()
    ours.put(X, name="u")
    same(h.get(), X)
