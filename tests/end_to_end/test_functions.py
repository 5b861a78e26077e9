"""Each function that clients have, once: on the mesh (4, 2), of one type and an awkward size, compared with NumPy's.

The rows of the table of functions run by their examples, and the functions of `client.xp` that are no rows by the calls
below, of which those of a family that can be traced are one program.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from end_to_end.numpy_calls import MESH, Side, calls_of, compiled, same
from end_to_end.numpy_comparison import leaves
from function_examples import run_example

import shardcall as sc
from shardcall import P
from shardcall.namespace import Namespace
from shardcall_core.functions.reductions import REDUCTIONS
from shardcall_core.functions.table import FUNCTIONS

OF_OTHER_ARGUMENTS = ("arange", "bincount", "eye", "flatnonzero", "full", "linspace", "put_along_axis")
"""Rows that take other arguments than NumPy's functions."""

OF_ANY_SIGN = ("eig", "eigh", "qr", "svd")
"""Rows whose vectors have any sign."""

ALWAYS_COMPLEX = ("eig", "eigvals")
"""Rows whose results are real in NumPy where the values are."""

REPLICATED = {
    *REDUCTIONS,
    *("bincount", "collective_matmul", "diagonal", "lexsort", "take_at", "trace"),
    *("det", "eig", "eigh", "eigvals", "eigvalsh", "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals"),
}
"""Rows whose results every device has in full; others are sharded along their first axis."""

MOVED = {"broadcast_to", "expand_dims", "transpose"}
"""Rows whose results are sharded along their second axis, which is the first one of the operand."""

BY_BLOCKS = {"einsum", "matmul"}
"""Rows whose results are sharded along both axes, by both mesh axes."""

