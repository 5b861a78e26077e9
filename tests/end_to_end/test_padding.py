"""`numpy.pad` of arrays on the mesh, in all modes."""

import numpy as np
import pytest

import shardcall as sc

X = np.random.default_rng(3).normal(size=(13, 6))
MESH = sc.Mesh(x=8)


@pytest.fixture(scope="module")
def put(server):
    with sc.connect(server.address, implicit_get="error") as client:
        yield lambda x: client.put(x, mesh=MESH)


@pytest.mark.parametrize(
    ("error", "how"),
    [
        (ValueError, {"mode": "nonsense"}),
        (ValueError, {"mode": "constant", "stat_length": 1}),
        (ValueError, {"mode": "empty", "constant_values": 1}),
        (ValueError, {"mode": "maximum", "stat_length": 0}),
        (ValueError, {"mode": "mean", "stat_length": -1}),
        (ValueError, {"mode": "mean", "pad_width": -1}),
        (ValueError, {"mode": "mean", "pad_width": ((1, 2, 3),)}),
        (ValueError, {"pad_width": (1, 2, 3, 4)}),
        (TypeError, {"mode": "mean", "pad_width": 1.5}),
        (ValueError, {"constant_values": (1, 2, 3)}),
    ],
)
def test_wrong_arguments_are_refused(put, error, how):
    how = {"pad_width": 1, **how}
    for x in (X, put(X)):
        with pytest.raises(error):
            np.pad(x, **how)
    for x in (X[:0], put(X[:0])):
        with pytest.raises(ValueError, match=r"empty axis|without elements"):
            np.pad(x, 1, mode="median")


def test_functions_as_modes_are_refused_by_name(put):
    with pytest.raises(TypeError, match="mode is a function"):
        np.pad(put(X), 1, mode=lambda row, *_: None)


def test_padding_in_a_traced_function(put, server):
    def padded(x):
        return np.pad(np.pad(x, 1, mode="mean"), (1, 2), constant_values=(1, 2))

    with sc.connect(server.address) as client:
        np.testing.assert_allclose(client.jit(padded)(client.put(X, mesh=MESH)).get(), padded(X))
