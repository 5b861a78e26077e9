"""The functions of the examples: what they check holds.

They are the cases of the first question and of JAX's notebook and tutorial on distributed arrays and notebook on
shard_map; a test stands beside them where a case is in no example.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import shardcall as sc

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = {
    "ahead_of_time_factory": ["--size", "64"],
    "collective_matmul": ["--scale", "64"],
    "computation_follows_sharding": ["--size", "16"],
    "distributed_arrays": ["--size", "16"],
    "layouts": ["--size", "16"],
    "network": ["--batch", "16", "--width", "16", "--steps", "3"],
    "other_libraries": ["--size", "95"],
    "random_numbers": ["--size", "24"],
}
"""The scripts, and options with which they take little time."""
CHECKED: list[tuple[str, str, tuple[int, ...]]] = [
    ("layouts", "differences", (20,)),
    ("layouts", "device_order", (20,)),
    ("distributed_arrays", "placements", (21,)),
    ("computation_follows_sharding", "layouts_are_kept", (20,)),
    ("computation_follows_sharding", "product_without_communication", (20,)),
    ("computation_follows_sharding", "relaid", (20,)),
    ("computation_follows_sharding", "different_devices", (20,)),
    ("random_numbers", "added_to_an_array", ()),
    ("random_numbers", "drawn_integers_and_orders", (24,)),
    ("collective_matmul", "gathered_lhs", (11, 12, 8)),  # in blocks of 3 rows, and a last one of 2
    ("collective_matmul", "scattered_sums", (32, 12, 8)),
]
"""Functions of the examples that take a client, and their sizes."""


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def failed(checks: dict[str, bool]) -> list[str]:
    assert checks
    return [what for what, holds in checks.items() if not holds]


def test_every_example_is_tested():
    in_containers = {"cluster_demo"}  # tests/project/test_cluster.py
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*in_containers, *SCRIPTS}


@pytest.mark.parametrize(("example", "function", "sizes"), CHECKED)
def test_what_an_example_checks_holds(client, example, function, sizes):
    before = {array.handle for array in client.list()}  # of other tests
    assert failed(getattr(load(example), function)(client, *sizes)) == []
    assert {array.handle for array in client.list()} <= before  # whatever was put or kept is gone


def test_the_factory_serves_three_layouts_and_explains_why_the_compiler_is_slow(client, capsys):
    assert failed(load("ahead_of_time_factory").compare_layouts(client, 64)) == []
    output = capsys.readouterr().out
    assert "2 all-to-all" in output
    assert "from rows to columns" in output


def test_the_factory_keeps_a_narrow_element_type(client):
    diff = load("ahead_of_time_factory").make_diff(client, (16, 4), "float32", sc.Mesh(x=8, y=1), sc.P("x", "y"))
    assert diff.plan.results[0].type == sc.Array((16, 4), "float32")


@pytest.mark.parametrize("cases", ["TIMED", "NAMED_TIMED"])
def test_sines_of_distributed_arrays(client, cases):
    example = load("distributed_arrays")
    assert failed(example.sines(client, 21, getattr(example, cases))) == []


def test_arrays_that_nobody_placed_go_to_the_devices_of_the_others(client):
    x = client.put(np.ones(4), mesh=sc.Mesh(a=2, device_ids=[6, 5]), spec=sc.P("a"))
    for free in (client.xp.zeros(4), client.xp.arange(4.0), np.ones(4)):
        total = x + free
        assert (total.mesh, total.spec) == (x.mesh, x.spec)
        assert total.get().tolist() == (1 + np.asarray(free)).tolist()


@pytest.mark.parametrize("spec", [sc.P("b", "a"), sc.P(None, None)], ids=["transposed", "replicated"])
def test_a_computation_may_shard_its_results_anew(client, spec):
    values = np.arange(64.0).reshape(8, 8)
    x = client.put(values, mesh=sc.Mesh(a=4, b=2), spec=sc.P("a", "b"))
    doubled = client.jit(lambda x: client.xp.with_spec(x + 1, spec) * 2)(x)
    assert doubled.spec == spec
    assert np.array_equal(doubled.get(), (values + 1) * 2)


@pytest.mark.parametrize("name", ["data parallel", "data and tensor parallel"])
def test_a_network_trains_in_every_layout(client, name):
    checks, losses = load("network").train(client, name, 20, 16, 3)
    assert failed(checks) == []
    assert len(losses) == 3


def test_random_numbers_depend_on_the_key_and_not_on_the_mesh(client):
    def draw(key: int, devices: int) -> list[Any]:
        return client.uniform(key, (24,), mesh=sc.Mesh(x=devices), out_spec=sc.P("x")).array.tolist()

    assert draw(42, 8) == draw(42, 1)
    assert set(draw(42, 8)).isdisjoint(draw(43, 8))


def test_partial_sums_are_completed_by_every_strategy_within_a_profile(client, tmp_path):
    with client.profile(tmp_path) as profile:
        assert failed(load("collective_matmul").partial_sums(client)) == []
    assert [*profile.path.glob("*.trace.json.gz")]


def test_an_example_fails_where_a_check_does(monkeypatch, server, capsys):
    layouts = load("layouts")
    for name in ("differences", "device_order"):
        monkeypatch.setattr(layouts, name, lambda client, size, name=name: {name: name != "device_order"})
    monkeypatch.setattr(sys, "argv", ["layouts.py", server.address])
    assert layouts.main() == 1
    assert "NO  device_order" in capsys.readouterr().out
