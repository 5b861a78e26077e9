"""Order of calls: a call waits for earlier launches, never for another call's result."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from end_to_end.processes import X, is_busy, stopped, wait_for
from servers import holds_nothing

import shardcall as sc

PATIENCE_S = 120.0  # less than stalled calls last


def test_questions_are_answered_while_the_mesh_is_busy_and_every_slot_is_taken(modest):
    with sc.connect(modest.address) as client, ThreadPoolExecutor(1) as pool:
        client.diff(X, axis=0)
        kept = client.put(X)
        with stopped(modest):
            running = pool.submit(client.diff, X, axis=0, timeout=PATIENCE_S)
            wait_for(lambda: is_busy(client))
            with sc.connect(modest.address) as other:
                assert "matmul" in [kernel.name for kernel in other.kernels()]
            assert client.kernel("diff").name == "diff"
            assert client.server_info().platform == "cpu"
            assert client.describe(kept).shape == X.shape
            assert len(client.list()) == 1
            assert not running.done()
        np.testing.assert_array_equal(running.result(PATIENCE_S).array, np.diff(X, axis=0))


def test_calls_of_one_array_run_in_their_order(modest):
    """An array deleted behind a call that reads it is there for that call."""
    with sc.connect(modest.address) as client, sc.connect(modest.address) as other, ThreadPoolExecutor(1) as pool:
        kept = client.put(X)
        client.diff(kept, axis=0)
        client.diff(X, axis=0)
        with stopped(modest):
            running = pool.submit(client.diff, kept, axis=0, timeout=PATIENCE_S)
            wait_for(lambda: is_busy(other))
            client.delete(kept)
            assert client.usage().arrays == 0
        np.testing.assert_array_equal(running.result(PATIENCE_S).array, np.diff(X, axis=0))
        wait_for(lambda: holds_nothing(client))
