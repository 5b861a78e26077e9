"""Every operator with every sort of operand, and methods and functions that return numbers."""

import numpy as np
import pytest
from end_to_end.numpy_calls import X, calls_of, check_call, same

import shardcall as sc

pytestmark = pytest.mark.long

OPERATORS = """
    x {+|-|*|/|//|%} {y|2|0.5|np.float32(2)|Y[0] + 3|[1.0, 2, 3, 4, 5, 6]}
    {2|0.5|np.float64(2)|Y} {+|-|*|/|//|%} x
    abs(x) ** {2|0.5|Y[0]|y}
    {2|2.5|np.float32(2)} ** abs(x)
    x @ {np.ones((6, 3))|np.ones(6)|y.T}
    {np.ones((4, 13))|np.ones(13)|Y.T} @ x
    i {&|^} {3|K[:1]|True|k}
    {3|K|np.int32(5)} {&|^} i
    i | {3|K[:1]|k}
    {3|K} | i
    k {<<|>>} {2|np.full(6, 3)|k}
    {2|np.int64(9)} {<<|>>} k
    x {<|<=|>|>=|==|!=} {y|0.5|Y[0]}
    {0.5|Y} {<|<=|>|>=|==|!=} x
    alias = x; x {+|-|*|/|//|%|**}= {y|2}
    alias = i; i {&|^|//|%}= {k|2}
    alias = i; i |= k
    alias = k; k {<<|>>}= {k|2}
    alias = i; i /= k
    """

METHODS = """
    x.{sum|prod|mean|var|std|max|min}(axis={None|0|(0, 1)|-1})
    x.{sum|prod|mean|var|std|max|min}(axis=1, keepdims=True)
    x.{argmax|argmin|cumsum|argsort}(1)
    mask.{any|all}(0)
    x.{clip(-0.5, 0.5)|round(2)|dot(X[0])|conj()|copy()|ravel()|flatten()|trace()|diagonal()|repeat(2)|tolist()}
    i.{round()|round(-1)}
    x[:1].squeeze()
    x.reshape(6, 13)
    x.reshape((-1, 3))
    x.take([1, 2], axis=1)
    np.{allclose|array_equal|array_equiv}({x|x[1:]|x + 1|x[:0]}, {X|X[1:]|X[0]})
    np.array_equal(holes, HOLES, equal_nan={True|False})
    np.{shape|ndim|size|iscomplexobj|isrealobj}(x)
    """


@pytest.mark.parametrize("keep", [None, False, True], ids=["on the mesh", "result", "kept result"])
def test_operators_with_every_operand(strict_client, keep):
    """Each with one of the three sorts of arrays."""
    for call in calls_of(OPERATORS)[[None, False, True].index(keep) :: 3]:
        check_call(strict_client, call, keep=keep)


@pytest.mark.parametrize("call", calls_of(METHODS))
def test_methods_and_descriptions(strict_client, call):
    check_call(strict_client, call)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (1, 1)])
def test_small_and_empty_arrays(strict_client, shape):
    x = np.full(shape, 2.0)
    h = strict_client.put(x)
    for ours, expected in ((h + 1, x + 1), (h.sum(), x.sum()), (np.sqrt(h), np.sqrt(x)), (h.T, x.T)):
        same(ours.get(), expected)
    if x.size == 1:
        assert float(h) == h.item() == 2.0
        assert int(h) == 2
        assert complex(h) == 2 + 0j
        assert bool(h) is True
    else:
        with pytest.raises(ValueError, match="without elements is ambiguous"):
            bool(h)


@pytest.mark.parametrize(
    "call",
    [
        np.histogram,
        lambda h, edges: np.linspace(edges, 9, 3),
        lambda h, edges: np.delete(h, edges.astype(int), 0),
        lambda h, edges: np.pad(h, np.astype(edges[:2], int)),
    ],
    ids=["edges of bins", "bounds of ranges", "indices that are left out", "widths"],
)
def test_arguments_that_are_copied_are_counted_or_refused(server, strict_client, call):
    edges = np.arange(3.0)
    with sc.connect(server.address) as client:
        result, expected = call(client.put(X), client.put(edges)), call(X, edges)
        assert client.statistics().implicit_gets == 1
        first, numpys = (result[0], expected[0]) if isinstance(result, tuple) else (result, expected)
        same(first.get(), numpys)
    with pytest.raises(TypeError, match=r"implicit_get='error'"):
        call(strict_client.put(X), strict_client.put(edges))
