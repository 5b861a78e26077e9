"""The tests of `test_ndimage.py` that take long."""

import numpy as np
import pytest
from end_to_end.same_results import MESH, same
from end_to_end.test_ndimage import CUBE, RANDOM, WEIGHTS, V, X, scipy

import shardcall as sc

pytestmark = pytest.mark.long

BYTES = RANDOM.integers(0, 256, (13, 6)).astype(np.uint8)


MODES = ("reflect", "mirror", "nearest", "wrap", "constant")


SHORT = {
    "correlate": (lambda nd, x: nd.correlate(x, WEIGHTS, mode="mirror", origin=(1, -1)), X),
    "convolve": (lambda nd, x: nd.convolve(x, WEIGHTS, mode="constant", cval=2.5), X),
    "convolve of bytes": (lambda nd, x: nd.convolve(x, -np.ones((3, 3))), BYTES),
    "uniform_filter": (lambda nd, x: nd.uniform_filter(x, (9, 4), mode=["wrap", "nearest"]), X),
    "gaussian_filter": (lambda nd, x: nd.gaussian_filter(x, 1, order=(0, 2)), X.astype("f")),
    "gaussian_filter of bytes": (lambda nd, x: nd.gaussian_filter(x, [1, 1.7]), np.full((13, 6), 77, np.uint8)),
}


INFINITE = np.array([np.inf - 4j, 1 + 2j, 3 - np.inf * 1j, 2, 5, 7 + 1j])


SHORT |= {
    "correlate of complex infinities": (lambda nd, x: nd.correlate(x, np.ones(2, np.int8)), INFINITE),
    "weights of 0 beside infinity": (lambda nd, x: nd.correlate(x, [1.0, 0, 2, 1e-20, 1]), np.append(V, np.inf)),
    "weights of 0 alone": (lambda nd, x: nd.convolve(x, np.zeros(3)), INFINITE.real),
}


LONG = {
    **{
        f"{name}, {mode}": (function, X)
        for mode in MODES
        for name, function in (
            ("correlate", lambda nd, x, mode=mode: nd.correlate(x, WEIGHTS, mode=mode, cval=2.5, origin=(1, -1))),
            ("convolve", lambda nd, x, mode=mode: nd.convolve(x, WEIGHTS, mode=mode, cval=2.5)),
            ("uniform_filter", lambda nd, x, mode=mode: nd.uniform_filter(x, (9, 4), mode=mode)),
            ("gaussian_filter", lambda nd, x, mode=mode: nd.gaussian_filter(x, 2.5, mode=mode)),
        )
    },
    "gaussian_filter along an axis": (lambda nd, x: nd.gaussian_filter(x, 1, order=1, axes=(1,), radius=2), CUBE),
    "gaussian_filter of nothing": (lambda nd, x: nd.gaussian_filter(x, 1), X[:0]),
    "gaussian_filter of a number": (lambda nd, x: nd.gaussian_filter(x, 1), np.array(3.0)),
    "gaussian_filter of no deviation": (lambda nd, x: nd.gaussian_filter(x, 0), X),
    "gaussian_filter of complex": (lambda nd, x: nd.gaussian_filter(x * 1j, 1), X),
    "uniform_filter of bytes": (lambda nd, x: nd.uniform_filter(x, 4), BYTES),
    "uniform_filter of one": (lambda nd, x: nd.uniform_filter(x, 1), BYTES),
    "uniform_filter, moved": (lambda nd, x: nd.uniform_filter(x, 5, origin=(-2, 1)), X),
    "uniform_filter of 4,096": (lambda nd, x: nd.uniform_filter(x, 7), np.linspace(0, 1, 4096) ** 2),
    "convolve of bool": (lambda nd, x: nd.convolve(x, np.ones((3, 3)) * 0.6), BYTES > 100),
    "convolve of nothing": (lambda nd, x: nd.convolve(x, np.ones((3, 3))), X[:0]),
    "correlate of complex": (lambda nd, x: nd.correlate(x, [[1j, 2], [3, 4]], axes=(0, 2)), CUBE),
    "convolve of complex": (lambda nd, x: nd.convolve(x, [[1j, 2], [3, 4]], axes=(0, 2)), CUBE),
    "correlate to float32": (lambda nd, x: nd.correlate(x, [1, 2, 3], output=np.float32), V),
    "correlate of a cube": (lambda nd, x: nd.correlate(x, np.ones((3, 3, 3)) / 27), CUBE.astype("f")),
    "correlate of a short axis": (lambda nd, x: nd.correlate(x, np.arange(9.0), mode="mirror"), V[:3]),
}


@pytest.mark.parametrize(
    ("function", "x"),
    [*SHORT.values(), *(pytest.param(*case, marks=pytest.mark.long) for case in LONG.values())],
    ids=[*SHORT, *LONG],
)
def test_filters_are_scipys(strict_client, function, x):
    same(function(strict_client.xp.ndimage, strict_client.put(x, mesh=MESH)), function(scipy, x))


def test_neighbours_exchange_rows_and_nothing_is_gathered(strict_client):
    h = strict_client.put(np.zeros((64, 16)), mesh=MESH, spec=sc.P("x", None))
    for function in (
        lambda h: strict_client.xp.ndimage.gaussian_filter(h, 1),
        lambda h: strict_client.xp.ndimage.convolve(h, np.ones((3, 3)), mode="wrap"),
    ):
        plan = strict_client.jit(function).plan(h)
        assert "all-gather" not in str(plan)
        assert "collective-permute" in str(plan)
        assert plan.results[0].spec == sc.P("x", None)
