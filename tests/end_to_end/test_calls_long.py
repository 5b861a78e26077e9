"""Programs that many calls share: equivalent arguments, and many callers at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from end_to_end.processes import wait_for
from end_to_end.test_calls import MESH

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long


def test_equivalent_arguments_always_hit_the_cache(client):
    # The answer for a program that is there comes so soon that it once overtook the question.
    for rows in range(300, 400):
        x = np.zeros((rows, 2), np.int8)
        client.diff(x, axis=0, mesh=sc.Mesh(x=1), spec=P("x", None), timeout=20)
        again = client.diff(x, axis=0, mesh=sc.Mesh(x=1), spec=P("x"), timeout=20)
        assert again.plan.cache_hit


def test_twenty_callers_with_one_new_key_compile_once(exclusive_server):
    before, start = len(exclusive_server.log.read_text().splitlines()), threading.Barrier(20)
    x = np.random.default_rng(3).standard_normal((123, 4))

    def call(_):
        with sc.connect(exclusive_server.address) as client:
            start.wait()
            return client.diff(x, axis=0, prepend=0.0, mesh=MESH, spec=P("x", None))

    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(call, range(20)))
    for result in results:
        np.testing.assert_array_equal(result.array, np.diff(x, axis=0, prepend=0.0))
    assert len({result.plan.key_digest for result in results}) == 1

    def compilations() -> list[str]:
        lines = exclusive_server.log.read_text().splitlines()
        return [line for line in lines[before:] if '"event": "compiled"' in line]

    wait_for(lambda: bool(compilations()))
    assert len(compilations()) == 1
