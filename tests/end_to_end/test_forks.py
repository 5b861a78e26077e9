"""A forked child calls by its parent's client, whatever the parent's threads were doing."""

import subprocess
import sys

_BLOCK = """
import os
import sys
import numpy as np
import shardcall as sc

with sc.connect(sys.argv[1]) as client, client.put(np.ones(8)) as kept:
    child = os.fork()
    if not child:
        with client.put(np.ones(8)) as own:
            pass
        sys.exit(0 if own.lost else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert kept.get().shape == (8,)
"""


def test_a_child_that_leaves_its_parents_block_deletes_nothing_of_it(server):
    command = [sys.executable, "-c", _BLOCK, server.address]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
