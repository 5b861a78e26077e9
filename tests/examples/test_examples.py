"""The functions of the examples: what they check holds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

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


def test_the_factory_serves_three_layouts_and_explains_why_the_compiler_is_slow(client, capsys):
    assert failed(load("ahead_of_time_factory").compare_layouts(client, 64)) == []
    output = capsys.readouterr().out
    assert "2 all-to-all" in output
    assert "from rows to columns" in output


def test_the_factory_keeps_a_narrow_element_type(client):
    diff = load("ahead_of_time_factory").make_diff(client, (16, 4), "float32", sc.Mesh(x=8, y=1), sc.P("x", "y"))
    assert diff.plan.results[0].type == sc.Array((16, 4), "float32")


@pytest.mark.parametrize("function", ["differences", "device_order"])
def test_layouts(client, function):
    assert failed(getattr(load("layouts"), function)(client, 20)) == []


def test_distributed_arrays(client):
    example = load("distributed_arrays")
    assert failed(example.placements(client, 21)) == []
    assert failed(example.sines(client, 21, example.TIMED)) == []
    assert failed(example.sines(client, 21, example.NAMED_TIMED)) == []


@pytest.mark.parametrize(
    "function", ["layouts_are_kept", "product_without_communication", "relaid", "different_devices"]
)
def test_computation_follows_sharding(client, function):
    before = {array.handle for array in client.list()}  # of other tests
    assert failed(getattr(load("computation_follows_sharding"), function)(client, 20)) == []
    assert {array.handle for array in client.list()} <= before  # whatever was put or kept is gone


@pytest.mark.parametrize("name", ["data parallel", "data and tensor parallel"])
def test_a_network_trains_in_every_layout(client, name):
    checks, losses = load("network").train(client, name, 20, 16, 3)
    assert failed(checks) == []
    assert len(losses) == 3


def test_random_numbers_are_the_same_on_every_mesh(client):
    example = load("random_numbers")
    assert failed(example.added_to_an_array(client)) == []
    assert failed(example.drawn_integers_and_orders(client, 24)) == []


def test_partial_sums_are_completed_by_every_strategy(client):
    assert failed(load("collective_matmul").partial_sums(client)) == []


def test_lhs_may_be_gathered_in_blocks_of_any_size(client):
    assert failed(load("collective_matmul").gathered_lhs(client, 13, 12, 8)) == []


def test_sums_may_be_scattered_by_one_collective_or_a_ring(client):
    assert failed(load("collective_matmul").scattered_sums(client, 32, 12, 8)) == []


def test_an_example_fails_where_a_check_does(monkeypatch, server, capsys):
    layouts = load("layouts")
    for name in ("differences", "device_order"):
        monkeypatch.setattr(layouts, name, lambda client, size, name=name: {name: name != "device_order"})
    monkeypatch.setattr(sys, "argv", ["layouts.py", server.address])
    assert layouts.main() == 1
    assert "NO  device_order" in capsys.readouterr().out
