"""Calls through the client to a real server, checked against NumPy."""

import re

import numpy as np
import pytest

import shardcall as sc
from shardcall import P
from shardcall_core.functions.table import FUNCTIONS

MESH = sc.Mesh(x=8)


def test_the_timing_accounts_for_the_call(client):
    timing = client.diff(np.zeros((64, 64)), mesh=MESH, spec=P("x", None)).timing
    phases = [timing.receive, timing.queue, timing.compile, timing.place, timing.execute, timing.gather, timing.send]
    assert all(phase >= 0 for phase in phases)
    assert 0 < timing.execute <= timing.total <= timing.round_trip
    assert sum(phases) <= timing.total * 1.001
    assert timing.transport == pytest.approx(timing.round_trip - timing.total)


def test_auto_and_the_strategy_it_stands_for_share_a_program(client):
    x = np.zeros((48, 3))
    auto = client.diff(x, axis=0, mesh=MESH, spec=P("x", None))
    named = client.diff(x, axis=0, mesh=MESH, spec=P("x", None), strategy=auto.plan.strategy)
    assert auto.plan.strategy == "halo"
    assert named.plan.key_digest == auto.plan.key_digest
    assert named.plan.cache_hit
    assert named.plan.strategy_reason == "asked for"
    assert auto.plan.strategy_reason != "asked for"


@pytest.mark.parametrize(
    ("shape", "axis"), [((2,) * 20 + (0,), 1), ((0, 2**30), 0), ((2**30, 0), 0), ((0,), 0), ((3, 0, 5), 1)]
)
def test_arrays_without_elements_are_answered_at_once(client, shape, axis):
    x = np.empty(shape, np.int8)
    result = client.diff(x, axis=axis, mesh=sc.Mesh(a=2, b=4), spec=P(*["a", "b"][: x.ndim]), timeout=30)
    assert result.array.shape == np.diff(x, axis=axis).shape


def test_a_planned_call_is_compiled(client):
    x = np.zeros((47, 3))
    options = {"axis": 0, "mesh": MESH, "spec": P("x", None)}
    assert not client.plan("diff", x, **options).cache_hit
    assert client.diff(x, **options).timing.compile == 0
    assert client.call("diff", x, None, None, axis=0, mesh=MESH, in_specs=[P("x", None), None]).timing.compile == 0


def test_the_compiled_text_of_a_sharded_halo_diff_has_one_permute_and_no_gather(client):
    compiled = client.compile(
        "diff", sc.Array((64, 64), "float64"), axis=0, prepend=0.0, mesh=MESH, spec=P("x", None), strategy="halo"
    )
    text = compiled.as_text()
    assert "collective-permute" in text
    assert not re.search("all-gather|all-to-all", text)
    assert "/" not in "".join(re.findall(r'^[0-9]+ "(.*)"$', text, re.M)), "the server's paths stay its own"
    x = np.random.default_rng(4).standard_normal((64, 64))
    np.testing.assert_array_equal(compiled(x).array, np.diff(x, axis=0, prepend=0.0))


def test_a_mesh_may_order_its_devices(client):
    x = np.arange(24.0).reshape(8, 3) ** 2
    result = client.diff(x, axis=0, mesh=sc.Mesh({"x": 4}, device_ids=[7, 2, 5, 0]), spec=P("x", None))
    np.testing.assert_array_equal(result.array, np.diff(x, axis=0))
    assert list(result.plan.mesh.device_ids) == [7, 2, 5, 0]


def test_every_kernel_is_listed_and_described(client):
    kernels = client.kernels()
    names = sorted({*FUNCTIONS, "graph"})  # whose operands and results are those of the graph
    assert [kernel.name for kernel in kernels] == names
    for kernel in (kernel for kernel in kernels if kernel.name != "graph"):
        expected = [(o.name, o.optional, o.repeated) for o in FUNCTIONS[kernel.name].operands]
        assert [(o.name, o.optional, o.repeated) for o in kernel.operands] == expected
    assert [p.name for p in client.kernel("diff").parameters] == ["n", "axis"]


def test_the_first_call_misses_the_next_hits_and_a_miss_is_explained(client):
    x = np.zeros((41, 3), np.float32)
    first = client.diff(x, axis=0, mesh=MESH, spec=P("x", None))
    again = client.diff(x, axis=0, mesh=MESH, spec=P("x", None))
    other = client.diff(x.astype(np.float16), axis=0, mesh=MESH, spec=P("x", None))
    assert (first.plan.cache_hit, again.plan.cache_hit, other.plan.cache_hit) == (False, True, False)
    assert first.timing.compile > 0
    assert again.timing.compile == 0
    assert "operands[0]: float16[41,3] here, float32[41,3] there" in other.plan.explanation


def test_equivalent_arguments_always_hit_the_cache(client):
    # The answer for a program that is there comes so soon that it once overtook the question.
    for rows in range(300, 310):
        x = np.zeros((rows, 2), np.int8)
        client.diff(x, axis=0, mesh=sc.Mesh(x=1), spec=P("x", None), timeout=20)
        assert client.diff(x, axis=0, mesh=sc.Mesh(x=1), spec=P("x"), timeout=20).plan.cache_hit


def test_a_kernel_and_its_plans_report_whether_bits_are_the_same_on_every_mesh(client):
    promises = {name: client.kernel(name).reproducibility for name in ("diff", "matmul", "gradient", "mean")}
    assert promises == {"diff": "always", "matmul": "integers", "gradient": "per call", "mean": "not promised"}
    says = "  results: the same bits on every mesh of integers and bool; others may differ"
    assert says in str(client.kernel("matmul"))
    floats, integers = sc.Array((4, 4), "float64"), sc.Array((4, 4), "int32")
    assert client.plan("matmul", integers, integers).reproducible
    assert not client.plan("matmul", floats, floats).reproducible
    assert client.plan("gradient", floats).reproducible
    assert not client.plan("gradient", floats, edge_order=2).reproducible
