"""The tests of `test_layouts_of_families.py` that take long."""

import itertools

import numpy as np
import pytest
from end_to_end.test_layouts_of_families import MESH, ONE, X

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long

LAYOUTS = [
    (MESH, P("a", "b")),
    (MESH, P("b", "a")),
    (MESH, P("a", None)),
    (MESH, P(None, "b")),
    (MESH, P(None, "a")),
    (MESH, P(("a", "b"), None)),
    (ONE, P(None, None)),
]


Y = np.random.default_rng(4).normal(size=(18, 10))


FACTOR = np.random.default_rng(0).normal(size=(10, 6))


def both(rows, columns):
    return rows, columns


FAMILIES = {  # the function, NumPy's, and the entries of the result's spec; None where the kernel chooses it
    "elementwise": (lambda xp, x, y: xp.sin(x), np.sin, both),
    "copy": (lambda xp, x, y: xp.copy(x), lambda x: x, both),
    "beside an uncommitted one": (lambda xp, x, y: x * y + 1, lambda x: x * Y + 1, both),
    "where": (lambda xp, x, y: xp.where(xp.less(y, 0), x, y), lambda x: np.where(Y < 0, x, Y), both),
    "another type": (lambda xp, x, y: xp.astype(x, np.float32), lambda x: x.astype(np.float32), both),
    "transpose": (lambda xp, x, y: x.T, lambda x: x.T, lambda rows, columns: (columns, rows)),
    "reduction": (lambda xp, x, y: x.sum(axis=0), lambda x: x.sum(0), lambda rows, columns: (columns,)),
    "reduction of columns": (lambda xp, x, y: x.max(axis=1), lambda x: x.max(1), lambda rows, columns: (rows,)),
    "running sum": (lambda xp, x, y: x.cumsum(axis=0), lambda x: x.cumsum(0), both),
    "difference": (lambda xp, x, y: xp.diff(x, axis=0), lambda x: np.diff(x, axis=0), both),
    "stencil": (lambda xp, x, y: np.roll(x, 1, 0) - x, lambda x: np.roll(x, 1, 0) - x, both),
    "slice": (lambda xp, x, y: x[1:-1, 1:], lambda x: x[1:-1, 1:], both),
    "join": (lambda xp, x, y: xp.concatenate([x, y]), lambda x: np.concatenate([x, Y]), both),
    "sort": (lambda xp, x, y: xp.sort(x, axis=0), lambda x: np.sort(x, axis=0), both),
    "update": (lambda xp, x, y: x.at[3:5].set(y[:2]), lambda x: np.concatenate([x[:3], Y[:2], x[5:]]), both),
    "product": (lambda xp, x, y: x @ FACTOR, lambda x: x @ FACTOR, None),
    "random": (lambda xp, x, y: x + xp.uniform(7, shape=X.shape), None, both),
    "constraint": (
        lambda xp, x, y: xp.add(x, 1, out_spec=P("b", "a")),
        lambda x: x + 1,
        lambda rows, columns: ("b", "a"),
    ),
    "replicated": (lambda xp, x, y: xp.add(x, 1, out_spec=P()), lambda x: x + 1, lambda rows, columns: (None, None)),
}


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


@pytest.fixture(scope="module")
def drawn(client):
    """The values of x + uniform(7) on one device."""
    return X + client.uniform(7, shape=X.shape, mesh=ONE).array


def cases():
    for number, (name, (mesh, spec)) in enumerate(itertools.product(FAMILIES, LAYOUTS)):
        if name == "constraint" and mesh == ONE:
            continue  # which has no axis b
        is_short = number % len(LAYOUTS) == number // len(LAYOUTS) % (len(LAYOUTS) - 1)
        marks = () if is_short else pytest.mark.long
        yield pytest.param(name, mesh, spec, id=f"{name} {spec} {mesh.size}", marks=marks)


@pytest.mark.parametrize(("name", "mesh", "spec"), [*cases()])
def test_results_are_placed_as_the_operand(client, drawn, name, mesh, spec):
    function, numpys, entries = FAMILIES[name]
    x, y = client.put(X, mesh=mesh, spec=spec), client.xp.asarray(Y)
    result = function(client.xp, x, y)
    np.testing.assert_allclose(result.get(), drawn if numpys is None else numpys(X), rtol=1e-5, atol=1e-12)
    assert result.committed
    assert result.mesh.axes == mesh.axes
    if entries is not None:
        assert result.spec == P(*entries(*x.spec))
        of_x = client.put(np.zeros(result.shape), mesh=mesh, spec=result.spec)
        assert str(result.visualize()).splitlines()[1:] == str(of_x.visualize()).splitlines()[1:]
        assert result.blocks() == of_x.blocks()
