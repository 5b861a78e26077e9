"""Results of functions of arrays on the mesh that take long: copies, layouts, programs that are shared, every bit."""

import numpy as np
import pytest
from end_to_end.numpy_calls import ARRAYS, MESH, X, calls_of, check_call, same

import shardcall as sc
from shardcall import P
from shardcall.namespace import Namespace

pytestmark = pytest.mark.long

RANDOM = np.random.default_rng(7)

COPIES = """
    t = xp.array(v{|, copy=True|, copy=None|, copy=False|, dtype=float})
    t = xp.asarray(v{|, copy=True})
    t = np.array(v, like=v{|, copy=False})
    t = np.astype(v, float{|, copy=False})
    t = np.{asarray(v, like=v, copy=True)|copy(v)|positive(v)|atleast_1d(v)|reshape(v, 13, copy=True)}
    t = v.flatten()
    """


EXTREMES = """
    xp.linspace(np.float16(0.1), np.float16(777), 5000)
    xp.linspace(np.float16(0), np.float16(3e-7), 10, endpoint=False)
    xp.arange({9, 2, -0.7|0.1, 500, 0.1, dtype=np.float32})
    np.lexsort((W % 3, put(2**53 + np.arange(13) % 2)))
    np.frexp({ends|put(X * 1e-300)})
    np.unique(put(np.array([1, np.nan, 2, -0.0, np.nan, 1, 0.0])), True, True, True)
    np.{union1d|setxor1d}(infinite, [np.nan, 1.0])
    np.trim_zeros(put(np.array([-0.0, np.nan, 1, 0])))
    np.i0({put(np.linspace(-700, 700, 4096))|put(np.array([0, 8, -8, np.nextafter(8, 9), np.inf, np.nan, 800]))})
    np.nan_to_num(put(np.array([complex(3, np.nan), complex(np.inf, 1)])), nan=np.nan, posinf=np.inf)
    np.round({put(np.array([complex(3, np.nan), complex(1.26, -np.inf)])), 1|infinite, 400|put(C * 1e307), -1})
    np.round(put(np.array({[15, 127, -5], 'i1'|[25, 2**60], 'u8'})), -1)
    np.array_equal(put(2**53 + np.arange(8) % 2), 2**53 + np.arange(8)[::-1] % 2, equal_nan=True)
    np.polydiv(put(np.array([1e17, 1.0, 2])), [3.0, 1])
    np.cross(infinite[{1:3], infinite[:3|:3], infinite[1:3}])
    np.quantile(infinite[2:3], [0, 1])
    np.subtract.reduce(put(np.full((3, 2), 1e308)), initial=0)
    special.expit({ends|put(np.linspace(-90, 90, 31).astype('f4'))|put(np.arange(-3, 4, dtype=np.int8))})
    special.erf({put(np.linspace(-7, 7, 4096))|put(X.astype('f2'))|put(X[:0])})
    special.gammaln({put(np.linspace(0.01, 200, 99).astype('f4'))|put(np.arange(9))|put(np.array(0.5))})
    special.logsumexp(x, b=[1, -1, 2, 0, 0, 1], keepdims=True, return_sign=True)
    special.logsumexp(put(np.array([[1.0, -np.inf, 1000.0], [-np.inf] * 3])), 1{|, b=2.0, keepdims=True})
    ndimage.{convolve|correlate}(put(np.append(V, np.inf)), [1.0, 0, 2, 1e-20, 1])
    ndimage.convolve(infinite, np.zeros(3))
    ndimage.correlate(x, X[:3, :2], mode='{reflect|mirror|nearest|wrap|constant}', cval=2.5, origin=(1, -1))
    ndimage.uniform_filter({bytes, 4|many, 7|x, 5, origin=(-2, 1)})
    ndimage.gaussian_filter(cube, 1, order=1, axes=(1,), radius=2)
    linalg.solve_triangular(put(SQUARES[0] + 1j * SQUARES[1]), SQUARES[1], trans='C', lower=True)
    """
"""Calls with numbers at the ends of their types; what other arguments make is compared by random programs."""


@pytest.mark.parametrize("call", calls_of(EXTREMES))
def test_numbers_at_the_ends_of_types_are_computed_as_by_numpy(strict_client, call):
    check_call(strict_client, call)


@pytest.mark.parametrize("copied", calls_of(COPIES))
def test_copies_keep_their_values(strict_client, copied):
    check_call(strict_client, f"{copied}; v[...] = 5; u = t + 0; t[0] = 7")