CALLS = {
    "elements": """
        xp.{acos|acosh|asin|asinh|atan|atanh|conj|fix|i0|isneginf|isposinf|isreal|iscomplex|sinc|spacing}(x)
        xp.{nan_to_num|round|unwrap|modf}(x)
        xp.{bitwise_count|bitwise_invert|bitwise_not}(i)
        xp.{bitwise_left_shift|bitwise_right_shift}(i, 2)
        xp.{pow|divmod|heaviside|isclose}(x, 2.0)
        xp.atan2(x, Y)
        xp.select([x > 1, x < 0], [x, Y], 0.5)
        xp.piecewise(x, [X < 0, X > 1], [lambda v: -v, 2])
        xp.choose(i % 2, [x, Y])
        xp.isin(i, [1, 2, -3])
        xp.{zeros_like|ones_like}(x)
        """,
    "sums": """
        xp.{median|nanmax|nanmean|nanmedian|nanmin|nanprod|nanstd|nansum|nanvar|nanargmax|nanargmin}(x, axis=0)
        xp.{average|count_nonzero|ptp|trapezoid}(x, axis=0)
        xp.{nancumsum|nancumprod|cumulative_sum|cumulative_prod}(x, axis=0)
        xp.{percentile|nanpercentile|quantile|nanquantile}(x, 0.5, axis=0)
        xp.apply_along_axis(lambda v: v.sum(), 0, x)
        xp.apply_over_axes(np.max, x, (0, 1))
        xp.{cov|corrcoef}(x, rowvar=False)
        xp.{histogram|histogram_bin_edges}(x, 5, (-2, 2))
        xp.histogram2d(v, W, 3)
        xp.histogramdd(x[:, :2], 3)
        xp.{digitize|ediff1d}(x, [-1, 0, 1.5])
        xp.{allclose|array_equal|array_equiv}(x, X)
        """,
    "products": """
        xp.{dot|inner|matvec}(x, Y[0])
        xp.{vecdot|vdot|cross}(x[:, :3], Y[:, 3:])
        xp.{outer|kron}(v, Y[0])
        xp.tensordot(x, Y.T, 1)
        xp.vecmat(v, Y)
        xp.correlate(v, W[:4])
        """,
    "shapes": """
        xp.{atleast_1d|atleast_2d|atleast_3d|fliplr|flipud|rot90|matrix_transpose|unstack|ravel|diagflat|diag}(x)
        xp.{hsplit|vsplit|array_split|split}(x, [1, 3])
        xp.dsplit(cube, [2])
        xp.{concat|hstack|vstack|dstack|column_stack}([x, Y])
        xp.block([[x], [Y]])
        xp.{append|broadcast_arrays}(x, Y[0])
        xp.resize(x, (7, 23))
        xp.permute_dims(cube, (2, 0, 1))
        xp.{moveaxis|swapaxes}(cube, 0, 2)
        xp.rollaxis(cube, 1)
        xp.meshgrid(v, W)
        xp.lib.stride_tricks.sliding_window_view(x, 3, axis=0)
        xp.pad(x, ((1, 2), (0, 3)), '{edge|linear_ramp|maximum|mean|median|minimum|reflect|symmetric|wrap}')
        xp.pad(x, ((15, 0), (2, 7)), '{reflect|symmetric}', reflect_type='odd')
        """,
    "methods of ufuncs": """
        np.{hypot|logaddexp|subtract}.reduce(x, axis=0)
        np.multiply.reduce(x, axis=1, initial=2.0, where=X > 0)
        np.{divide|add|maximum}.accumulate(x, axis=1)
        np.{add|hypot|maximum|subtract}.reduceat(x, [0, 9, 4, 12])
        np.{hypot|subtract}.outer(v, W[:3])
        [np.{add|maximum|hypot}.at(x, ([0, 3, 0], [1, 2, 1]), 2.5), x]
        """,
    "positions": """
        xp.{nonzero|argwhere|real_if_close|sort_complex|trim_zeros}(v)
        np.emath.{sqrt(x)|logn(2, x)}
        xp.{partition|argpartition}(v, 3)
        xp.compress(X[0] > 0, x, axis=1)
        xp.delete(x, [2], 0)
        xp.extract(x > 0, x)
        xp.insert(x, 3, 7.5, 0)
        xp.{unique|unique_all|unique_counts|unique_inverse}(i)
        xp.sort(xp.unique_values(i))
        xp.{union1d|intersect1d|setdiff1d|setxor1d}(i, [3, -2, 17])
        xp.ravel_multi_index((k, k), (9, 9))
        xp.unravel_index(k, (3, 4))
        xp.diag_indices_from(x[:6])
        xp.ix_(i[0], [1, 2])
        xp.packbits(mask, axis=1)
        xp.unpackbits(bytes, axis=1)
        """,
    "polynomials": """
        xp.{poly|roots|polyder|polyint}(v[:4])
        xp.{polyadd|polysub|polymul|polydiv|polyval}(v, W[:3])
        xp.polyfit(v, W, 1)
        xp.vander(v, 3)
        """,
    "creation and writes": """
        xp.{zeros|ones|identity|tri}(5)
        xp.{array|asarray|from_dlpack}(X)
        xp.geomspace(1, 256, 9)
        xp.logspace(0, 3, 7)
        xp.fromfunction(lambda i, j: i + 2 * j, (3, 4))
        xp.fft.{fftfreq|rfftfreq}(9, 0.5)
        [xp.copyto(x, Y), xp.put(x, [5, -1], 7.0), xp.place(x, X > 1, [1.0, 2]), xp.putmask(x, X < -1, Y), x]
        [xp.fill_diagonal(x, 7), x]
        """,
    "Fourier transforms": """
        xp.fft.{fft|fft2|fftn|fftshift|hfft|ifft|ifft2|ifftn|ifftshift|ihfft|irfft|irfft2|irfftn|rfft|rfft2|rfftn}(x)
        """,
    "linear algebra": """
        xp.linalg.{cholesky|eigh|eigvalsh}(squares @ squares.mT)
        xp.linalg.{cond|det|diagonal|inv|matrix_norm|matrix_rank|matrix_transpose|norm|pinv}(squares)
        xp.linalg.{slogdet|svdvals|trace|vector_norm}(squares)
        xp.linalg.{matmul|solve|vecdot}(squares, SQUARES[0])
        xp.linalg.{cross|outer}(x[0, :3], X[1, :3])
        xp.linalg.tensordot(x, Y.T, axes=1)
        xp.linalg.lstsq(squares[0], SQUARES[1])
        xp.linalg.matrix_power(squares, 3)
        xp.linalg.multi_dot([x, X.T, y])
        xp.linalg.tensorinv(put(np.eye(6).reshape(6, 2, 3)), 1)
        xp.linalg.tensorsolve(put(np.eye(6).reshape(2, 3, 6)), Y[:2, :3])
        xp.sort(xp.linalg.eigvals(squares @ squares.mT).real)
        """,
    "SciPy's": """
        special.{erf|expit|gammaln|logsumexp}(x)
        ndimage.{convolve|correlate}(x, np.ones((3, 3)))
        ndimage.{gaussian_filter|uniform_filter}(x, 2)
        linalg.solve_triangular(squares, SQUARES[0])
        linalg.cho_solve(linalg.cho_factor(squares[0] @ squares[0].T), SQUARES[1])
        """,
}

