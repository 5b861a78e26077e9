"""The tests of `test_calls.py` that take long."""

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


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[::2, ::-1],
        np.asfortranarray,
        lambda x: x.astype(x.dtype.newbyteorder()),
        lambda x: x.T,
        lambda x: x[:, :0],
        lambda x: x.tolist(),
        lambda x: np.broadcast_to(x[:1], x.shape),
    ],
    ids=["strided", "fortran", "other byte order", "transposed", "no columns", "list", "broadcast"],
)
def test_every_memory_layout_is_the_same_array(client, view):
    x = view(np.random.default_rng(1).standard_normal((12, 6)))
    np.testing.assert_array_equal(client.diff(x, axis=0).array, np.diff(x, axis=0))


def test_the_first_call_misses_the_next_hits_and_a_miss_is_explained(client):
    x = np.zeros((41, 3), np.float32)
    first = client.diff(x, axis=0, mesh=MESH, spec=P("x", None))
    again = client.diff(x, axis=0, mesh=MESH, spec=P("x", None))
    other = client.diff(x.astype(np.float16), axis=0, mesh=MESH, spec=P("x", None))
    assert (first.plan.cache_hit, again.plan.cache_hit, other.plan.cache_hit) == (False, True, False)
    assert first.timing.compile > 0
    assert again.timing.compile == 0
    assert "operands[0]: float16[41,3] here, float32[41,3] there" in other.plan.explanation


@pytest.mark.parametrize("programs", [10, pytest.param(100, marks=pytest.mark.long)])
def test_equivalent_arguments_always_hit_the_cache(client, programs):
    # The answer for a program that is there comes so soon that it once overtook the question.
    for rows in range(300, 300 + programs):
        x = np.zeros((rows, 2), np.int8)
        client.diff(x, axis=0, mesh=sc.Mesh(x=1), spec=P("x", None), timeout=20)
        again = client.diff(x, axis=0, mesh=sc.Mesh(x=1), spec=P("x"), timeout=20)
        assert again.plan.cache_hit


def test_twenty_callers_with_one_new_key_compile_once(server_factory, tmp_path):
    log = tmp_path / "log"
    server = server_factory(log=log, why="its log is read")
    start = threading.Barrier(20)
    x = np.random.default_rng(3).standard_normal((123, 4))

    def call(_):
        with sc.connect(server.address) as client:
            start.wait()
            return client.diff(x, axis=0, prepend=0.0, mesh=MESH, spec=P("x", None))

    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(call, range(20)))
    for result in results:
        np.testing.assert_array_equal(result.array, np.diff(x, axis=0, prepend=0.0))
    assert len({result.plan.key_digest for result in results}) == 1
    wait_for(lambda: '"compiled"' in log.read_text())
    compilations = [line for line in log.read_text().splitlines() if '"event": "compiled"' in line]
    assert len(compilations) == 1


def test_a_kernel_and_its_plans_report_whether_bits_are_the_same_on_every_mesh(client):
    promises = {name: client.kernel(name).reproducibility for name in ("diff", "matmul", "gradient", "mean")}
    assert promises == {"diff": "always", "matmul": "integers", "gradient": "per call", "mean": "not promised"}
    assert "  results: the same bits on every mesh of integers and bool; others may differ" in str(
        client.kernel("matmul")
    )
    floats, integers = sc.Array((4, 4), "float64"), sc.Array((4, 4), "int32")
    assert client.plan("matmul", integers, integers).reproducible
    assert not client.plan("matmul", floats, floats).reproducible
    assert client.plan("gradient", floats).reproducible
    assert not client.plan("gradient", floats, edge_order=2).reproducible
