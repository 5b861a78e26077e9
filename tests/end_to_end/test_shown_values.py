"""Displays of arrays on the mesh: their values as NumPy prints them, and a description."""

import io
import warnings

import ml_dtypes
import numpy as np
import pytest
from end_to_end.processes import wait_for

import shardcall as sc
from shardcall import P

MESH = sc.Mesh(x=8)
RANDOM = np.random.default_rng(41)
SMALL = {
    "floats": np.round(RANDOM.normal(size=(5, 3)), 2),
    "special": np.array([np.nan, np.inf, -0.0, 1e-300]),
    "integers": np.arange(-3, 9).reshape(2, 2, 3),
    "bool": np.eye(3, dtype=bool),
    "complex": np.array([1 + 2j, -1j], np.complex64),
    "bfloat16": np.arange(4).astype(ml_dtypes.bfloat16),
    "nothing": np.zeros((0, 3)),
}
LARGE = {
    "one axis": RANDOM.normal(size=300_000),
    "two axes": RANDOM.normal(size=(400, 500)),
    "a short axis": RANDOM.normal(size=(100_000, 2)),
    "an axis of the edges and one": RANDOM.integers(0, 99, (7, 50_000)),
    "three axes": RANDOM.normal(size=(3, 300, 200)),
}


def parts(display):
    """Returns the values and the description of a display."""
    values, _, description = display.rpartition("\n")
    return values, description


@pytest.mark.parametrize("name", SMALL)
def test_small_arrays_are_shown_as_numpys(strict_client, name):
    x = SMALL[name]
    h = strict_client.put(x, mesh=MESH)
    assert parts(str(h)) == (str(x), f"<{h.type} {h.spec} on {MESH.short}, {parts(str(h))[1].rpartition(', ')[2]}")
    values, description = parts(repr(h))
    assert values == f"RemoteArray({np.array2string(x, separator=', ', prefix='RemoteArray(', suffix=')')})"
    assert description == parts(str(h))[1]


def test_a_write_is_shown(strict_client):
    x = LARGE["two axes"].copy()
    h = strict_client.put(x, mesh=MESH)
    assert parts(str(h))[0] == str(x)
    h[0] = 7
    x[0] = 7
    assert parts(str(h))[0] == str(x)
    assert parts(str(h.T))[0] == str(x.T)


def test_numbers_are_shown_alone(strict_client):
    assert parts(repr(strict_client.put(np.array(2.5))))[0] == "RemoteArray(2.5)"
    with sc.connect(strict_client.address) as other:
        number = other.put(np.array(2.5))
        assert (str(number), f"{number}") == ("2.5", "2.5")


def test_a_display_counts_as_no_implicit_copy(strict_client):
    h, before = strict_client.put(np.arange(6.0)), strict_client.statistics()
    with warnings.catch_warnings(action="error"):
        print(h, repr(h), h._repr_html_(), file=io.StringIO())
    assert strict_client.statistics() == before


def test_a_notebook_shows_values_above_the_blocks(strict_client):
    html = strict_client.put(np.array([1.5, -2.5]), mesh=sc.Mesh(x=2))._repr_html_()
    assert "<pre>[ 1.5 -2.5]</pre>" in html
    assert "see .get()" not in html
    assert "svg" in html


def test_a_client_may_show_no_values(server):
    with sc.connect(server.address, show_values=False) as client:
        h = client.put(np.arange(6.0), mesh=MESH, spec=P("x"))
        assert repr(h) == str(h)
        assert repr(h).startswith("<RemoteArray float64[6] P('x') on Mesh(x=8)")
        assert "see .get()" in h._repr_html_()


def test_a_lost_array_is_described(server):
    with sc.connect(server.address) as client:
        h = client.put(np.arange(6.0))
        h.delete()
        assert repr(h) == str(h)
        assert repr(h).startswith("<RemoteArray float64[6], which was deleted")


def test_a_description_says_why_there_are_no_values(server, monkeypatch):
    with sc.connect(server.address) as client, sc.connect(server.address) as other:
        h = client.put(np.arange(6.0), mesh=MESH, spec=P("x"))
        other.delete(h.handle)
        with pytest.raises(sc.ArrayLostError):
            str(h)
        assert repr(h) == str(h) == "<RemoteArray float64[6], which the mesh no longer has>"
        g = client.put(np.arange(6.0))

        def late(*_, **__):
            raise sc.DeadlineExceededError("late")

        monkeypatch.setattr(sc.RemoteArray, "get", late)
        assert eval("str(g)", {"__name__": "pdb", "g": g}).endswith("; values not read within 0.2 s: see .get()>")
        monkeypatch.setattr("sys.ps1", ">>> ", raising=False)
        assert repr(g).endswith("; values not read within 2 s: see .get()>")
        monkeypatch.setattr(sc.RemoteArray, "get", lambda self, **_: client.call("none", 1.0))
        assert repr(g).endswith("; values not read (KERNEL_NOT_FOUND): see .get()>")


def test_an_array_is_described_in_a_function_that_is_traced(strict_client):
    h, shown = strict_client.put(np.arange(6.0)), []

    def function(x):
        shown.extend([repr(h), repr(x)])
        return x + h

    strict_client.jit(function)(h)
    assert shown[0].startswith("<RemoteArray float64[6] P(")
    assert shown[1] == "<RemoteArray float64[6], traced>"


def test_a_display_takes_no_error_from_who_reads_the_array(server):
    with sc.connect(server.address) as client:
        x = client.put(np.arange(4))
        bad = client.submit("power", x, -1)
        wait_for(lambda: "failed" in bad._repr_html_())
        with pytest.raises(sc.InvalidOperandError, match=r"^power of int64\[4\], int64\[\], submitted at "):
            client.synchronize()
