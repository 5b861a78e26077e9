"""Other libraries of the array API standard, with arrays on the mesh: xarray, SciPy and scikit-learn.

    python examples/other_libraries.py            starts a private server of 8 virtual devices
    python examples/other_libraries.py HOST:PORT  asks a server that runs already

SciPy and scikit-learn take such arrays where their array API support is on. The client refuses copies that a library
makes by the way, so every value below was computed on the mesh.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ["SCIPY_ARRAY_API"] = "1"  # SciPy reads it when it is imported

import numpy as np
import scipy.fft
import sklearn
import xarray as xr
from sklearn.decomposition import PCA

import shardcall as sc
from shardcall import P

MESH, ROWS = sc.Mesh(x=8), P("x", None)


def anomalies(client: sc.Client, size: int) -> dict[str, bool]:
    """Subtracts the mean of each station with xarray; returns what was checked."""
    values = np.random.default_rng(0).normal(size=(size, 12))
    here = xr.DataArray(values, dims=("time", "station"), coords={"time": np.arange(size)})
    there = here.copy(data=client.put(values, mesh=MESH, spec=ROWS))
    computed, expected = (item.sel(time=slice(1, None)) - item.mean("time") for item in (there, here))
    print(f"xarray: {computed.data}")
    return {
        "xarray: the result stays on the mesh": isinstance(computed.data, sc.RemoteArray),
        "xarray: NumPy's result": np.allclose(computed.data.get(), expected.data),
    }


def spectrum(client: sc.Client, size: int) -> dict[str, bool]:
    """Computes Fourier transforms with SciPy; returns what was checked."""
    values = np.random.default_rng(1).normal(size=(size, 64))
    computed = scipy.fft.rfft(client.put(values, mesh=MESH, spec=ROWS), axis=1)
    print(f"scipy.fft: {computed}")
    return {
        "scipy.fft: the result is sharded as x": computed.spec == ROWS,
        "scipy.fft: NumPy's result": np.allclose(computed.get(), np.fft.rfft(values, axis=1)),
    }


def components(client: sc.Client, size: int) -> dict[str, bool]:
    """Finds principal components with scikit-learn; returns what was checked."""
    random = np.random.default_rng(2)
    values = random.normal(size=(size, 3)) @ random.normal(size=(3, 16)) + 0.01 * random.normal(size=(size, 16))
    with sklearn.config_context(array_api_dispatch=True):
        computed = PCA(3, svd_solver="covariance_eigh").fit(client.put(values, mesh=MESH, spec=ROWS))
    expected = PCA(3, svd_solver="covariance_eigh").fit(values)
    print(f"scikit-learn: {computed.explained_variance_ratio_}")
    return {
        "PCA: the components stay on the mesh": isinstance(computed.components_, sc.RemoteArray),
        "PCA: NumPy's variances": np.allclose(computed.explained_variance_.get(), expected.explained_variance_),
        "PCA: NumPy's components": np.allclose(np.abs(computed.components_.get()), np.abs(expected.components_)),
    }


def main() -> int:
    """Runs the example; returns 0 if every check holds."""
    parser = argparse.ArgumentParser(description="Passes arrays on a mesh to other libraries.")
    parser.add_argument("address", nargs="?", help="a server, host:port; without it a private one is started")
    parser.add_argument("--size", type=int, default=4095, help="rows of the arrays (4095)")
    arguments = parser.parse_args()
    with (
        sc.connect(arguments.address, implicit_get="error")
        if arguments.address
        else sc.local(devices=8, implicit_get="error")
    ) as client:
        checks = {
            **anomalies(client, arguments.size),
            **spectrum(client, arguments.size),
            **components(client, arguments.size),
        }
    for what, holds in checks.items():
        print(f"{'yes' if holds else 'NO ':<4}{what}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