UNTRACED = {
    *("roots", "polymul", "polydiv", "polyfit", "nonzero", "argwhere", "trim_zeros", "extract", "sqrt", "logn"),
    *("unique", "unique_all", "unique_counts", "unique_inverse", "unique_values"),
    *("union1d", "intersect1d", "setdiff1d", "setxor1d", "ravel_multi_index", "unravel_index", "choose"),
    *("nanargmax", "nanargmin", "histogram2d", "histogramdd", "allclose", "array_equal", "array_equiv"),
    *("lstsq", "eigvals"),
}
"""Functions whose results or errors depend on values, and that are not traced for that."""

OTHERS = {
    "xp.cond(x[0, 0] > 9, lambda u: u, lambda u: -u, x)": "-X",
    "xp.fori_loop(0, 3, lambda n, u: u + n, x)": "X + 3",
    "xp.while_loop(lambda u: u.max() < 99, lambda u: u + 99, x)": "X + 99",
    "xp.scan(lambda u, row: (u + row, u.sum()), x[0] * 0, x)[0]": "X.sum(0)",
    "xp.update(x, (slice(1, 3),), (7.0,), 'set')": "np.concatenate([X[:1], np.full((2, 6), 7.0), X[3:]])",
    "xp.softmax(x, 1)": "np.exp(X) / np.exp(X).sum(1, keepdims=True)",
    "xp.log_softmax(x, 1)": "np.log(np.exp(X) / np.exp(X).sum(1, keepdims=True))",
    "xp.logsumexp(x, 1)": "np.log(np.exp(X).sum(1))",
    "xp.with_spec(x, ('b', 'a'))": "X",
    "xp.empty((3, 0))": "np.empty((3, 0))",
    "xp.empty_like(x).shape": "X.shape",
    "(xp.finfo('f4').max, xp.iinfo('i1').max, xp.isdtype(x.dtype, 'real floating'))": "(np.finfo('f4').max, 127, True)",
    "(xp.ndim(x), xp.shape(x), xp.size(x), xp.iscomplexobj(x), xp.isrealobj(x))": "(2, (13, 6), 78, False, True)",
    "(xp.can_cast('i1', 'i2'), xp.broadcast_shapes((3, 1), (4,)))": "(True, (3, 4))",
    "xp.result_type(x, 'f4')": "np.dtype('f8')",
}
"""Calls of functions that NumPy does not have, or that return no arrays, and what they return."""


def result_of_numpy(name: str) -> Any:
    """Returns the result of NumPy's function for the example of a row; None if NumPy has none."""
    module = next((module for module in (np, np.linalg, np.fft) if callable(getattr(module, name, None))), None)
    if module is None or name in OF_OTHER_ARGUMENTS:
        return None
    return eval(f"module.{name}({FUNCTIONS[name].example})", {"np": np, "module": module})


def expected_spec(name: str, ndim: int) -> P:
    """Returns the layout of the results of the example of a row."""
    if name in REPLICATED:
        return P(*[None] * ndim)
    if name in BY_BLOCKS:
        return P("a", "b")
    entries = [None, ("a", "b")] if name in MOVED else [("a", "b")]
    return P(*[*entries, *[None] * ndim][:ndim])


