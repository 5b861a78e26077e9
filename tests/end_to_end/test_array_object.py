"""The array object of the Python array API standard 2024.12, with NumPy's operators: `RemoteArray`, and `Result`."""

import itertools
import operator

import ml_dtypes
import numpy as np
import pytest
from end_to_end.numpy_calls import ARRAYS, AXES, MESH, Side, X, check_call, compiled, rows_of, same
from rows import rows

import shardcall as sc

K = ARRAYS["K"]


@pytest.fixture
def h(strict_client):
    return strict_client.put(X, mesh=MESH, spec=sc.P("a", "b"))


@pytest.fixture
def copying(server):
    """A client that copies arrays by itself, and whose copies no other test counts."""
    with sc.connect(server.address) as client:
        yield client


OPERATORS = """
    [x + y, 2 - x, x * Y[0], Y / x, x // 0.5, x % [1.0, 2, 3, 4, 5, 6], abs(x) ** 2, 2.0**x]
    [ends**0.5, np.power(ends, 0.5), ends.astype('f2') ** 0.5, 1 / put(np.array([-0.0, 4])) ** np.float64(0.5)]
    [x @ y.T, np.ones(13) @ x, i & 3, 3 | i, K ^ i, k << 2, 9 >> k, -x, +x, ~i, abs(i)]
    [x < y, 0.5 <= x, x > Y, x >= Y[0], x == y, X != x, x == None, x != None, x == 'a']
    [*divmod(x, 4), *divmod(7, k)]
    x += y; i &= 3; x[0] = 0; x[x > 1] = -1; x[[1, 2], 3] += 5
    [np.sin(x), np.add(x, x), np.mean(x, axis=0), np.concatenate([x, x]), np.float64(2) * x, X + x]
    [x.T, x.mT, x.ndim, x.shape, x.size, x.real, x.imag, len(x), X[0, 0] in x, 1e9 in x]
    [x.sum(0), x.astype('f4'), x[x > 0], x.round(1), *x.nonzero(), x.compress(X[0] > 0, 1), *reversed(x)]
    [bool(x[0, 0]), int(i[0, 0]), float(x[0, 0]), complex(x[0, 0]), np.arange(9)[k[0, 0]], x[0, 0].item()]
    """


@pytest.mark.parametrize("keep", [None, False, True], ids=["on the mesh", "result", "kept result"])
def test_operators_and_attributes_are_numpys(strict_client, keep):
    for row in rows_of(OPERATORS):
        check_call(strict_client, row, keep=keep)


ARITHMETIC = ("add", "subtract", "multiply", "divide", "power", "maximum")


def test_python_numbers_take_the_arrays_type(strict_client):
    for dtype in ("float32", "float16", "int8", "uint8", "complex64", ml_dtypes.bfloat16):
        x = np.arange(1, 7).astype(dtype)
        array = strict_client.put(x, mesh=sc.Mesh(x=2))
        assert (array + 1).dtype == (x + 1).dtype == x.dtype
        for power in (2, 2.5, 0.5):
            assert (array**power).dtype == (x**power).dtype
        assert (2**array).dtype == (2**x).dtype
        assert (array * np.float64(2)).dtype == (x * np.float64(2)).dtype
        assert (np.float64(2) * array).dtype == (np.float64(2) * x).dtype
        for name, number in itertools.product(ARITHMETIC, (2, 2.5, 0.5)):
            function = getattr(np, name)
            expected = [function(x, number).dtype, function(number, x).dtype]
            for functions in (np, strict_client.xp):
                function = getattr(functions, name)
                assert [function(array, number).dtype, function(number, array).dtype] == expected, (name, dtype, number)
    with pytest.raises(sc.OperandOverflowError):
        strict_client.put(np.arange(3, dtype=np.int8)) + 300


@pytest.mark.parametrize("value", [np.float64(1e300), np.int64(3), np.ones(6)])
def test_operators_that_assign_keep_the_type_as_numpy_does(strict_client, value):
    x = X.astype(np.float32)
    array = strict_client.put(x)
    with np.errstate(over="ignore"):
        x += value
    array += value
    same(array.get(), x)


def test_values_of_arrays_with_more_elements_are_not_fetched(h):
    with pytest.raises(ValueError, match="ambiguous; use any"):
        bool(h)
    for convert in (float, int, complex):
        with pytest.raises(TypeError, match=r"shape \(13, 6\) cannot be converted"):
            convert(h)
    with pytest.raises(ValueError, match="not one element; use get"):
        h.item()
    with pytest.raises(TypeError):
        operator.index(h)


def test_what_is_no_array_is_refused(strict_client, h):
    with pytest.raises(TypeError):
        operator.index(strict_client.put(1.5))
    with pytest.raises(TypeError, match="unhashable"):
        hash(h)
    with pytest.raises(TypeError, match="order='F' and arrays on the mesh are in row-major order"):
        h.astype("f4", order="F")
    with pytest.raises(TypeError, match="unsupported operand"):
        h + "a"
    with pytest.raises(TypeError, match="unsupported operand"):
        None + h


