"""The functions of `client.xp` that need no server, beyond those of the standard, which are in tests/array_api."""

import inspect

import ml_dtypes
import numpy as np
import pytest
from memory_model.in_process import InProcessClient
from rows import rows

from shardcall.namespace import Namespace


class Local(Namespace):
    """A namespace without a client, which transposes by itself."""

    def __init__(self):
        super().__init__(None)

    def transpose(self, x, axes):
        return np.transpose(x, axes)


def test_types_are_numpys_and_those_of_other_packages():
    xp = Local()
    assert xp.bfloat16 is ml_dtypes.bfloat16
    assert not xp.function_names & {"float32", "bool"}
    assert {"zeros", "tensordot", "astype", "finfo"} <= xp.function_names
    assert (xp.finfo(np.zeros(2)).bits, xp.finfo("bfloat16").bits, xp.iinfo("int4").max) == (64, 16, 7)
    assert xp.isdtype("bfloat16", ("integral", "real floating"))
    assert not xp.can_cast(np.zeros(2), np.float32)
    assert xp.result_type(np.int8, np.zeros(2, np.float32), 2.5) == np.float32
    assert len(xp.__array_namespace_info__().dtypes(device="mesh")) == 13
    with pytest.raises(ValueError, match="the only device"):
        xp.__array_namespace_info__().dtypes(device="cpu")


def test_functions_that_create_show_where():
    xp = Local()
    for name in ("zeros", "full", "arange", "linspace", "eye", "asarray", "ones_like", "from_dlpack"):
        assert [*inspect.signature(getattr(xp, name)).parameters][-3:] == ["device", "mesh", "spec"]
    with pytest.raises(TypeError):
        xp.zeros(3, mseh=None)


@rows(
    ("product", "says"),
    [
        (lambda xp: xp.tensordot(np.zeros((2, 3)), np.zeros((2, 3)), 1), "axes of the same sizes"),
        (lambda xp: xp.tensordot(np.zeros(2), np.zeros(2), 2), "at most these"),
        (lambda xp: xp.vecdot(np.zeros(2), np.zeros(3)), "as many elements along axis -1"),
        (lambda xp: xp.cross(np.zeros(2), np.zeros(4)), "takes vectors of 2 or 3"),
    ],
)
def test_products_refuse_sizes_that_differ(product, says):
    with pytest.raises(ValueError, match=says):
        product(Local())


def test_libraries_may_pass_a_target_that_is_none():
    xp = InProcessClient().xp
    x = np.array([[1.0, 0], [2, 3]])
    for name in ("any", "all", "sum", "mean", "max", "sqrt"):
        np.testing.assert_array_equal(getattr(xp, name)(x, out=None).get(), getattr(np, name)(x))
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        xp.any(x, out=np.zeros(2))


@rows(
    ("name", "arguments"),
    [
        *(("sqrt", (np.array([4, last]).astype(dtype),)) for last in (1, -1) for dtype in ("i1", "i2", "i8", "f2")),
        *((name, (np.array([4, -1], np.float32),)) for name in ("sqrt", "log", "log2", "log10")),
        *((name, (np.array(x),)) for name in ("arccos", "arcsin", "arctanh") for x in ([0.5, -0.4], [2, 0.4], [-2.0])),
        ("sqrt", (np.array([4, -1j]),)),
        ("sqrt", (np.array([True, False]),)),
        *(("logn", (n, np.array([4.0, last]))) for n in (2, -2) for last in (1, -1)),
        *(("power", (np.array([2, first]), p)) for first in (3, -3) for p in (2, -2, 0.5, np.array([-1, 2]))),
    ],
)
def test_results_are_complex_where_numpys_are(name, arguments):
    client, function = InProcessClient(), getattr(np.emath, name)
    expected = function(*arguments)
    actual = function(*(client.put(item) if isinstance(item, np.ndarray) else item for item in arguments))
    np.testing.assert_allclose(actual.get(), expected, rtol=1e-6)
    assert actual.dtype == expected.dtype
    named = getattr(client.xp.emath, name)
    np.testing.assert_allclose(named(*arguments).get(), expected, rtol=1e-6)
