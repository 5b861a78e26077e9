"""Methods of arrays with the arguments of NumPy's, and functions of NumPy that describe and show arrays."""

import inspect
import io

import numpy as np
import pytest

import shardcall as sc
from shardcall._src.device_arrays import row_blocks

X = np.random.default_rng(4).normal(size=(16, 4))
K = (np.arange(64, dtype=np.int8) * 37 % 23).reshape(16, 4)
Z = X[:, :2] + 1j * X[:, 2:]
ARRAYS = {"x": X, "k": K, "z": Z, "b": X > 0, "v": X[:, 0], "s": X[0, 0], "f": X.astype(np.float32)}
MESH = sc.Mesh(x=8)


@pytest.fixture(scope="module")
def on(client):
    """The arrays on the mesh, by name."""
    return {
        name: client.put(x, mesh=MESH) if x.ndim else client.put(x, mesh=MESH, spec=sc.P())
        for name, x in ARRAYS.items()
    }


@pytest.fixture
def copies(client):
    """Returns the number of implicit copies since it was asked for the last time."""
    counted = [client.statistics().implicit_gets]

    def since():
        counted.append(client.statistics().implicit_gets)
        return counted[-1] - counted[-2]

    return since


def same(ours, expected):
    ours = ours.get() if isinstance(ours, sc.RemoteArray) else ours
    assert (np.shape(ours), np.asarray(ours).dtype) == (np.shape(expected), np.asarray(expected).dtype)
    np.testing.assert_allclose(ours, expected, rtol=2e-6 if np.asarray(ours).dtype == np.float32 else 1e-12)