def compare(actual: Any, expected: Any, calls: Sequence[str]) -> None:
    """Compares the results of each of several calls."""
    assert len(actual) == len(expected) == len(calls)
    for ours, numpys, call in zip(actual, expected, calls, strict=True):
        for one, other in zip(leaves(ours), leaves(numpys), strict=True):
            same(one.get() if isinstance(one, sc.RemoteArray) else one, other, text=call)


def traced_of(client: sc.Client, text: str) -> tuple[sc.TracedFunction, list[Any]]:
    """Returns a traced function of the arrays that a text names, and those arrays."""
    code = compiled(text)
    side = Side(code, client)
    operands = side.operands()

    def function(*arrays: Any) -> Any:
        return eval(code, {**side.names, **dict(zip(operands, arrays, strict=True))})

    return client.jit(function), [*operands.values()]


def is_traced(client: sc.Client, call: str) -> bool:
    """Returns whether a call can be traced: whether sizes, types and errors of it depend on no values."""
    function, operands = traced_of(client, call)
    try:
        function.trace(*operands)
    except sc.TracingError:
        return False
    return True


def test_examples_of_rows_have_numpys_results(client: sc.Client) -> None:
    strategies = {kernel.name: {strategy.name for strategy in kernel.strategies} for kernel in client.kernels()}
    compared = 0
    for name in FUNCTIONS:
        strategy = "gspmd" if "gspmd" in strategies[name] else "auto"
        mesh = {"x": 8} if name == "collective_matmul" else MESH  # whose example names the axis
        result = run_example(client, name, mesh=mesh, strategy=strategy)
        for placed in result.plan.results:
            assert placed.spec == expected_spec(name, len(placed.spec)), name
        if (expected := result_of_numpy(name)) is None:
            continue
        compared += 1
        numpys = expected if isinstance(expected, tuple) else (expected,)
        for ours, other in zip(result.arrays, numpys, strict=True):
            pair = (np.abs(ours), np.abs(other)) if name in OF_ANY_SIGN else (ours, other)
            np.testing.assert_allclose(*pair, rtol=1e-6, atol=1e-12, err_msg=name)
            assert ours.dtype == np.asarray(other).dtype or name in ALWAYS_COMPLEX, name
    assert compared > 140


@pytest.mark.parametrize("family", CALLS)
def test_calls_of_the_namespace_have_numpys_results(strict_client: sc.Client, family: str) -> None:
    calls = calls_of(CALLS[family])
    by_trace = {call: is_traced(strict_client, call) for call in calls}
    assert {call: not UNTRACED.intersection(re.findall(r"\w+(?=\()", call)) for call in calls} == by_trace
    traced, others = ([call for call in calls if by_trace[call] == which] for which in (True, False))
    function, operands = traced_of(strict_client, f"[{', '.join(traced)}]")
    compare(function(*operands), Side(compiled(f"[{', '.join(traced)}]")).result(), traced)
    code = compiled(f"[{', '.join(others)}]")
    compare(Side(code, strict_client).result(), Side(code).result(), others)


def test_functions_that_are_not_numpys_return_what_they_say(strict_client: sc.Client) -> None:
    for call, expected in OTHERS.items():
        compare([Side(compiled(call), strict_client).result()], [Side(compiled(expected)).result()], [call])


def test_every_function_of_the_namespaces_is_called() -> None:
    texts = " ".join([*(call for text in CALLS.values() for call in calls_of(text)), *OTHERS])
    called = set(
        re.findall(r"(?:xp|xp\.\w+|np\.emath|special|ndimage|linalg)\.(?:lib\.stride_tricks\.)?(\w+)\(", texts)
    )
    xp: Any = Namespace(None)
    parts = (xp.emath, xp.fft, xp.linalg, xp.special, xp.ndimage)
    names = set(xp.function_names).union(*({name for name in dir(part) if name[0] != "_"} for part in parts))
    assert names - FUNCTIONS.keys() - called == {"emath", "lib", "linalg", "special"}
