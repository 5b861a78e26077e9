"""Arrays that move from every placement to every other, and their bits while later calls reuse memory."""

from __future__ import annotations

import numpy as np
import pytest
from end_to_end.test_resident_arrays import MESH, ROWS, same

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long


@pytest.mark.parametrize("shape", [(64, 8), (61, 9)], ids=str)  # which the mesh divides, and which it does not
@pytest.mark.parametrize(
    ("mesh", "spec"),
    [
        (MESH, ROWS),
        (MESH, P(None, "x")),
        (MESH, P(None, None)),
        (sc.Mesh(x=1), ROWS),
        (sc.Mesh(x=3), ROWS),
        (sc.Mesh(a=2, b=4), P("b", "a")),
        (sc.Mesh(x=2, device_ids=[7, 5]), ROWS),
    ],
    ids=str,
)
@pytest.mark.parametrize("put", [P("x", None), P(None, "x"), P(None, None)], ids=str)
def test_an_operand_on_the_mesh_may_be_required_elsewhere(client, put, mesh, spec, shape):
    x = np.random.default_rng(5).standard_normal(shape)
    with client.put(x, mesh=MESH, spec=put) as there:
        same(client.diff(there, axis=0, mesh=mesh, spec=spec).array, np.diff(x, axis=0))
        same(there.get(), x)


@pytest.mark.parametrize("mesh", [sc.Mesh(x=1), MESH], ids=["one device", "eight"])
@pytest.mark.parametrize("spec", [ROWS, P(None, "x")], ids=str)
def test_what_stays_keeps_its_bits_when_later_calls_reuse_the_memory(streaming, mesh, spec):
    rows = 4096
    x = np.random.default_rng(6).standard_normal((rows, 64))
    with (
        streaming.put(x, mesh=mesh, spec=spec) as there,
        streaming.diff(x, n=0, axis=0, mesh=mesh, spec=spec, keep=True).array as kept,
    ):
        for value in (np.nan, -1.0):  # of the same size: into the same regions
            with streaming.put(np.full_like(x, value), mesh=mesh, spec=spec):
                streaming.diff(np.full_like(x, value), n=0, axis=0, mesh=mesh, spec=spec)
        same(there.get(), x)
        same(kept.get(), x)
