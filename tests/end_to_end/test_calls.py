"""Calls through the client to a real server, checked against NumPy."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from end_to_end.scraping import log_lines

import shardcall as sc
from shardcall import P
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.types.element_types import DTYPES

MESH = sc.Mesh(x=8)
ELEMENT_TYPES = list(DTYPES.values())


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_every_element_type_travels_and_is_the_numpy_result(client, dtype):
    x = np.random.default_rng(0).integers(0, 2 if dtype.name == "bool" else 7, (19, 3)).astype(dtype)
    result = client.diff(x, axis=0, mesh=MESH, spec=P("x", None)).array
    expected = np.diff(x, axis=0)
    assert (result.dtype, result.shape, result.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


@pytest.mark.parametrize(("mesh", "spec"), [((4, 2), "x"), ({"x": 4, "y": 2}, ("x", None)), ([4, 2], ["x", None])])
def test_meshes_and_specs_in_short_forms_are_those_in_long_ones(client, mesh, spec):
    x = np.arange(24.0).reshape(8, 3)
    called = client.diff(x, axis=0, mesh=mesh, spec=spec, out_spec=spec)
    with client.put(x, mesh=mesh, spec=spec) as array:
        planned = client.plan("diff", array, mesh=mesh, in_specs=[spec])
        specs = [array.spec, called.plan.operands[0].spec, called.plan.results[0].spec]
    assert [of.mesh.short for of in (array, called.plan, planned)] == [sc.Mesh(x=4, y=2)] * 3
    assert {(*spec, None)[:2] for spec in specs} == {("x", None)}
    np.testing.assert_array_equal(called.array, np.diff(x, axis=0))


def test_a_large_array_streams_in_both_directions(streaming):
    x = np.random.default_rng(2).standard_normal((3001, 701))  # 16 MiB, larger than any chunk
    result = streaming.diff(x, axis=0, prepend=0.0, mesh=MESH, spec=P("x", None))
    np.testing.assert_array_equal(result.array, np.diff(x, axis=0, prepend=0.0), strict=True)
    assert result.array.flags.writeable
    assert result.timing.receive > 0
    assert result.timing.send > 0


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


def test_values_are_not_part_of_the_key(client):
    x = np.ones((43, 3))
    calls = [client.diff(x, axis=0, prepend=value, mesh=MESH, spec=P("x", None)) for value in (0.0, 1.0, 2.5)]
    assert len({call.plan.key_digest for call in calls}) == 1
    assert [call.array[0, 0] for call in calls] == [1.0, 0.0, -1.5]


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


def test_products_meet_numpy(client):
    generator = np.random.default_rng(5)
    lhs, rhs = generator.standard_normal((33, 17)), generator.standard_normal((17, 9))
    mesh = sc.Mesh(a=4, b=2)
    plain = client.matmul(lhs, rhs, mesh=mesh, lhs_spec=P("a", None), rhs_spec=P(None, "b"), out_spec=P("a", "b"))
    summed = client.matmul(lhs, rhs, mesh=mesh, lhs_spec=P(None, "a"), rhs_spec=P("a", None))
    ring = client.collective_matmul(lhs, rhs, mesh=MESH, axis_name="x", strategy="bidirectional_ring")
    for result in (plain, summed, ring):
        np.testing.assert_allclose(result.array, lhs @ rhs, rtol=1e-12, atol=1e-12)


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


def test_callers_at_once_with_one_new_key_compile_once(server):
    start = threading.Barrier(20)
    x = np.random.default_rng(3).standard_normal((123, 4))

    def call(_):
        with sc.connect(server.address) as other:
            start.wait()
            return other.diff(x, axis=0, prepend=0.0, mesh=MESH, spec=P("x", None))

    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(call, range(20)))
    for result in results:
        np.testing.assert_array_equal(result.array, np.diff(x, axis=0, prepend=0.0))
    (digest,) = {result.plan.key_digest for result in results}
    compiled = [line for line in log_lines(server.log) if line["event"] == "compiled"]
    assert [line["key"] for line in compiled].count(digest[:12]) == 1


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
