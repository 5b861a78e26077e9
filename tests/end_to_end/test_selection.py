"""NumPy's functions that choose, leave out and add elements of arrays on the mesh, which equal NumPy's."""

import numpy as np
import pytest

import shardcall as sc

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(13, 6))
X[2, 1] = np.nan


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


def test_numbers_of_one_ratio(client):
    for arguments in ((-1, -256, 9), ([1, 2], [3, 4], 5)):
        result, expected = client.xp.geomspace(*arguments), np.geomspace(*arguments)
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result.get(), expected, rtol=1e-13)
    with pytest.raises(ValueError, match="is 0"):
        client.xp.geomspace(0, 1)


def test_wrong_arguments_are_refused(client):
    h, x = client.put(X, mesh=sc.Mesh(x=8)), client.put(np.arange(60))
    for call, error, says in (
        (lambda: np.partition(h, 13, axis=0), ValueError, "out of bounds"),
        (lambda: np.unravel_index(x, (3, 4)), ValueError, "give 0 to 11"),
        (lambda: np.delete(h, 13, 0), IndexError, "out of bounds"),
        (lambda: np.insert(h, 14, 1, 0), IndexError, "out of bounds"),
        (lambda: np.trim_zeros(h, "x"), ValueError, "give 'f', 'b' or 'fb'"),
        (lambda: np.trim_zeros(h, axis=2), np.exceptions.AxisError, "axis 2"),
        (lambda: np.resize(h, (-1, 3)), ValueError, "0 or more"),
        (lambda: np.select([h], [h]), TypeError, "give conditions of bool"),
        (lambda: np.unique(h, axis=2), np.exceptions.AxisError, "axis 2"),
        (lambda: np.put_along_axis(h, np.array([[13]]), 0, 0), IndexError, "index 13"),
        (lambda: np.put_along_axis(h, np.array([[1]]), 0, None), ValueError, "single dimension"),
        (lambda: client.xp.put_along_axis(X, np.array([[1]]), 0, 0), TypeError, "of this process"),
        (lambda: np.diag(client.put(np.zeros((2, 2, 2)))), ValueError, "3 axes"),
    ):
        with pytest.raises(error, match=says):
            call()
