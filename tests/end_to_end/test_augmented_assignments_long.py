"""Augmented assignments, and writes to views, of every form: every name of the array sees what NumPy changes."""

import numpy as np
import pytest
from end_to_end.numpy_calls import X, calls_of, check_call

pytestmark = pytest.mark.long

ASSIGNMENTS = """
    x {+= 1|-= x|*= ROW|/= 2|//= 2|%= 3|**= 2|@= np.diag(ROW)|+= ROW.tolist()|+= np.float32(0.5)}
    x[{1:3|:}] += 5
    x[x > 5] *= 2
    x[[0, 2], 1] -= ROW[:2]
    x[...] = x + 1
    x[2, 1:] += ROW[1:]
    x = x + 1
    """

WRITES_TO_VIEWS = """
    t = x[{1:|0, ..., 1|x > 0.5|3:3|0, 1}]; t += 5
    t = {x[1:].copy()|x.T.ravel()|x[:, 1:].reshape(-1)|x[::2].ravel()|x.reshape(6, 13)|-x[1:]}; t += 1
    t = x[{:|[0, 1]}]; t[0] = 2
    t = x.flatten(); t[:] = 1
    x{[0][1]|.T[0]|.ravel()[:]|.reshape(6, 13)[0]|[2:].ravel()[0]|[:, None][0]|.flat[3]|.view()[0]} = 7
    np.{einsum('ii->i', x[:6])[:]|flip(x)[0]|split(x, [3])[0][:]|moveaxis(x, 0, 1)[2]} = 0
    x[0][1:] += 3
    x[2:].{sort()|fill(3)}
    np.split(x, [3])[0].sort()
    parts = np.split(x, [3]); parts[0] += 1
    rows = list(x); rows[1] *= 2
    d = {'w': x[2:5]}; d['w'] += 1
    x[0], x[1] = 1, 2
    x[1:] = x[:-1]
    x += x[::-1]
    np.add(x[1:], 1, out=x[:-1])
    x.shape = 6, 13; x[0] = 1
    np.copyto(x[::2], 3, where=x[::2] > 0.9)
    x.T.put([0, 7], 1)
    np.place(x[1:], x[1:] > 0.9, [1, 2, 3])
    np.putmask(x.T, x.T > 0.9, ROW)
    np.fill_diagonal(x[:, ::-1], 5)
    x[0].partition(3)
    np.add.at(x[1], [0, 0, 2], 1)
    x.flat = [1, 2]
    x[1:].flat[[1, 2]] = 3
    """


@pytest.mark.parametrize("statement", [*calls_of(ASSIGNMENTS + WRITES_TO_VIEWS), "for part in x:\n    part += 1"])
def test_every_name_of_the_array_sees_what_numpy_changes(strict_client, statement):
    check_call(strict_client, f"alias = x\n{statement}", moves=True)


def test_numbers_are_scalars_where_numpys_are(client):
    h = client.put(X)
    numbers = [h.sum(), np.max(h), h[1, 2], h.mean() + 1, np.percentile(h, 50), np.median(h)]
    arrays = [client.put(np.array(3.0)), client.xp.zeros(()), h[:1, :1].reshape(()).copy(), h[0, 1, ...].copy()]
    for value, is_scalar in [*((n, True) for n in numbers), *((a, False) for a in arrays)]:
        after = value
        after += 1
        assert (after is value) != is_scalar
        assert float(after) - float(value) == pytest.approx(float(is_scalar))
