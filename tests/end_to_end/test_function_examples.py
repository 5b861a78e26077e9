"""The example of every function runs, and has the result of NumPy's function of that name."""

from __future__ import annotations

from typing import Any

import numpy as np
from function_examples import run_example

import shardcall
from shardcall_core.functions.table import FUNCTIONS

OF_OTHER_ARGUMENTS = ("arange", "bincount", "eye", "flatnonzero", "full", "linspace", "put_along_axis")
"""Functions that take other arguments than NumPy's."""

OF_ANY_SIGN = ("eig", "eigh", "qr", "svd")
"""Functions whose vectors have any sign."""

ALWAYS_COMPLEX = ("eig", "eigvals")
"""Functions whose results are real in NumPy where the values are."""


def result_of_numpy(name: str) -> Any:
    """Returns the result of NumPy's function for the example of a function; None if NumPy has none."""
    module = next((module for module in (np, np.linalg, np.fft) if callable(getattr(module, name, None))), None)
    if module is None or name in OF_OTHER_ARGUMENTS:
        return None
    return eval(f"module.{name}({FUNCTIONS[name].example})", {"np": np, "module": module})


def test_examples_have_numpys_results(client: shardcall.Client) -> None:
    compared = 0
    for name in FUNCTIONS:
        results = run_example(client, name).arrays
        if (expected := result_of_numpy(name)) is None:
            continue
        compared += 1
        for ours, numpys in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
            pair = (np.abs(ours), np.abs(numpys)) if name in OF_ANY_SIGN else (ours, numpys)
            np.testing.assert_allclose(*pair, rtol=1e-6, atol=1e-12, err_msg=name)
            assert ours.dtype == np.asarray(numpys).dtype or name in ALWAYS_COMPLEX, name
    assert compared > 140