CALLS = {
    "item of indices": ("x", lambda x: x.item(3, 2)),
    "item of a tuple": ("x", lambda x: x.item((-1, -1))),
    "item of the flattened array": ("x", lambda x: x.item(-5)),
    "item of a vector": ("v", lambda x: x.item(np.int8(9))),
    "item of a scalar": ("s", lambda x: (x.item(), x.item(0))[1]),
    "argsort(kind=, stable=)": ("x", lambda x: x.argsort(0, kind="stable") + x.argsort(0, stable=True)),
    "argpartition": ("k", lambda x: np.take_along_axis(x, x.argpartition([3, 9], 0), 0)[[3, 9]]),
    "choose": ("k", lambda x: (x % 3).choose([x, 7, X], mode="clip")),
    "sum by position": ("k", lambda x: x.sum(0, None, None, True)),
    "sum of some elements": ("x", lambda x: x.sum(0, None, None, False, 2.5, K > 5)),
    "prod of a type": ("k", lambda x: (x % 3 + 1).prod(1, np.float32)),
    "max by position": ("x", lambda x: x.max(1, None, True, 0.5)),
    "min by position": ("x", lambda x: x.min(1, None, True)),
    "mean by position": ("x", lambda x: x.mean(0, None, None, True, where=K > 3)),
    "std of a type": ("f", lambda x: x.std(dtype=np.float64)),
    "std of a narrower type": ("x", lambda x: x.std(0, np.float32, None, 1, True)),
    "var by position": ("x", lambda x: x.var(0, None, None, 1, True)),
    "var of integers": ("k", lambda x: x.var(1, dtype="f4")),
    "any of some": ("b", lambda x: x.any(0, None, keepdims=True, where=K > 5)),
    "argmax by keyword": ("x", lambda x: x.argmax(axis=0, keepdims=True)),
    "clip from above": ("x", lambda x: x.clip(max=0.5)),
    "clip from below": ("x", lambda x: x.clip(0.5)),
    "take": ("x", lambda x: x.take([1, 5], 0, mode="raise")),
    "trace": ("x", lambda x: x.trace(1, 0, 1, "f4")),
    "astype": ("x", lambda x: x.astype("f4", casting="same_kind", subok=False)),
    "reshape(copy=)": ("x", lambda x: x.reshape(4, 16, order="A", copy=True)),
    "conj of booleans": ("b", lambda x: x.conj()),
    "conj of integers": ("k", lambda x: x.conjugate()),
    "conj": ("z", lambda x: x.conj()),
    "median": ("x", lambda x: np.median(x, axis=0, overwrite_input=False)),
    "nanmedian": ("x", lambda x: np.nanmedian(x, overwrite_input=True)),
    "svd": ("x", lambda x: np.linalg.svd(x, compute_uv=False, hermitian=False)),
    "clip(max=)": ("x", lambda x: np.clip(x, max=0.2)),
    "clip(a_min=, a_max=)": ("x", lambda x: np.clip(x, a_max=0.2, a_min=None)),
    "std(dtype=)": ("f", lambda x: np.std(x, axis=0, dtype=np.float64)),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_methods(on, name):
    array, call = CALLS[name]
    same(call(on[array]), call(ARRAYS[array].copy()))  # of which overwrite_input=True leaves nothing


def test_methods_have_the_parameters_of_numpys():
    """Those that NumPy's signatures name, in their sequence; ``**kwargs`` there hides others."""
    for name, method in vars(np.ndarray).items():
        ours = getattr(sc.RemoteArray, name, None)
        if name.startswith("_") or ours is None or not callable(method):
            continue
        expected, actual = ([*inspect.signature(function).parameters.values()][1:] for function in (method, ours))
        for i, parameter in enumerate(
            parameter for parameter in expected if parameter.kind is not parameter.VAR_KEYWORD
        ):
            assert parameter.name in (actual[i].name, *(["args"] if name == "item" else [])), (name, parameter)
            keyword_only = inspect.Parameter.KEYWORD_ONLY
            assert (parameter.kind is keyword_only) <= (actual[i].kind is keyword_only), (name, parameter)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, out: x.sum(0, out=out),
        lambda x, out: x.round(2, out)[0],
        lambda x, out: x.clip(0, 1, out=out)[0],
        lambda x, out: x.cumsum(0, None, out)[0],
        lambda x, out: x.take([0, 1, 2, 3], 1, out),
        lambda x, out: np.median(x, 0, out),
        lambda x, out: np.add(x, 1, out),
        lambda x, out: np.modf(x, out=(None, out))[1],
    ],
)
def test_results_go_to_arrays_of_the_caller(on, copies, call):
    for shape in (4, X.shape):
        ours, expected = np.zeros(shape), np.zeros(shape)
        try:
            result = call(X.copy(), expected)
        except ValueError:
            with pytest.raises(ValueError, match=r"shape|broadcast"):
                call(on["x"], ours)
            continue
        copies()
        same(call(on["x"], ours), result)
        assert copies() == 1
        same(ours, expected)


def test_sums_are_added_in_the_type_of_the_target(on):
    ours, expected = np.zeros(4), np.zeros(4)
    on["f"].sum(0, out=ours)
    ARRAYS["f"].sum(0, out=expected)
    np.testing.assert_allclose(ours, expected, rtol=1e-14)


REFUSED = {
    "item of a wrong number of indices": (ValueError, lambda x: x.item(1, 2, 3)),
    "item beyond the last": (IndexError, lambda x: x.item(64)),
    "item beyond an axis": (IndexError, lambda x: x.item(16, 0)),
    "item of a float": (TypeError, lambda x: x.item(1.5)),
    "astype by a rule": (TypeError, lambda x: x.astype(int, casting="safe")),
    "astype by no rule": (ValueError, lambda x: x.astype(int, casting="certain")),
    "sort of no axis": (TypeError, lambda x: x.sort(axis=None)),
    "argsort of no kind": (ValueError, lambda x: x.argsort(kind="nonsense")),
    "ravel of no order": (ValueError, lambda x: x.ravel(order="Z")),
    "ufunc by a rule": (TypeError, lambda x: np.add(x, K, out=np.zeros(X.shape, "f4"), casting="safe")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_numpy_refuses_is_refused(on, name):
    error_class, call = REFUSED[name]
    for x in (X.copy(), on["x"]):
        with pytest.raises(error_class):
            call(x)


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        (lambda x: np.linalg.svd(x[0], hermitian=True), "numpy.linalg.svd with hermitian="),
        (lambda x: x.std(dtype=int), "dtype=int64"),
        (lambda x: np.nan_to_num(x, copy=False), "numpy.nan_to_num with copy="),
    ],
)
def test_what_arrays_on_the_mesh_do_not_have_is_refused_by_name(on, call, refusal):
    with pytest.raises(TypeError, match=refusal):
        call(on["x"])