def test_results_go_to_arrays_of_this_process(copying, h):
    x = X.copy()
    y = x
    with pytest.raises(TypeError, match="implicit_get='error'"):
        x += h
    on_mesh = copying.put(X, mesh=MESH)
    x += on_mesh
    assert x is y
    np.testing.assert_array_equal(x, 2 * X)
    into = np.empty(6)
    assert np.sum(on_mesh, axis=0, out=into) is into
    np.testing.assert_allclose(into, X.sum(0))
    with pytest.raises(TypeError, match="Cannot cast"):
        np.add(on_mesh, 1, out=np.empty(X.shape, int))


def test_ufuncs_compute_in_the_type_of_their_results(strict_client):
    for row in (
        "np.add(x, 1, dtype='f4')",
        "np.divide(i, [3] * 6, dtype='f4')",
        "np.equal(i, 3, dtype=bool)",
        "np.add(x, 1, dtype='i4', casting='unsafe')",
        "np.add(x, 1, dtype='i4')",
        "np.add(i, 300, dtype='i1')",
    ):
        check_call(strict_client, row)


def test_copies_by_numpy_are_counted_or_refused(server, copying, h):
    with pytest.raises(TypeError, match=r"implicit_get='error'.*array\.get\(\)"):
        np.asarray(h)
    array = copying.put(X)
    assert copying.statistics().implicit_gets == 0
    np.asarray(array)
    array.get()
    assert copying.statistics().implicit_gets == 1
    assert copying.statistics().implicit_get_bytes == X.nbytes
    with pytest.raises(sc.InvalidParameterError, match="implicit_get is 'no'"):
        sc.connect(server.address, implicit_get="no")


def test_dlpack_copies(copying, h):
    array = copying.put(X)
    assert array.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(array), X)
    assert copying.statistics().implicit_gets == 1
    with pytest.raises(BufferError, match="DLPack has a copy"):
        np.from_dlpack(array, copy=False)
    with pytest.raises(BufferError, match="the values are on the mesh"):
        array.__dlpack__(copy=False)
    with pytest.raises(TypeError, match="implicit_get='error'"):
        np.from_dlpack(h)


@pytest.mark.parametrize("keep", [None, False, True], ids=["on the mesh", "result", "kept result"])
def test_the_device_and_the_namespace(strict_client, keep):
    ours = Side(compiled("x"), strict_client, AXES, keep).result()
    assert isinstance(hash(ours.device), int)
    same(strict_client.xp.asarray(ours.to_device(ours.device)).get(), X)
    same(strict_client.xp.asarray(ours.__array_namespace__(api_version="2024.12").sum(ours)).get(), X.sum())
    assert ours.__dlpack_device__() == (1, 0)
    with pytest.raises(ValueError, match="stream"):
        ours.to_device(ours.device, stream=3)


def test_python_protocols(strict_client, h):
    for ours, expected in zip(list(h), list(X), strict=True):
        same(ours.get(), expected)
    same(round(h, 1).get(), X.round(1))
    assert format(h) == str(h)
    with pytest.raises(TypeError, match=r"format '.2f' is for one number"):
        format(h, ".2f")
    assert [10, 20, 30][strict_client.put(np.int8(2))] == 30


@pytest.mark.parametrize("name", ["byteswap", "dump", "getfield", "tofile", "ctypes", "data"])
def test_attributes_that_need_the_values_name_get(h, name):
    with pytest.raises(AttributeError, match=rf"'RemoteArray' object has no attribute '{name}'; .* get\(\)\.{name},"):
        getattr(h, name)
    assert not hasattr(h, "no_such")


@rows(
    ("name", "says"),
    [
        ("sharding", "use mesh and spec"),
        ("block_until_ready", r"get\(\) waits for the values, and client.synchronize\(\) for all calls"),
        ("addressable_shards", r"blocks has the position of each device's part, and get\(\) a copy of all values"),
    ],
)
def test_attributes_of_arrays_of_jax_name_what_to_use(h, name, says):
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; {says}$"):
        getattr(h, name)


def test_functions_of_jax_name_what_to_use(strict_client, h):
    jax = pytest.importorskip("jax")
    deeds = (
        lambda: jax.numpy.sin(h),
        lambda: jax.numpy.ones(X.shape) + h,
        lambda: jax.jit(lambda x: x + 1)(h),
        lambda: strict_client.jit(jax.numpy.sin)(h),
    )
    for deed in deeds:
        with pytest.raises(sc.InvalidOperandError, match=r"^a function of JAX takes no arrays on the mesh: use NumPy"):
            deed()


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
