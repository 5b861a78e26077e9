"""The tests of `test_shown_values.py` that take long."""

from html import unescape

import numpy as np
import pytest
from end_to_end.processes import wait_for
from end_to_end.test_shown_values import LARGE, MESH, parts

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", LARGE)
def test_of_large_arrays_the_edges_are_read(strict_client, name, monkeypatch):
    x, read, get = LARGE[name], [], sc.RemoteArray.get
    h = strict_client.put(x, mesh=MESH)
    monkeypatch.setattr(sc.RemoteArray, "get", lambda self, **how: read.append(self.nbytes) or get(self, **how))
    for options in ({}, {"precision": 3}, {"edgeitems": 2, "threshold": 10}):
        with np.printoptions(**options):
            assert parts(str(h))[0] == str(x)
    assert parts(repr(h))[0] == f"RemoteArray({np.array2string(x, separator=', ', prefix='RemoteArray(', suffix=')')})"
    assert max(read) <= 7**x.ndim * x.itemsize


def test_a_notebook_draws_the_blocks_of_a_pending_array(server):
    with sc.connect(server.address, progress=False) as client:
        h = client.put(np.zeros((16, 4)), mesh=MESH, spec=P("x"))
        first, second = client.xp.fori_loop(0, 10**12, lambda i, u: (u[0] + 1, u[1] + 1), (h, h[0]))
        wait_for(lambda: (progress := first.progress()) and progress.iteration)
        html = first._repr_html_()
        assert "pending" in html
        assert f"{sc.Array((16, 4), 'float64')} P('x', None) on Mesh(x=8), pending" in unescape(html)
        assert html.count("<rect") == 9  # a panel and the blocks
        assert "P(None) on Mesh(x=8), pending" in unescape(second._repr_html_())
        html = (first + 1)._repr_html_()  # which has no program yet
        assert "pending" in html
        assert "<svg" not in html