LAYOUTS = [
    (MESH, P("a", "b")),
    (MESH, P("b", "a")),
    (MESH, P("a", None)),
    (MESH, P(None, "b")),
    (MESH, P(None, "a")),
    (MESH, P(("a", "b"), None)),
    (sc.Mesh(a=1), P(None, None)),
]
LEFT, RIGHT = RANDOM.normal(size=(2, 18, 10))  # no mesh axis divides them all
FACTOR = RANDOM.normal(size=(10, 6))


def both(rows, columns):
    return rows, columns


FAMILIES = {  # the function, NumPy's, and the entries of the result's spec; None where the kernel chooses it
    "elementwise": (lambda xp, x, y: xp.sin(x), np.sin, both),
    "beside an uncommitted one": (lambda xp, x, y: x * y + 1, lambda x: x * RIGHT + 1, both),
    "transpose": (lambda xp, x, y: x.T, lambda x: x.T, lambda rows, columns: (columns, rows)),
    "reduction": (lambda xp, x, y: x.sum(axis=0), lambda x: x.sum(0), lambda rows, columns: (columns,)),
    "running sum": (lambda xp, x, y: x.cumsum(axis=0), lambda x: x.cumsum(0), both),
    "stencil": (lambda xp, x, y: np.roll(x, 1, 0) - x, lambda x: np.roll(x, 1, 0) - x, both),
    "slice": (lambda xp, x, y: x[1:-1, 1:], lambda x: x[1:-1, 1:], both),
    "join": (lambda xp, x, y: xp.concatenate([x, y]), lambda x: np.concatenate([x, RIGHT]), both),
    "sort": (lambda xp, x, y: xp.sort(x, axis=0), lambda x: np.sort(x, axis=0), both),
    "update": (lambda xp, x, y: x.at[3:5].set(y[:2]), lambda x: np.concatenate([x[:3], RIGHT[:2], x[5:]]), both),
    "product": (lambda xp, x, y: x @ FACTOR, lambda x: x @ FACTOR, None),
    "random": (lambda xp, x, y: x + xp.uniform(7, shape=x.shape), None, both),
    "constraint": (
        lambda xp, x, y: xp.add(x, 1, out_spec=P("b", "a")),
        lambda x: x + 1,
        lambda rows, columns: ("b", "a"),
    ),
}


