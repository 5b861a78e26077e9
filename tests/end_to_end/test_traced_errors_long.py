"""The tests of `test_traced_errors.py` that take long."""

import numpy as np
import pytest
from end_to_end.test_traced_errors import X, at, inverted, of_an_index

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def client(server):
    with sc.connect(server.address) as client:
        yield client


def in_a_loop(xp, u):
    def body(_, v):
        w = v + 1
        return xp.linalg.inv(v * 0) + w  # 3

    return xp.fori_loop(0, 5, body, u + 1)


def in_a_slice(xp, u):
    v = xp.fori_loop(
        0,
        xp.sum(u != 7),
        lambda _, v: xp.linalg.inv(v * 0),  # 4
        u * 2,
    )
    return v + 1


def behind_slices(xp, u):
    v = xp.fori_loop(0, 2000, lambda _, v: v + 1, u) + 1
    return np.transpose(v) @ v + xp.linalg.inv(v * 0)  # 2


def in_a_branch(xp, u):
    return xp.cond(
        u.sum() > 0,
        lambda v: xp.linalg.inv(v - v) + v,  # 3
        lambda v: v,
        u,
    )


REFUSED = {
    "in a function": (inverted, 1, "inv", sc.LinAlgError),
    "in a loop": (in_a_loop, 3, "inv", sc.LinAlgError),
    "in a loop that runs in slices": (in_a_slice, 4, "inv", sc.LinAlgError),
    "behind a loop that runs in slices": (behind_slices, 2, "inv", sc.LinAlgError),
    "in a branch": (in_a_branch, 3, "inv", sc.LinAlgError),
    "an index": (of_an_index, 1, "take", sc.IndexOutOfRangeError),
}


@pytest.mark.parametrize(("function", "line", "kernel", "error"), REFUSED.values(), ids=REFUSED)
def test_errors_of_values_name_the_line(client, function, line, kernel, error):
    result = client.jit(lambda u: function(client.xp, u))(client.put(X))
    with pytest.raises(error, match=r"^<lambda> \(.*, failed: " + at(function, line, kernel)):
        result.get()
