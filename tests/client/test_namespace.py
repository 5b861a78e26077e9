"""The functions of `client.xp` that need no server: names, types, shapes and signatures."""

import inspect

import ml_dtypes
import numpy as np
import pytest
from rows import rows

from shardcall.namespace import Namespace


class Recorder:
    """A client that records calls."""

    def __init__(self):
        self.calls = []

    def submit(self, name, /, *operands, **arguments):
        self.calls.append((name, operands, arguments))
        return np.zeros(())


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def xp(recorder):
    return Namespace(recorder)


def test_element_types_are_numpys(xp):
    for name in ("bool", "int8", "uint64", "float32", "complex128"):
        assert np.dtype(getattr(xp, name)) == np.dtype(name)
    assert xp.bfloat16 is ml_dtypes.bfloat16
    assert not xp.function_names & {"float32", "bool"}
    assert {"zeros", "tensordot", "astype", "finfo"} <= xp.function_names


def test_limits_of_types_are_numpys(xp):
    assert xp.finfo(np.float32).eps == np.finfo(np.float32).eps
    assert xp.finfo(np.zeros(2)).bits == 64
    assert xp.finfo("bfloat16").bits == 16
    assert xp.iinfo(np.int16).max == 32767
    assert xp.iinfo("int4").max == 7


def test_categories_of_types_are_numpys(xp):
    assert xp.isdtype(np.float32, "real floating")
    assert xp.isdtype("bfloat16", ("integral", "real floating"))
    assert not xp.isdtype(np.int8, "real floating")
    assert xp.isdtype(np.int8, np.int8)
    assert xp.can_cast(np.int8, np.int16)
    assert not xp.can_cast(np.zeros(2), np.float32)
    assert xp.result_type(np.int8, np.zeros(2, np.float32), 2.5) == np.float32
    assert xp.broadcast_shapes((2, 1), (3,)) == (2, 3)


def test_the_namespace_describes_itself(xp):
    info = xp.__array_namespace_info__()
    assert info.devices() == [info.default_device()] == ["mesh"]
    assert info.default_dtypes()["real floating"] == np.float64
    assert set(info.dtypes(kind="real floating")) == {"float32", "float64"}
    assert len(info.dtypes(device="mesh")) == 13
    assert info.capabilities()["max dimensions"] == 32
    with pytest.raises(ValueError, match="the only device"):
        info.dtypes(device="cpu")


def test_functions_that_create_show_where(xp):
    for name in ("zeros", "full", "arange", "linspace", "eye", "asarray", "ones_like", "from_dlpack"):
        parameters = inspect.signature(getattr(xp, name)).parameters
        assert [*parameters][-3:] == ["device", "mesh", "spec"]
    with pytest.raises(TypeError):
        xp.zeros(3, mseh=None)


@rows(
    ("a", "b", "axes", "subscripts"),
    [
        ((2, 3, 4), (3, 4, 5), 2, "abc,bcf->af"),
        ((2, 3), (4,), 0, "ab,c->abc"),
        ((2, 3), (3, 2), ((1, 0), (0, 1)), "ab,ba->"),
        ((2, 3), (5, 3), (-1, -1), "ab,cb->ac"),
    ],
)
def test_tensordot_sums_along_axes(xp, recorder, a, b, axes, subscripts):
    xp.tensordot(np.zeros(a), np.zeros(b), axes)
    name, _, arguments = recorder.calls[-1]
    assert (name, arguments["subscripts"]) == ("einsum", subscripts)


def test_products_refuse_sizes_that_differ(xp):
    with pytest.raises(ValueError, match="axes of the same sizes"):
        xp.tensordot(np.zeros((2, 3)), np.zeros((2, 3)), 1)
    with pytest.raises(ValueError, match="at most these"):
        xp.tensordot(np.zeros(2), np.zeros(2), 2)
    with pytest.raises(ValueError, match="as many elements along axis -1"):
        xp.vecdot(np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="takes vectors of 2 or 3"):
        Namespace.cross(_Local(Recorder()), np.zeros(2), np.zeros(4))


class _Local(Namespace):
    def transpose(self, x, axes):
        return np.transpose(x, axes)
