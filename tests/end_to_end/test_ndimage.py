"""The filters of `client.xp.ndimage` equal SciPy's over sharded arrays, and exchange rows without a gather."""

import numpy as np
import pytest
from end_to_end.same_results import MESH, same

scipy = pytest.importorskip("scipy.ndimage")

RANDOM = np.random.default_rng(9)
X, CUBE, V = RANDOM.normal(size=(13, 6)), RANDOM.normal(size=(3, 9, 5)), RANDOM.normal(size=13)
WEIGHTS = RANDOM.normal(size=(3, 2))


def test_weights_may_be_on_the_mesh(strict_client):
    result = strict_client.xp.ndimage.correlate(strict_client.put(X, mesh=MESH), strict_client.put(WEIGHTS))
    same(result, scipy.correlate(X, WEIGHTS))


def test_wrong_arguments_are_refused(strict_client):
    h = strict_client.put(X, mesh=MESH)
    for call, error in (
        (lambda nd, x: nd.correlate(x, [1, 2]), RuntimeError),
        (lambda nd, x: nd.correlate(x, WEIGHTS, mode="x"), RuntimeError),
        (lambda nd, x: nd.correlate(x, WEIGHTS[:0]), RuntimeError),
        (lambda nd, x: nd.correlate(x, WEIGHTS, mode=["wrap", "wrap"]), RuntimeError),
        (lambda nd, x: nd.correlate(x, WEIGHTS, origin=2), ValueError),
        (lambda nd, x: nd.uniform_filter(x, 3, origin=2), ValueError),
        (lambda nd, x: nd.uniform_filter(x, (1, 2, 3)), RuntimeError),
        (lambda nd, x: nd.gaussian_filter(x, 1, order=-1), ValueError),
        (lambda nd, x: nd.gaussian_filter(x, 1, radius=-1), ValueError),
        (lambda nd, x: nd.gaussian_filter(x.astype(np.float16), 1), RuntimeError),
    ):
        for nd, x in ((scipy, X), (strict_client.xp.ndimage, h)):
            with pytest.raises(error):
                call(nd, x)
    with pytest.raises(TypeError, match="results are new arrays"):
        strict_client.xp.ndimage.gaussian_filter(h, 1, output=h)
