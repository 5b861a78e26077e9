"""The parameters of arrays' methods, descriptions of arrays, and what copies their values: once, and counted."""

import inspect
import io

import numpy as np
import pytest
from end_to_end.numpy_calls import MESH, V, X, calls_of, check_call, rows_of, same

import shardcall as sc


@pytest.fixture
def h(client):
    return client.put(X, mesh=MESH, spec=sc.P("a", "b"))


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


DESCRIPTIONS = """
    (np.may_share_memory(x, v), np.may_share_memory(x, x), np.shares_memory(v, X))
    (np.common_type(x, v, K), np.min_scalar_type(x), np.result_type(x, np.float32, 3), np.can_cast(x.dtype, 'f4'))
    (np.iscomplexobj(x), np.ndim(x), np.shape(x), np.size(x), np.size(x, 1), x.itemsize, x.nbytes, np.iterable(x[0, 0]))
    str(np.einsum_path('ij,i->j', x, v))
    np.triu_indices_from(x, 1)[0]
    (x.flags.writeable, x.flags['C_CONTIGUOUS'], x.flags.f_contiguous, v.flags.f_contiguous, str(x.flags))
    [str(np.shape(item)) for item in np.broadcast_arrays(v, None, 2.0, 'a')]
    """


def test_descriptions(strict_client):
    for row in rows_of(DESCRIPTIONS):
        check_call(strict_client, row)


COPIED_ONCE = """
    np.{array2string(x, precision=3)|array_repr(x)|array_str(x, suppress_small=True)|array(list(x))}
    str({x[0, 0]|np.sum(x > 0)})
    '{0} and {0:.3f}'.format(x[0, 0])
    np.min_scalar_type(np.sum(x > 0))
    x.to_numpy()
    list({x[:, 0]|zip(*x, strict=True)})
    [{[float(v) for v in row]|list(row)|np.asarray(row)} for row in x]
    np.array([np.asarray(row) for row in x])
    [np.asarray(row) for row in reversed(x)]
    [[max(row) for row in matrix] for matrix in x[:12].reshape(3, 4, 6)]
    """


@pytest.mark.parametrize("text", calls_of(COPIED_ONCE))
def test_what_reads_values_copies_them_once(client, copies, text):
    h = client.put(X, mesh=MESH)
    copies()
    expected = X if "to_numpy" in text else eval(text, {"np": np, "x": X})
    np.testing.assert_array_equal(eval(text, {"np": np, "x": h}), expected)
    assert copies() == 1


def test_iteration_copies_an_array_of_numbers_once(client, copies):
    assert all(isinstance(row, sc.RemoteArray) for row in client.put(X))
    assert copies() == 0
    h, x = client.put(V, mesh=MESH), V.copy()
    for array in (h, x):  # elements that the loop assigns to are seen by it
        for i, element in enumerate(array):
            array[(i + 1) % 13] = element + 1
    same(h.get(), x)


SAVING = {
    "save": np.save,
    "savez": lambda file, x: np.savez(file, x=x),
    "savez_compressed": np.savez_compressed,
    "savetxt": lambda file, x: np.savetxt(file, x, fmt="%.3f"),
    "view": lambda file, x: file.write(x.view(np.uint8).data),
    "view of no type": lambda file, x: file.write(x.view(dtype="V8").tobytes()),
}


@pytest.mark.parametrize("name", SAVING)
def test_what_saves_values_copies_them(h, strict_client, copies, name):
    ours, expected = io.BytesIO(), io.BytesIO()
    SAVING[name](expected, X)
    copies()
    SAVING[name](ours, h)
    assert copies() == 1
    assert len(ours.getvalue()) == len(expected.getvalue())
    if "z" not in name:  # which has the time
        assert ours.getvalue() == expected.getvalue()
    with pytest.raises(TypeError, match="implicit_get='error'"):
        SAVING[name](io.BytesIO(), strict_client.put(X))


def test_views_and_bytes_of_the_values_are_copies(h):
    with pytest.raises(ValueError, match="read-only"):
        h.view(np.int64)[0] = 1
    assert h.tobytes() == h.T.T.tobytes() == X.tobytes()
    assert h.tobytes("F") == h.T.tobytes() == X.tobytes("F")


class ImageReader:
    """A library that reads arrays by an attribute that arrays on the mesh do not have."""

    def read(self, array):
        return array.__array_interface__["shape"]


def test_a_library_that_needs_the_memory_is_refused_with_the_remedy(h):
    assert ImageReader().read(X) == X.shape
    with pytest.raises(AttributeError, match=r"the values are on the mesh: pass array\.get\(\)"):
        ImageReader().read(h)


def test_no_copies_that_are_not_asked_for(strict_client):
    h, total = strict_client.put(V, mesh=MESH), strict_client.xp.sum(strict_client.put(X, mesh=MESH))
    total.get()
    assert f"{total}" == str(total) == repr(total)
    assert all(isinstance(item, sc.RemoteArray) for item in h)
    z = np.zeros(13)

    def add():
        nonlocal z
        z += h

    for use in (
        add,
        h.to_numpy,
        lambda: np.sum(h, out=np.zeros(())),
        lambda: np.copyto(z, h),
        lambda: np.array_str(h),
        lambda: [np.asarray(row) for row in strict_client.put(X)],
    ):
        with pytest.raises(TypeError, match="implicit_get='error'"):
            use()
    assert not z.any()
