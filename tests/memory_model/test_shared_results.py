"""Results of functions, which share memory with their arguments where NumPy's do, and nowhere else."""

import itertools

import numpy as np
from memory_model.in_process import InProcessClient

import shardcall as sc

X = np.arange(1.0, 13.0).reshape(3, 4)
ARGUMENTS = (
    *((X,), (X, 0), (X, 1), (X, -1), (X, 0, 1), (X, X), ([X],), (X, (3, 4)), (X, [0]), (X, (1, 0)), ("ij->ji", X)),
    *((X[:1],), (X[0],), (X[0], 0), (X[0], 1), (X > 0, X), (X > 0, X, X), ([X > 0], [X], X), (X, None, None), (X, [])),
    *((X.astype(int),), (X.astype(complex),), (X.astype(int), 0), (X[0, 0],), (X[:, :3],), (X, [], 0), (X, 1, 0)),
    *((0, [X, X]), (X[0].astype(int) % 1, [X[0]]), (X, [lambda x: x]), ([X, X], 0), (X, [1, 2]), (X, 0, -1)),
)
LEFT_OUT = {
    *("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "require", "frombuffer", "from_dlpack"),
    *("broadcast_arrays", "may_share_memory", "shares_memory"),  # which are not about results
    "asarray_chkfinite",
    "diff",  # of order 0, NumPy's result is the array itself
    "einsum",  # of lists of axes, a copy here
}


def arrays_of(value):
    """The arrays in a result."""
    items = value if isinstance(value, tuple | list) else [value]
    return [item for item in items if isinstance(item, np.ndarray | sc.RemoteArray)]


def placed(put, value, arrays):
    """An argument with its arrays put elsewhere, which are also added to a list."""
    if isinstance(value, np.ndarray):
        arrays.append(put(value))
        return arrays[-1]
    return [placed(put, item, arrays) for item in value] if type(value) is list else value


def test_results_share_memory_where_numpys_do():
    client = InProcessClient()
    names = [name for name in client.xp.function_names if hasattr(np, name) and name not in LEFT_OUT]
    compared, wrong = 0, []
    for name, arguments in itertools.product(names, ARGUMENTS):
        here, there = [], []
        try:
            expected = arrays_of(getattr(np, name)(*[placed(np.copy, item, here) for item in arguments]))
            actual = arrays_of(getattr(np, name)(*[placed(client.put, item, there) for item in arguments]))
        except Exception:  # noqa: BLE001  # calls that one of them refuses
            continue
        if len(expected) != len(actual) or not there:
            continue
        for numpys, mine in zip(expected, actual, strict=True):
            compared += 1
            shared = [np.shares_memory(numpys, item) for item in here]
            if shared != [np.shares_memory(mine, item) for item in there]:
                wrong.append((name, arguments, shared))
            elif isinstance(mine, sc.RemoteArray) and numpys.flags.writeable != mine.flags.writeable:
                wrong.append((name, arguments, "writeable", numpys.flags.writeable))
    assert not wrong, "\n".join(str(item).replace("\n", " ") for item in wrong)
    assert compared > 1000