COPYING = {
    "reduceat": np.add.reduceat,
    "at": lambda x, i: np.hypot.at(x, i, 2.0),
    "repeat": lambda x, i: x.repeat(i, 1),
    "delete": lambda x, i: np.delete(x, i, 0),
    "insert": lambda x, i: np.insert(x, i, 7, 0),
    "partition": lambda x, i: np.partition(x, i, 0)[[0, 3, 5, 9]],
}
"""Calls that copy indices on the mesh to this process."""


@pytest.mark.parametrize("name", COPYING)
def test_copies_of_indices_are_counted(client, strict_client, copies, name):
    indices, call = np.array([0, 3, 5, 9]), COPYING[name]
    h, x = client.put(X, mesh=MESH), X.copy()
    copies()
    result, expected = call(h, client.put(indices, mesh=MESH)), call(x, indices)
    assert copies() == 1
    same(h if result is None else result, x if expected is None else expected)
    h = strict_client.put(X, mesh=MESH)
    with pytest.raises(TypeError, match="implicit_get='error'"):
        call(h, strict_client.put(indices, mesh=MESH))
    same(h, X)
    with pytest.raises(sc.TracingError, match="elements"):
        client.jit(lambda x, i: call(x.copy(), i))(X, indices)


def test_a_number_of_repetitions_is_no_copy(strict_client):
    h, count = strict_client.put(X, mesh=MESH), strict_client.put(np.int8(2))
    same(h.repeat(count, 1), X.repeat(2, 1))


