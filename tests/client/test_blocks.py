import json
import os
import subprocess
import sys

import pytest
from rows import rows

import shardcall
from shardcall import Mesh, P
from shardcall_core.types.blocks import block_grid

# shape, spec, mesh axes, device ids (None: in order)
LAYOUTS = [
    ((8, 8), P("a", "b"), {"a": 4, "b": 2}, None),
    ((8, 8), P("b", "a"), {"a": 4, "b": 2}, None),
    ((8, 8), P("a", None), {"a": 4, "b": 2}, None),
    ((8, 8), P(None, "b"), {"a": 4, "b": 2}, None),
    ((8, 8), P(("a", "b"), None), {"a": 4, "b": 2}, None),
    ((8, 8), P(("b", "a"), None), {"a": 4, "b": 2}, None),
    ((8, 8), P(None, ("b", "a")), {"a": 4, "b": 2}, [7, 6, 5, 4, 3, 2, 1, 0]),
    ((8, 8), P("a", "b"), {"a": 4, "b": 2}, [3, 1, 4, 0, 5, 2, 6, 7]),
    ((8, 8), P(), {"a": 4, "b": 2}, None),
    ((8,), P("a"), {"a": 8}, None),
    ((16,), P(("a", "b")), {"a": 2, "b": 4}, None),
    ((), P(), {"a": 8}, None),
    ((4, 8, 6), P("c", ("a", "b")), {"a": 2, "b": 2, "c": 2}, None),
    ((4, 8, 6), P(None, "c", "a"), {"a": 2, "b": 2, "c": 2}, [1, 0, 3, 2, 5, 4, 7, 6]),
    ((4, 4), P("a", "b"), {"a": 1, "b": 1}, [5]),
    ((4, 4), P("b"), {"a": 1, "b": 4}, None),
]


def test_block_placement_equals_jaxs():
    """JAX itself, in a process of its own since its devices are counted once, says where each block is."""
    pytest.importorskip("jax")
    script = """
import json, sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
for shape, spec, axes, ids in json.load(sys.stdin):
    devices = jax.devices()
    chosen = [devices[i] for i in ids] if ids else devices[: int(np.prod(list(axes.values())))]
    mesh = Mesh(np.array(chosen).reshape(tuple(axes.values())), tuple(axes))
    entries = [tuple(e) if isinstance(e, list) else e for e in spec]
    indices = NamedSharding(mesh, PartitionSpec(*entries)).devices_indices_map(tuple(shape))
    spans = {d.id: [s.indices(n)[:2] for s, n in zip(index, shape)] for d, index in indices.items()}
    print(json.dumps(spans))
"""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    ended = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(LAYOUTS),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(answers) == len(LAYOUTS)
    for (shape, spec, axes, ids), expected in zip(LAYOUTS, answers, strict=True):
        grid = block_grid(shape, spec, Mesh(axes, device_ids=ids))
        ours = {
            str(device): [list(grid.span(axis, i)) for axis, i in enumerate(block)]
            for block, devices in grid.holders.items()
            for device in devices
        }
        assert ours == expected, (shape, spec, axes, ids)


def test_spans_of_a_size_that_does_not_divide_leave_padding_out():
    grid = block_grid((10,), P("x"), Mesh(x=4))
    assert [grid.span(0, i) for i in range(4)] == [(0, 3), (3, 6), (6, 9), (9, 10)]
    grid = block_grid((2,), P("x"), Mesh(x=4))
    assert [grid.span(0, i) for i in range(4)] == [(0, 1), (1, 2), (2, 2), (2, 2)]
    grid = block_grid((0, 3), P("x"), Mesh(x=2))
    assert [grid.span(0, i) for i in range(2)] == [(0, 0), (0, 0)]


@rows(("spec", "says"), [(P("x", None, None), "3 entries and the array has 2 axes"), (P("q"), "'q', which Mesh")])
def test_a_spec_that_does_not_fit_is_refused(spec, says):
    with pytest.raises(shardcall.ShardingError, match=says):
        block_grid((4, 4), spec, Mesh(x=2))
