"""Comparison of the drawings with JAX's shardings and JAX's own drawings."""

import math
from collections.abc import Mapping, Sequence

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardcall as sc
from shardcall import P
from shardcall._src.display.drawing import draw
from shardcall_core.types.blocks import block_grid

AB = {"a": 4, "b": 2}
BACKWARDS = range(7, -1, -1)
LAYOUTS = {
    "P(a, b)": ((8, 8), P("a", "b"), AB, None),
    "P(b, a)": ((8, 8), P("b", "a"), AB, None),
    "P(a, None), replicated over b": ((8, 8), P("a", None), AB, None),
    "P(None, b), replicated over a": ((8, 8), P(None, "b"), AB, None),
    "P(None, a), replicated over b": ((8, 8), P(None, "a"), AB, None),
    "P((a, b), None)": ((8, 8), P(("a", "b"), None), AB, None),
    "P(None, (b, a))": ((8, 16), P(None, ("b", "a")), AB, None),
    "replicated": ((8, 8), P(), AB, None),
    "a single device": ((8, 8), P(), {"x": 1}, None),
    "a single device, the last": ((8, 8), P("x"), {"x": 1}, [7]),
    "8 × 1": ((8, 8), P("x", "y"), {"x": 8, "y": 1}, None),
    "1 × 8": ((8, 8), P("x", "y"), {"x": 1, "y": 8}, None),
    "devices backwards": ((8, 8), P("a", "b"), AB, BACKWARDS),
    "devices backwards, P((b, a), None)": ((8, 8), P(("b", "a"), None), AB, BACKWARDS),
    "three devices": ((6, 5), P("x"), {"x": 3}, [6, 1, 4]),
    "rank 1": ((24,), P("x"), {"x": 8}, None),
    "rank 1 over two axes": ((24,), P(("b", "a")), AB, BACKWARDS),
    "rank 1, replicated over a": ((24,), P("b"), AB, None),
}

Drawn = list[list[frozenset[int]]]
Indices = dict[int, tuple[tuple[int, int], ...]]


def of_jax(axes: Mapping[str, int], spec: P, ids: Sequence[int] | None) -> jax.sharding.NamedSharding:
    devices = np.asarray([jax.devices()[i] for i in ids or range(math.prod(axes.values()))])
    mesh = jax.sharding.Mesh(devices.reshape(tuple(axes.values())), tuple(axes))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))


def devices_in_boxes(text: str) -> Drawn:
    """The ids in each box of a drawing, ours or JAX's, row by row; text outside the boxes is skipped."""
    rows, inside = [], False
    for line in text.splitlines():
        if "┌" in line or "├" in line:
            rows.append([])
            inside = True
        elif inside and "│" in line:
            rows[-1].append([cell.replace("CPU", "").strip() for cell in line.split("│")[1:-1]])
        else:
            inside = False
    return [
        [frozenset(map(int, "".join(parts).split(","))) for parts in zip(*lines, strict=True)]
        for lines in rows
        if lines
    ]


def indices(grid: sc.BlockGrid) -> Indices:
    """The indices that each device holds."""
    return {
        device: tuple(grid.span(axis, i) for axis, i in enumerate(block))
        for block, devices in grid.holders.items()
        for device in devices
    }


def indices_of_jax(sharding: jax.sharding.NamedSharding, shape: tuple[int, ...]) -> Indices:
    return {
        device.id: tuple(item.indices(size)[:2] for item, size in zip(items, shape, strict=True))
        for device, items in sharding.devices_indices_map(shape).items()
    }


@pytest.mark.parametrize(("shape", "spec", "axes", "ids"), LAYOUTS.values(), ids=LAYOUTS)
def test_a_drawing_shows_what_jax_draws_and_its_edges_jaxs_indices(capsys, shape, spec, axes, ids):
    sharding = of_jax(axes, spec, ids)
    jax.debug.visualize_sharding(shape, sharding, use_color=False, max_width=300)
    drawn = devices_in_boxes(capsys.readouterr().out)
    grid = block_grid(shape, spec, sc.Mesh(axes, device_ids=ids))
    assert devices_in_boxes(draw(grid)) == drawn
    assert indices(grid) == indices_of_jax(sharding, shape)
    assert sum(map(len, drawn)) == math.prod(grid.counts)
    jax.debug.visualize_array_sharding(jax.device_put(np.zeros(shape), sharding), use_color=False, max_width=300)
    assert devices_in_boxes(capsys.readouterr().out) == drawn


@st.composite
def layouts(draw_from):
    """A mesh, a spec with any entries, and a shape that it divides, since JAX places no other."""
    sizes = draw_from(st.sampled_from([(8,), (4, 2), (2, 4), (2, 2, 2), (3, 2), (1, 5), (1,)]))
    axes = dict(zip("abc", sizes, strict=False))
    ids = draw_from(st.none() | st.permutations(range(8)).map(lambda order: order[: math.prod(sizes)]))
    rank = draw_from(st.integers(0, 3))
    entries: list[list[str]] = [[] for _ in range(rank)]
    for name in draw_from(st.permutations(list(axes))):
        where = draw_from(st.integers(-1, rank - 1))
        if where >= 0:
            entries[where].append(name)
    shape = tuple(math.prod(axes[name] for name in names) * draw_from(st.integers(0, 3)) for names in entries)
    return shape, P(*entries), axes, ids


@settings(max_examples=60, deadline=None)
@given(layouts())
def test_any_layout_equals_jaxs(layout):
    shape, spec, axes, ids = layout
    grid = block_grid(shape, spec, sc.Mesh(axes, device_ids=ids))
    assert indices(grid) == indices_of_jax(of_jax(axes, spec, ids), shape)
