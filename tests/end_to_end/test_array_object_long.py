"""The tests of `test_array_object.py` that take long."""

import math
import operator

import numpy as np
import pytest
from end_to_end.test_array_object import FORMS, F, same
from pairs import pairs_of

import shardcall as sc

pytestmark = pytest.mark.long

K = np.arange(-8, 8).reshape(4, 4)


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


@pytest.fixture(scope="module", params=FORMS)
def make_array(client, request):
    """Makes an array of a kind with the values of one of this process."""

    def make(x):
        h = client.put(x, mesh=sc.Mesh(x=2)) if np.ndim(x) else client.put(x, mesh=sc.Mesh(x=1))
        if request.param == "on the mesh":
            return h
        return client.reshard(h, keep=request.param == "kept result")

    return make


BINARY = {
    **dict.fromkeys(("add", "sub", "mul", "truediv", "floordiv", "mod", "matmul"), (F, F + 3)),
    "pow": (abs(F), F),
    **dict.fromkeys(("and", "or", "xor"), (K, K[::-1])),
    **dict.fromkeys(("lshift", "rshift"), (abs(K), np.full((4, 4), 2))),
}


COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


UNARY = {"abs": F, "neg": F, "pos": F, "invert": K}


USES = {
    **{f"__{name}__": (UNARY[name], lambda x, name=name: getattr(operator, name)(x)) for name in UNARY},
    "T": (F, lambda x: x.T),
    "mT": (F, lambda x: x.mT),
    "ndim": (F, lambda x: x.ndim),
    "shape": (F, lambda x: x.shape),
    "size": (F, lambda x: x.size),
    "dtype": (F, lambda x: np.zeros(1, x.dtype)),
    "__getitem__": (F, lambda x: x[1:, 2]),
    "__bool__": (K[:1, :1], bool),
    "__int__": (F[0, 0], int),
    "__float__": (K[0, 0], float),
    "__complex__": (F[0, 0], complex),
    "__index__": (K[0, 1], operator.index),
    "__len__": (F, len),
    "__contains__": (F, lambda x: (float(F[0, 0]) in x, 1e9 in x)),
    "__divmod__": (F, lambda x: divmod(x, 2)),
    "__rdivmod__": (F, lambda x: divmod(2, x)),
    "__format__": (F[0, 0], lambda x: float(f"{x:.3f}")),
    "scalar * array": (F, lambda x: np.float64(2) * x),
    "array + array of this process": (F, lambda x: F + x),
    "sqrt": (abs(F[0, 0]), math.sqrt),
    "== None": (F, lambda x: x == None),  # noqa: E711
    "numpy.sin": (F, np.sin),
    "numpy.add": (F, lambda x: np.add(x, x)),
    "numpy.mean": (F, lambda x: np.mean(x, axis=0)),
    "numpy.concatenate": (F, lambda x: np.concatenate([x, x])),
    "sum": (F, lambda x: x.sum(0)),
    "astype": (F, lambda x: x.astype("float32")),
    "mask": (F, lambda x: x[x > 0]),
}


@pytest.mark.parametrize(("make_array", "name"), pairs_of(FORMS, [*USES]), indirect=["make_array"])
def test_attributes_and_methods(make_array, name):
    x, use = USES[name]
    same(use(make_array(x)), use(x))


@pytest.mark.parametrize(("make_array", "name"), pairs_of(FORMS, [*BINARY, *COMPARISONS]), indirect=["make_array"])
def test_binary_operators_reflected_and_assigning(make_array, name):
    x, y = BINARY.get(name, (F, F.round()))
    function = getattr(operator, name + "_" if name in ("and", "or") else name)
    ours, other = make_array(x), make_array(y)
    same(function(ours, other), function(x, y))
    same(function(x, other), function(x, y))
    if name in COMPARISONS:
        return
    assert hasattr(type(ours), f"__{name}__")
    assert hasattr(type(ours), f"__r{name}__")
    change = getattr(operator, f"i{name}")
    try:
        expected = change(x.copy(), y)
    except TypeError:  # of floats in an array of integers
        with pytest.raises(TypeError, match="in place makes float64"):
            change(ours, other)
        return
    assert change(ours, other) is ours
    same(ours, expected)


def test_assignments_to_elements(make_array):
    ours, x = make_array(F), F.copy()
    for array in (ours, x):
        array[0] = 0
        array[array > 1] = -1
        array[[1, 2], 3] += 5
    same(ours, x)
