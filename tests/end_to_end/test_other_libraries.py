"""Functions of other libraries with arrays on the mesh: each returns what it returns of NumPy's array, or is refused.

A library that is not installed is skipped, and so are the calls that need the buffer protocol of Python 3.12.
"""

import csv
import hashlib
import io
import json
import math
import os
import statistics
import struct
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

import shardcall as sc

X = np.random.default_rng(41).normal(size=(64, 8))
Case = Callable[[Any], Any]


def library(name: str) -> Callable[[], Any]:
    return lambda: pytest.importorskip(name)


pd, xr, pillow, plt = map(library, ("pandas", "xarray", "PIL.Image", "matplotlib.pyplot"))
special, sparse = map(library, ("scipy.special", "scipy.sparse"))
zarr, h5py, networkx, seaborn = map(library, ("zarr", "h5py", "networkx", "seaborn"))


def drawn(draw: Callable[[Any], object]) -> list[float]:
    """Draws in axes of their own; returns what they show."""
    pytest.importorskip("matplotlib").use("Agg")
    figure, axes = plt().subplots()
    draw(axes)
    limits = [*axes.get_xlim(), *axes.get_ylim()]
    plt().close(figure)
    return limits


def through_hdf5(x: Any) -> Any:
    with h5py().File("x", "w", driver="core", backing_store=False) as file:
        return file.create_dataset("x", data=x)[...]


def as_csv(x: Any) -> str:
    file = io.StringIO()
    csv.writer(file).writerows(x)
    return file.getvalue()


PYTHON: dict[str, Case] = {
    "sum": lambda x: sum(x[0]),
    "math.sqrt": lambda x: math.sqrt(abs(x[0, 0])),
    "statistics.mean": lambda x: statistics.mean(x[:, 0]),
    "zip": lambda x: [a * b for a, b in zip(x[0], x[1], strict=True)],
    "json": lambda x: json.dumps(x[:2].tolist()),
    "csv": as_csv,
    "format": lambda x: f"{x[0, 0]:.3f}",
    "round": lambda x: round(float(x[0, 0]), 2),
    "bytes": bytes,
    "tobytes": lambda x: x.tobytes(),
    "in": lambda x: 3.5 in x,
    "numpy.testing": lambda x: np.testing.assert_allclose(x, X),
}
BUFFERS: dict[str, Case] = {
    "hashlib": lambda x: hashlib.sha256(x).hexdigest(),
    "zlib": lambda x: zlib.decompress(zlib.compress(x)),
    "write": lambda x: io.BytesIO().write(x),
    "struct": lambda x: struct.unpack_from("<d", x),
    "join": lambda x: b"".join([x, x]),
}
OTHERS: dict[str, Case] = {
    "plot": lambda x: drawn(lambda axes: axes.plot(x)),
    "hist": lambda x: drawn(lambda axes: axes.hist(x[:, 0])),
    "bar": lambda x: drawn(lambda axes: axes.bar(range(8), x[0])),
    "imshow": lambda x: drawn(lambda axes: axes.imshow(x)),
    "boxplot": lambda x: drawn(lambda axes: axes.boxplot(x)),
    "seaborn.histplot": lambda x: drawn(lambda axes: seaborn().histplot(x[:, 0], ax=axes)),
    "h5py": through_hdf5,
    "zarr.array": lambda x: zarr().array(x)[...],
    "networkx": lambda x: networkx().from_numpy_array(np.asarray(x[:8] > 0)).number_of_edges(),
}


def values(result: Any) -> Any:
    """Returns what can be compared: arrays of numbers, and all else as it is."""
    if hasattr(result, "__array__"):
        return np.asarray(result)
    return result


def check(client: sc.Client, case: Case) -> None:
    expected = values(case(X))
    actual = values(case(client.put(X)))
    if isinstance(expected, str | bytes | None):
        assert actual == expected
    else:
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", PYTHON)
def test_python(client, name):
    check(client, PYTHON[name])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes define buffers from Python 3.12 on")
@pytest.mark.parametrize("name", BUFFERS)
def test_readers_of_buffers(client, name):
    check(client, BUFFERS[name])


@pytest.mark.parametrize("name", OTHERS)
def test_others(client, name):
    check(client, OTHERS[name])


def test_zarr_writes_a_file(client, tmp_path):
    path = os.fspath(tmp_path / "x.zarr")
    zarr().save(path, client.put(X))
    np.testing.assert_array_equal(zarr().load(path), X)


@rows(
    ("case", "error", "message"),
    [
        (lambda x: pillow().fromarray(x), AttributeError, r"pass array\.get\(\)"),
        (lambda x: special().jv(1, x), TypeError, r"pass array\.get\(\)"),
        (lambda x: pd().unique(x[:, 0]), TypeError, "got RemoteArray"),
        (lambda x: pd().factorize(x[:, 0]), TypeError, "got RemoteArray"),
        (lambda x: pd().Series(X[:, 0]).groupby(x[:, 0] > 0), TypeError, "RemoteArray"),
        (lambda x: sparse().diags(x[0]), ValueError, "Different number of diagonals and offsets"),
        (lambda x: pd().DataFrame(X)[x[:, 0] > 0], KeyError, "are in the"),
        (lambda x: pd().DataFrame(X) + x, ValueError, "RemoteArray"),
        (memoryview, (TypeError, BufferError), "a bytes-like object is required|use get"),
        (np.frombuffer, (TypeError, BufferError), "a bytes-like object is required|use get"),
    ],
)
def test_a_refusal_names_what_it_got_or_the_remedy(client, case, error, message):
    with pytest.raises(error, match=message):
        case(client.put(X))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes define buffers from Python 3.12 on")
def test_buffers_are_copies_that_cannot_be_written(client):
    h = client.put(X)
    with pytest.raises(TypeError, match="read-write"):
        io.BytesIO(bytes(9)).readinto(h)
    assert np.asarray(h).flags.writeable
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(h, copy=False)
    with sc.connect(client.address, implicit_get="error") as strict, pytest.raises(TypeError, match="implicit"):
        hashlib.sha256(strict.put(X))