DESCRIPTIONS = {
    "may_share_memory": lambda x, v: (np.may_share_memory(x, v), np.may_share_memory(x, x), np.shares_memory(v, X)),
    "common_type": lambda x, v: np.common_type(x, v, K),
    "min_scalar_type": lambda x, v: np.min_scalar_type(x),
    "ndim, shape, size": lambda x, v: (np.ndim(x), np.shape(x), np.size(x), np.size(x, 1), x.itemsize, x.nbytes),
    "types": lambda x, v: (np.result_type(x, np.float32, 3), np.can_cast(x.dtype, "f4"), np.iscomplexobj(x)),
    "einsum_path": lambda x, v: np.einsum_path("ij,i->j", x, v),
    "triu_indices_from": lambda x, v: np.triu_indices_from(x, 1)[0].tolist(),
    "flags": lambda x, v: (x.flags.writeable, x.flags["C_CONTIGUOUS"], x.flags.f_contiguous, v.flags.f_contiguous),
    "flags as text": lambda x, v: str(x.flags),
    "broadcast_arrays": lambda x, v: [np.asarray(item).tolist() for item in np.broadcast_arrays(v, None, 2.0, "a")],
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_descriptions(on, name):
    describe = DESCRIPTIONS[name]
    assert describe(on["x"], on["v"]) == describe(X, ARRAYS["v"].copy())


def test_flags_cannot_be_set(on):
    with pytest.raises(AttributeError, match="writeable of an array on the mesh cannot be set"):
        on["x"].flags.writeable = False


SHOWN = {
    "array2string": lambda x, s: np.array2string(x, precision=3),
    "array_repr": lambda x, s: np.array_repr(x),
    "array_str": lambda x, s: np.array_str(x, suppress_small=True),
    "str": lambda x, s: str(s),
    "format": lambda x, s: f"{s} and {s:.3f}",
    "str of a sum": lambda x, s: f"{np.sum(x > 0)}",
    "min_scalar_type": lambda x, s: np.min_scalar_type(np.sum(x > 0)),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_shows_values_copies_them(on, copies, name):
    copies()
    assert SHOWN[name](on["x"], on["s"]) == SHOWN[name](X, ARRAYS["s"])
    assert copies() == 1


def test_iteration_copies_an_array_of_numbers_once(client, on, copies):
    copies()
    assert list(on["v"]) == list(ARRAYS["v"])
    assert copies() == 1
    assert all(isinstance(row, sc.RemoteArray) for row in on["x"])
    assert copies() == 0
    h, x = client.put(X[:, 1], mesh=MESH), X[:, 1].copy()
    for array in (h, x):  # elements that the loop assigns to are seen by it
        for i, element in enumerate(array):
            array[(i + 1) % 16] = element + 1
    same(h, x)
    assert not np.iterable(on["s"])


LOOPS = {
    "elements of rows": lambda x: [[float(v) for v in row] for row in x],
    "lists of rows": lambda x: [list(row) for row in x],
    "columns": lambda x: list(zip(*x, strict=True)),
    "arrays of rows": lambda x: np.array([np.asarray(row) for row in x]),
    "a list of rows": lambda x: np.array(list(x)),
    "rows from the last": lambda x: [np.asarray(row) for row in reversed(x)],
    "rows of matrices": lambda x: [[max(row) for row in matrix] for matrix in x.reshape(4, 4, 4)],
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_that_read_rows_copy_the_array_once(client, copies, name):
    h = client.put(X, mesh=MESH)
    copies()
    np.testing.assert_array_equal(LOOPS[name](h), LOOPS[name](X))
    assert copies() == 1


@pytest.mark.parametrize("direction", [iter, reversed], ids=["forwards", "backwards"])
def test_loops_copy_large_arrays_in_blocks(client, copies, monkeypatch, direction):
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 7 * X[0].nbytes)
    h, v = client.put(X, mesh=MESH), client.put(X[:, 0], mesh=MESH)
    copies()
    np.testing.assert_array_equal([np.asarray(row) for row in direction(h)], [*direction(X)])
    assert copies() == 3
    assert list(direction(v)) == list(direction(X[:, 0].tolist()))
    assert copies() == 1
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", X[0].nbytes)
    assert list(direction(v)) == list(direction(X[:, 0].tolist()))
    assert copies() == 4
    np.testing.assert_array_equal([np.asarray(row) for row in direction(h)], [*direction(X)])
    assert copies() == len(X)


def test_rows_of_a_loop_are_views_that_see_writes(client):
    h, x = client.put(X, mesh=MESH), X.copy()
    for array in (h, x):
        for i, row in enumerate(array):
            row[1:] += np.asarray(row)[0] + np.asarray(array[i - 1])[2]
    same(h, x)
    rows = list(h)
    np.asarray(rows[0])[:] = 0
    same(np.asarray(rows[0]), x[0])
    rows[1].shape = 2, 2
    same(np.asarray(rows[1]), x[1].reshape(2, 2))
    rows[3].delete()
    with pytest.raises(sc.ArrayLostError, match="deleted"):
        np.asarray(rows[3])
    h[:] = 1
    assert np.asarray(rows[2]).tolist() == [1, 1, 1, 1]
    h.delete()
    with pytest.raises(sc.ArrayLostError, match="deleted"):
        np.asarray(rows[2])


def read_by_index(h):
    for i in range(16):
        for j in range(4):
            float(h[i, j])


def read_by_item(h):
    for i in range(64):
        h.item(i)


def read_slices(h):
    for i in range(64):
        np.asarray(h.ravel()[i : i + 1])


@pytest.mark.parametrize("read", [read_by_index, read_by_item, read_slices])
def test_many_reads_of_single_elements_warn_once_with_the_line(client, read):
    h = client.put(X, mesh=MESH)
    with pytest.warns(sc.ElementReadWarning, match=r"float64\[16,4\], were read one by one.*array\.get\(\)") as caught:
        read(h)
    lines = range(read.__code__.co_firstlineno, read.__code__.co_firstlineno + 5)
    assert [(one.filename, one.lineno in lines) for one in caught] == [(__file__, True)]


def test_reads_of_elements_between_writes_and_other_reads_do_not_warn(client):
    h, x = client.put(X, mesh=MESH), X.copy()
    for array in (h, x):
        for i in range(16):
            array[i, 0] = float(array[i, 1]) + float(array[i - 1, 0])
    same(h, x)
    for i in range(20):
        float(h[i % 16, 0])
        h.get()
    for _ in range(20):
        float(h.sum())


def test_to_numpy_copies(on, copies):
    copies()
    same(on["x"].to_numpy(), X)
    assert copies() == 1


SAVING = {
    "save": np.save,
    "savez": lambda file, x: np.savez(file, x=x),
    "savez_compressed": np.savez_compressed,
    "savetxt": lambda file, x: np.savetxt(file, x, fmt="%.3f"),
    "view": lambda file, x: file.write(x.view(np.uint8).data),
    "view of no type": lambda file, x: file.write(x.view(dtype="V8").tobytes()),
}


@pytest.mark.parametrize("name", SAVING)
def test_what_saves_values_copies_them(on, strict_client, copies, name):
    ours, expected = io.BytesIO(), io.BytesIO()
    SAVING[name](expected, X)
    copies()
    SAVING[name](ours, on["x"])
    assert copies() == 1
    assert len(ours.getvalue()) == len(expected.getvalue())
    if "z" not in name:  # which has the time
        assert ours.getvalue() == expected.getvalue()
    with pytest.raises(TypeError, match="implicit_get='error'"):
        SAVING[name](io.BytesIO(), strict_client.put(X))


def test_a_view_of_another_type_cannot_be_written_to(on):
    with pytest.raises(ValueError, match="read-only"):
        on["x"].view(np.int64)[0] = 1


def test_tobytes_is_that_of_numpy(on):
    assert on["x"].tobytes() == on["x"].T.T.tobytes() == X.tobytes()
    with pytest.raises(TypeError, match="order='F'"):
        on["x"].tobytes("F")


class ImageReader:
    """A library that reads arrays by an attribute that arrays on the mesh do not have."""

    def read(self, array):
        return array.__array_interface__["shape"]


def test_a_library_that_needs_the_memory_is_refused_with_the_remedy(on):
    assert ImageReader().read(X) == X.shape
    with pytest.raises(AttributeError, match=r"the values are on the mesh: pass array\.get\(\)"):
        ImageReader().read(on["x"])


def test_no_copies_that_are_not_asked_for(server):
    with sc.connect(server.address, implicit_get="error") as strict:
        h, total = strict.put(X[:, 0], mesh=MESH), strict.xp.sum(strict.put(X, mesh=MESH))
        total.get()
        assert f"{total}" == str(total) == repr(total)
        assert all(isinstance(item, sc.RemoteArray) for item in h)
        with pytest.raises(TypeError, match="implicit_get='error'"):
            [np.asarray(row) for row in strict.put(X)]
        z = np.zeros(16)

        def add():
            nonlocal z
            z += h

        for use in (
            add,
            h.to_numpy,
            lambda: np.sum(h, out=np.zeros(())),
            lambda: np.copyto(z, h),
            lambda: np.array_str(h),
        ):
            with pytest.raises(TypeError, match="implicit_get='error'"):
                use()
        assert not z.any()


def test_a_lost_array_is_described(client):
    total = client.xp.sum(client.put(X))
    total.delete()
    assert "deleted" in str(total)


def test_libraries_that_describe_arrays(client, on, copies):
    from sklearn.cluster import KMeans
    from sklearn.preprocessing import StandardScaler

    same(StandardScaler().fit_transform(on["x"]), StandardScaler().fit_transform(X))
    ours, expected = (KMeans(2, n_init=1, random_state=0).fit(x).labels_ for x in (on["x"], X))
    assert ours.tolist() == expected.tolist()
    for name in ("x", "v"):
        ours, expected = (np.random.default_rng(1).permutation(x) for x in (on[name], ARRAYS[name]))
        same(ours, expected)
