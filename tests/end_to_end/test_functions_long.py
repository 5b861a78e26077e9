"""Families of NumPy's functions that one traced function calls."""

import pytest
from end_to_end.numpy_calls import Side, calls_of, compiled
from end_to_end.test_functions import compare, traced_of

import shardcall as sc

pytestmark = pytest.mark.long

TRACED = {
    "functions of functions": """
        np.apply_along_axis(lambda v: v / v.max(), 1, x)
        np.piecewise(x, [x < 0], [np.abs, 1])
        np.apply_over_axes(np.max, x, (0, 1))
        """,
    "bits and parts of numbers": """
        [np.spacing(x), np.i0(x), np.bitwise_count(np.sign(x).astype(int) * 7), *np.frexp(x), np.ldexp(x, 3)]
        [np.isreal(x), np.packbits(x > 0, axis=1), np.unpackbits(np.packbits(x > 0))]
        """,
    "polynomials": """
        [np.polyval(i[0, :3], v), np.polyadd(i[0, :3], [1.0, 2]), np.polyder(np.polyint(i[0, :3])), np.vander(v, 3)]
        """,
    "positions": """
        [np.choose(i, [i, i + 1], mode='wrap'), np.ravel_multi_index((i, i), (9, 9), mode='clip'), *np.ix_(i[0], i[1])]
        [np.block([[i], [i]]), np.correlate(i[0], i[1], 'full'), *np.diag_indices_from(i[:6, :6])]
        """,
    "padding": """
        np.pad(np.pad(x, 1, mode='mean'), (1, 2), constant_values=(1, 2))
        np.pad(x[0, 0], 0, mode='edge')
        """,
    "sorts": """
        [np.lexsort((k[0], -k[0])), np.lexsort((k[0], k[0] > 3)), np.searchsorted(np.sort(v * 1j), x * 1j)]
        [np.argsort(x[0, 0]), np.cumulative_sum(x[0, 0], axis=0, include_initial=True)]
        np.quantile(x, 0.3, axis=0, weights=WEIGHTS, method='inverted_cdf')
        [np.var(x, mean=x.mean(0, keepdims=True)), np.take(x, [99, -5], 0, mode='wrap')]
        """,
    "methods of ufuncs": """
        [np.divide.reduce(k, 1), np.add.reduceat(np.maximum.accumulate(k, 1), [0, 5, 2]), np.gcd.reduce(k)]
        np.multiply.outer(k[0], k[1])
        [np.subtract.at(t := k + 0, AT, 1), t]
        """,
}
"""Calls that one traced function makes of the arrays that they name."""

DEPENDENT_ON_VALUES = """
    np.real_if_close(c)
    np.{union1d|intersect1d|setdiff1d|setxor1d}(i, k)
    np.linalg.eigvals(squares)
    """
"""Calls whose results have sizes or types that depend on values, and which are not traced for that."""


@pytest.mark.parametrize("family", TRACED)
def test_a_traced_function_makes_the_calls_of_a_family(strict_client: sc.Client, family: str) -> None:
    calls = calls_of(TRACED[family])
    text = f"[{', '.join(calls)}]"
    traced, operands = traced_of(strict_client, text)
    compare(traced(*operands), Side(compiled(text)).result(), calls)


@pytest.mark.parametrize("call", calls_of(DEPENDENT_ON_VALUES))
def test_results_that_depend_on_values_are_not_traced(strict_client: sc.Client, call: str) -> None:
    traced, operands = traced_of(strict_client, call)
    with pytest.raises(sc.TracingError):
        traced.trace(*operands)
