"""Methods of arrays with the arguments of NumPy's, and functions of NumPy that describe and show arrays."""

import inspect
import io

import numpy as np
import pytest

import shardcall as sc

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
