"""The tests of `test_augmented_assignments.py` that take long."""

import numpy as np
import pytest
from end_to_end.test_augmented_assignments import X, changed

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture
def put(client):
    return lambda x: client.put(x, mesh=sc.Mesh(x=8))


@pytest.mark.parametrize(
    "statement",
    [
        *("x += 1", "x -= x", "x *= ROW", "x /= 2", "x //= 2", "x %= 3", "x **= 2", "x @= np.diag(ROW)"),
        *("x += ROW.tolist()", "x += np.float32(0.5)", "x[1:3] += 5", "x[x > 5] *= 2", "x[[0, 2], 1] -= ROW[:2]"),
        *("x[:] += 1", "x[...] = x + 1", "x[2, 1:] += ROW[1:]", "x = x + 1"),
    ],
)
def test_every_name_of_the_array_sees_what_numpy_changes(put, statement):
    for mine, numpys in zip(changed(statement, put(X)), changed(statement, X.copy()), strict=True):
        np.testing.assert_array_equal(mine.get(), numpys)
        assert (mine.dtype, mine.shape) == (numpys.dtype, numpys.shape)


def test_numbers_are_scalars_where_numpys_are(client, put):
    h = put(X)
    numbers = [h.sum(), np.max(h), h[1, 2], h.mean() + 1, np.percentile(h, 50), np.median(h)]
    arrays = [client.put(np.array(3.0)), client.xp.zeros(()), h[:1, :1].reshape(()).copy(), h[0, 1, ...].copy()]
    for value, is_scalar in [*((n, True) for n in numbers), *((a, False) for a in arrays)]:
        after = value
        after += 1
        assert (after is value) != is_scalar
        assert float(after) - float(value) == is_scalar


@pytest.mark.parametrize(
    "statement",
    [
        *("v = x[1:]\nv += 5", "x[0][1] = 7", "x.T[0] = 9", "x.ravel()[:] = 1", "v = x[:]\nv[0] = 2", "x[0][1:] += 3"),
        *("v = x[0, ..., 1]\nv += 1", "for row in x:\n    row += 1", "x[2:].sort()", "x.reshape(6, 13)[0] = 0"),
        *("np.split(x, [3])[0].sort()", "np.einsum('ii->i', x[:6])[:] = 0", "x[2:].ravel()[0] = 1"),
        *("np.flip(x)[0] = 1", "np.split(x, [3])[0][:] = 0", "x[:, None][0] = 1", "np.moveaxis(x, 0, 1)[2] = 0"),
        *("parts = np.split(x, [3])\nparts[0] += 1", "rows = list(x)\nrows[1] *= 2", "d = {'w': x[2:5]}\nd['w'] += 1"),
        *("v = x[1:].copy()\nv += 5", "v = x.flatten()\nv[:] = 1", "v = x[x > 3]\nv += 1", "v = x[[0, 1]]\nv[0] = 1"),
        *("v = x.T.ravel()\nv += 1", "v = x[:, 1:].reshape(-1)\nv += 1", "v = x[::2].ravel()\nv += 1"),
        *("v = x[3:3]\nv += 1", "v = x.reshape(6, 13)\nv += 1", "v = x[0, 1]\nv += 1", "v = -x[1:]\nv += 1"),
        *(
            "x[0], x[1] = 1, 2",
            "x[1:] = x[:-1]",
            "x += x[::-1]",
            "np.add(x[1:], 1, out=x[:-1])",
            "x.shape = 6, 13\nx[0] = 1",
        ),
        *("np.copyto(x[::2], 3, where=x[::2] > 9)", "x.T.put([0, 7], 1)", "np.place(x[1:], x[1:] > 9, [1, 2, 3])"),
        *("np.putmask(x.T, x.T > 9, ROW)", "x[2:].fill(3)", "np.fill_diagonal(x[:, ::-1], 5)", "x[0].partition(3)"),
        *(
            "np.add.at(x[1], [0, 0, 2], 1)",
            "x.flat[3] = 1",
            "x.flat = [1, 2]",
            "x[1:].flat[[1, 2]] = 3",
            "x.view()[0] = 3",
        ),
    ],
)
def test_views_write_to_the_array_as_numpys_do(put, statement):
    for mine, numpys in zip(changed(statement, put(X)), changed(statement, X.copy()), strict=True):
        np.testing.assert_array_equal(mine.get(), numpys)
        assert (mine.dtype, mine.shape) == (numpys.dtype, numpys.shape)