@pytest.mark.parametrize("placed", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_results_are_placed_as_the_operand(strict_client, name, placed):
    function, numpys, entries = FAMILIES[name]
    mesh, spec = placed
    if name == "constraint" and mesh.size == 1:
        return  # which has no axis b
    x, y = strict_client.put(LEFT, mesh=mesh, spec=spec), strict_client.xp.asarray(RIGHT)
    result = function(strict_client.xp, x, y)
    if numpys is None:
        expected = LEFT + strict_client.uniform(7, shape=LEFT.shape, mesh=sc.Mesh(a=1)).array
    else:
        expected = numpys(LEFT)
    np.testing.assert_allclose(result.get(), expected, rtol=1e-5, atol=1e-12)
    assert result.committed
    assert result.mesh.axes == mesh.axes
    if entries is not None:
        assert result.spec == P(*entries(*x.spec))
        of_x = strict_client.put(np.zeros(result.shape), mesh=mesh, spec=result.spec)
        assert str(result.visualize()).splitlines()[1:] == str(of_x.visualize()).splitlines()[1:]
        assert result.blocks() == of_x.blocks()


def test_meshes_and_specs_decide_where_arrays_are_created(strict_client):
    xp = strict_client.xp
    for x in (xp.zeros((9, 5), mesh=MESH), xp.arange(9, mesh=MESH), xp.eye(9, 5, mesh=MESH), xp.asarray(X, mesh=MESH)):
        assert x.committed
        assert (x.mesh.axes, x.spec[0]) == (MESH.axes, ("a", "b"))
    x = xp.linspace(0, 1, 11, spec=P("x"))
    assert x.committed
    assert (x.mesh.size, x.spec) == (8, P("x"))
    assert xp.ones((4, 6), mesh=MESH, spec=P(None, "b")).spec == P(None, "b")
    assert not xp.zeros(5).committed


def test_functions_of_subnamespaces_take_options(strict_client):
    h = strict_client.put(X, mesh=sc.Mesh(x=2))
    spectrum = strict_client.xp.fft.fft2(h, out_spec=P(None, "x"))
    assert spectrum.spec == P(None, "x")
    same(spectrum.get(), np.fft.fft2(X))
    assert strict_client.xp.linalg.qr(X[3:9], mesh=sc.Mesh(x=2)).Q.mesh.axes == (("x", 2),)
    assert strict_client.xp.searchsorted(np.arange(9.0), h, out_spec=P()).spec == P(None, None)


def test_masks_with_counts_that_are_close_share_programs(strict_client, monkeypatch):
    lengths, call = [], Namespace.call

    def noted(self, name, *operands, **arguments):
        lengths.append(arguments.get("size"))
        return call(self, name, *operands, **arguments)

    monkeypatch.setattr(Namespace, "call", noted)
    h = strict_client.put(np.arange(4096), mesh=sc.Mesh(x=8))
    for count in (1153, 1280, 0):
        np.testing.assert_array_equal(h[h < count].get(), np.arange(count))
    assert [length for length in lengths if length is not None] == [2048, 2048, 0]


def test_filters_exchange_rows_with_neighbours_and_nothing_is_gathered(strict_client):
    h = strict_client.put(np.zeros((512, 64)), mesh=sc.Mesh(x=8), spec=P("x", None))  # small ones are gathered
    for function in (
        lambda h: strict_client.xp.ndimage.gaussian_filter(h, 1),
        lambda h: strict_client.xp.ndimage.convolve(h, np.ones((3, 3)), mode="wrap"),
    ):
        plan = strict_client.jit(function).plan(h)
        assert "all-gather" not in str(plan)
        assert "collective-permute" in str(plan)
        assert plan.results[0].spec == P("x", None)


def test_eigenvalues_of_general_matrices_are_real_where_they_can_be(strict_client):
    values, vectors = np.linalg.eig(strict_client.put(np.diag(np.arange(5.0)), mesh=sc.Mesh(x=8)))
    assert values.dtype == vectors.dtype == np.float64
    same(np.sort(values).get(), np.arange(5.0))
    assert np.linalg.eigvals(strict_client.put(np.array([[0, 1.0], [-1, 0]]))).dtype == np.complex128


def test_a_poor_fit_warns(strict_client):
    with pytest.warns(np.exceptions.RankWarning):
        np.polyfit(strict_client.put(np.ones(5), mesh=sc.Mesh(x=8)), np.ones(5), 1)


def test_exponentials_of_infinities_are_divided_by_their_sums(strict_client):
    xp, x = strict_client.xp, np.array([[1.0, -np.inf, 1000.0]])
    h = strict_client.put(x, mesh=sc.Mesh(x=2))
    same(xp.softmax(h, 1).get(), np.array([[0.0, 0, 1]]))
    same(xp.log_softmax(h[0]).get(), np.array([-999.0, -np.inf, 0]))
    assert xp.logsumexp(strict_client.put(np.array([0, 1], np.float32)), b=2.0).dtype == np.float32


def test_i0_of_zero_is_exactly_one(strict_client):
    for dtype in (np.float16, np.float32, np.float64, np.int8):
        result = np.i0(strict_client.put(np.zeros(9, dtype), mesh=MESH)).get()
        np.testing.assert_array_equal(result, np.ones_like(np.i0(np.zeros(9, dtype))), strict=True)


EDGES = np.array([0, -0.0, 1, -1, -0.5, 1.5, -1.5, np.inf, -np.inf, np.nan, 65504, -65504])


def edges(dtype):
    """Numbers of every size of a type, and the first, the smallest and the last ones."""
    info = np.finfo(dtype)
    with np.errstate(over="ignore"):  # some of the numbers are infinite
        sizes = np.ldexp(RANDOM.normal(size=4096).astype(dtype), RANDOM.integers(info.minexp - 30, info.maxexp, 4096))
    ends = np.array([info.max, info.tiny, info.smallest_subnormal], dtype)
    return np.concatenate([sizes, EDGES.astype(dtype), ends, -ends])


def test_spacings_are_numpys_bit_for_bit(strict_client):
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    integers = ARRAYS["I"].astype(np.int16)
    for x in (halves, edges(np.float32), edges(np.float64), integers, integers > 0, X[:0], np.array(-3.0)):
        with np.errstate(all="ignore"):
            expected = np.spacing(x)
        result = np.spacing(strict_client.put(x, mesh=MESH)).get()
        np.testing.assert_array_equal(result, expected, strict=True)
        assert ((result == 0) == (expected == 0)).all()  # also if this process took subnormal numbers for 0
