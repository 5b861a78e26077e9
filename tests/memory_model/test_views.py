"""Functions and keywords that give views in NumPy: arrays on the mesh share memory where NumPy's do, or fail loudly."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from memory_model.in_process import InProcessClient, InProcessSubmitter
from rows import rows

from shardcall._src.device_arrays import remote_array

X = np.arange(24.0).reshape(2, 3, 4)
C = np.arange(18.0).reshape(2, 3, 3) + 1j
INPUTS = {
    "x": X,
    "c": C,
    "s": np.arange(9.0).reshape(1, 3, 3),
    "v": np.arange(6.0),
    "n": np.arange(3),
    "z": np.array(3.0),
}
CALLS = """
    x[...]; x[1]; x[:, ::-1, 1:3]; x[None, 0]; x[0, 0, 0, ...]; x[[1]]; x[x > 3]; z[...]; z[()]
    x.view(); x.T; x.mT; x.real; c.real; c.imag; c.imag.T; x.transpose(1, 0, 2); x.swapaxes(0, 1); x.diagonal()
    x.conj(); c.conj()
    x.reshape(4, 6); x.T.reshape(4, 6); x.T.reshape(-1, order='F'); x.reshape(4, 6, order='F')
    x.T.reshape(6, 4, order='A')
    x.reshape(-1, copy=True); x.reshape(-1, copy=False); x.T.reshape(-1, order='F', copy=False)
    v.reshape(2, 3, order='F')
    x.ravel(); x.T.ravel(); x.T.ravel('F'); x.T.ravel('A'); x.T.ravel('K'); x.transpose(1, 0, 2).ravel('K')
    x.ravel('F'); v.ravel('F')
    x.flatten(); x.T.flatten('K'); x.copy(); x.T.copy('F'); np.copy(x.T); s.squeeze(); s.squeeze(0); x.squeeze()
    z.squeeze()
    x.astype('f8', copy=False); x.astype('f4', copy=False); x.astype('f8'); np.astype(x, 'f8', copy=False)
    np.reshape(x, (4, -1)); np.reshape(x, (4, -1), order='F'); np.reshape(x.T, -1, order='F')
    np.reshape(x, (4, 6), copy=False)
    np.ravel(x); np.ravel(x[:, 1]); np.ravel(x.T, order='A'); np.squeeze(s); np.squeeze(s, 0); np.transpose(x)
    np.permute_dims(x, (2, 0, 1))
    np.diagonal(x); np.linalg.diagonal(x); np.diag(x[0]); np.diag(x[0], 1); np.diag(v); np.real(x); np.real(c)
    np.imag(c); np.imag(x)
    np.real_if_close(x); np.real_if_close(c); np.real_if_close(c - 1j); np.broadcast_to(v, (2, 6))
    np.broadcast_to(x, (2, 3, 4))
    np.broadcast_arrays(v, v); np.broadcast_arrays(x, x[:1]); np.array_split(v, 4); np.split(v, 2)
    np.split(x, [1], 2); np.hsplit(x, 3)
    np.vsplit(x, 2); np.dsplit(x, 2); np.unstack(x); np.unstack(x, axis=1); np.trim_zeros(v); np.ix_(n, n)
    np.unwrap(v); np.diff(v)
    np.moveaxis(x, [], []); np.atleast_1d(z); np.atleast_2d(v[::2]); np.atleast_3d(v); np.rot90(x, 0); np.rot90(x, 3)
    np.meshgrid(v, n); np.meshgrid(v, n, copy=False); np.meshgrid(v, n, copy=False, sparse=True)
    np.meshgrid(v, n, indexing='ij', copy=False)
    np.meshgrid(v, n, sparse=True); np.nan_to_num(x); np.nan_to_num(x, copy=False); np.nan_to_num(n, copy=False)
    np.nan_to_num(c[0], copy=False)
    np.einsum('ijk->kji', x); np.einsum('...ij->...ji', x); np.einsum('i...->...i', x); np.einsum('...ii->...i', c)
    np.einsum('ijj->ij', c)
    np.einsum('ijj->ji', c[:, ::-1]); np.einsum('ii->i', c[0]); np.einsum('cba', x); np.einsum('...', x)
    np.einsum(' ij k -> kij', x)
    np.einsum(x, [0, 1, 2], [2, 1, 0]); np.einsum('ijk->ij', x); np.einsum('ijj', c)
    np.einsum('ij,jk->ik', x[0], x[0].T); np.einsum('iii->i', s[:, :1, :1])
    """
NOT_VIEWS = (
    # Of other functions than those of the namespace, and of arrays of this process.
    lambda client, h: np.asarray(h, copy=False),
    lambda client, h: np.array(h, copy=False),
    lambda client, h: np.from_dlpack(h, copy=False),
    lambda client, h: np.reshape(h.T, -1, copy=False),
    lambda client, h: h.T.reshape(-1, copy=False),
    lambda client, h: h.reshape(-1, order="F", copy=False),
    lambda client, h: client.xp.reshape(h[:, 1:], -1, copy=False),
    lambda client, h: client.xp.reshape(X, -1, copy=False),
    lambda client, h: client.xp.asarray(X, copy=False),
    lambda client, h: client.xp.asarray(h, "f4", copy=False),
    lambda client, h: client.xp.array(h, "f4", copy=False),
    lambda client, h: client.xp.from_dlpack(X, copy=False),
    lambda client, h: client.xp.nan_to_num(X, copy=False),
    lambda client, h: np.meshgrid(h[0, 0], X[0, 0], copy=False),
    lambda client, h: np.lib.stride_tricks.sliding_window_view(h, 2, 1).__setitem__(0, 0.0),
    lambda client, h: np.nan_to_num(np.broadcast_to(h, (2, 2, 3, 4)), copy=False),
)


def spaces() -> tuple[InProcessClient, dict[str, Any], dict[str, Any]]:
    client = InProcessClient()
    here = {name: value.copy() for name, value in INPUTS.items()}
    return client, here, {name: client.put(value) for name, value in INPUTS.items()}


def results(call: str, space: dict[str, Any]) -> list[Any]:
    result = eval(call, {"np": np, **space})
    return [*result] if isinstance(result, tuple | list) else [result]


@rows("call", [call.strip() for line in CALLS.split("\n") for call in line.split(";") if call.strip()])
def test_results_share_memory_and_writes_where_numpys_do(call):
    _, here, there = spaces()
    for expected, actual in zip(results(call, here), results(call, there), strict=True):
        np.testing.assert_array_equal(actual.get(), expected)
        shared = [name for name, value in here.items() if np.shares_memory(expected, value)]
        assert [name for name, value in there.items() if np.shares_memory(actual, value)] == shared
        assert [name for name, value in there.items() if np.may_share_memory(actual, value)] == shared
        assert not shared or (actual.base is None) == (expected.base is None)
        for flag in ("c_contiguous", "f_contiguous", "owndata") if shared else ():
            assert getattr(actual.flags, flag) == getattr(expected.flags, flag), flag
        strides = zip(actual.strides, expected.strides, expected.shape, strict=True)
        assert all(ours == theirs for ours, theirs, size in strides if size > 1)
        if np.ndim(expected) and actual.flags.writeable and expected.flags.writeable:
            new = np.arange(expected.size).reshape(expected.shape) - 7
            expected[...] = new
            actual[...] = new
    for name, value in here.items():
        np.testing.assert_array_equal(there[name].get(), value)


@rows("call", NOT_VIEWS)
def test_what_must_copy_refuses_to_without_a_copy(call: Callable[..., Any]):
    client, _, there = spaces()
    with pytest.raises((ValueError, BufferError)):
        call(client, there["x"])


LONG = """
    v.T; v[::-1]; v[1:]; v[...]; v.reshape(v.shape[::-1]); np.flip(v)[1:]; v.T[1:].T[:, ::-1]; np.squeeze(v[None])
    np.broadcast_to(v, v.shape); np.moveaxis(v[None], 0, 2)[::-1, :, 0]; v.T.view().T.reshape(-1, 2).reshape(v.shape)
    v[None].reshape(v.shape); np.einsum('ij->ji', v); v.reshape(-1, 1).T[0][:, None].reshape(v.shape)
    """


@pytest.fixture
def shallow():
    """A limit of recursion that a chain of 240 views would exceed."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 150)
    yield
    sys.setrecursionlimit(before)


@rows("call", [call.strip() for line in LONG.split("\n") for call in line.split(";") if call.strip()])
def test_a_chain_of_views_has_no_more_steps_than_lead_to_its_elements(monkeypatch, shallow, call):
    v = expected = np.arange(604.0).reshape(302, 2)
    v = InProcessClient().put(v)
    for _ in range(300):
        v, expected = (eval(call, {"np": np, "v": item}) for item in (v, expected))
    submit, calls = InProcessSubmitter.submit, []
    monkeypatch.setattr(InProcessSubmitter, "submit", lambda *args: calls.append(args[2]) or submit(*args))
    np.testing.assert_array_equal(v.get(), expected)
    assert len(calls) <= 3


def test_a_chain_of_views_whose_steps_do_not_combine_has_any_length(shallow):
    h = InProcessClient().put(np.arange(6.0))
    v = h
    for _ in range(30):
        v = v[::-1].reshape(2, 3)[::-1, ::-1].reshape(6)[::-1]
        v = v.reshape(3, 2)[:, :][::-1, ::-1].reshape(6)
    np.testing.assert_array_equal(v.get(), np.arange(6.0))
    v[0] = 7
    np.testing.assert_array_equal(h.get(), [7, 1, 2, 3, 4, 5])


STRIDED = (
    (lambda a: a[2:], (3,), (-8,)),
    (lambda a: a[::2], (3,), (8,)),
    (lambda a: a.reshape(2, 3)[1:], (2, 2), (-24, 8)),
    (np.flip, (3,), (-16,)),
    (lambda a: np.broadcast_to(a[1:3], (3, 2)), (3, 3), (0, 8)),
    (lambda a: a, (5, 2), (8, 8)),
    (lambda a: (a + 1)[3:], (4,), (-8,)),
)


@rows("view, shape, strides", STRIDED)
def test_strides_lead_to_the_elements_that_they_lead_to_in_numpy(view, shape, strides):
    _, here, there = spaces()
    expected = np.lib.stride_tricks.as_strided(view(here["v"]), shape, strides)
    np.testing.assert_array_equal(np.lib.stride_tricks.as_strided(view(there["v"]), shape, strides), expected)
    assert view(there["v"]).strides == view(here["v"]).strides


def test_strides_of_views_whose_array_is_large_or_gone_are_refused(monkeypatch):
    _, _, there = spaces()
    v = there["v"]
    gone = (v + 1)[2:]
    gone.get()
    with pytest.raises(
        TypeError, match=r"as_strided of a view copies .* still in use, and this one is no longer; pass"
    ):
        np.lib.stride_tricks.as_strided(gone, (2,), (-8,))
    monkeypatch.setattr(remote_array, "MAX_STRIDED_BYTES", 40)
    with pytest.raises(
        TypeError, match=r"at most 40 bytes and still in use, and this one is of 48 bytes; pass array\.get\(\)"
    ):
        np.lib.stride_tricks.as_strided(v[2:], (3,), (-8,))
    np.testing.assert_array_equal(np.lib.stride_tricks.as_strided(v, (2, 5), (8, 8))[1], np.arange(1.0, 6))


@rows("read", [lambda h: h.get(), np.asarray, lambda h: h.tolist()])
def test_the_values_of_a_view_are_copied_alone(monkeypatch, read):
    client, _, there = spaces()
    sizes = []
    monkeypatch.setattr(client, "get", lambda array, timeout: sizes.append(array.nbytes) or np.zeros(array.shape))
    read(there["v"][:1])
    assert sizes == [8]


def test_writes_to_an_array_that_is_not_writeable_are_refused():
    for write in (
        lambda a: a.__setitem__(0, 1.0),
        lambda a: a.__iadd__(1),
        lambda a: a.fill(2),
        lambda a: a[2:].fill(2),
        lambda a: a.reshape(2, 3).sort(),
        lambda a: np.add(a, 1, out=a),
        lambda a: np.put(a, [0], [1]),
        lambda a: np.nan_to_num(a, copy=False),
        lambda a: setattr(a.T.flags, "writeable", True),
        lambda a: np.broadcast_to(a, (2, 6)).setflags(write=True),
    ):
        _, here, there = spaces()
        for array in (here["v"], there["v"]):
            before = array[:2]
            array.flags.writeable = False
            with pytest.raises(ValueError, match=r"read-only|cannot set WRITEABLE"):
                write(array)
            before[0] = 9
            assert not array.flags.writeable
            assert array.copy().flags.writeable
            array.setflags(write=True)
            array[1] = 5
        np.testing.assert_array_equal(there["v"].get(), here["v"])


def test_a_traced_function_does_not_write_to_what_is_not_writeable():
    client, _, there = spaces()
    there["v"].flags["W"] = False

    def function(x):
        x[0] = 3

    with pytest.raises(ValueError, match="read-only"):
        client.jit(function)(there["v"])
    with pytest.raises(ValueError, match="read-only"):
        client.jit(lambda x: function(there["v"]))(X)


@pytest.mark.filterwarnings("ignore:.*you are shuffling:UserWarning")
@rows("shape, is_refused", [((100,), False), ((101,), True), ((3, 2), True)])
@rows("shuffle", [np.random.shuffle, np.random.default_rng(0).shuffle])
def test_shuffles_that_lose_rows_or_swap_many_are_refused(shuffle, shape, is_refused):
    values = np.arange(float(np.prod(shape))).reshape(shape)
    h = InProcessClient().put(values)
    if is_refused:
        with pytest.raises(TypeError, match=r"array\[\.\.\.\] = array\[rng\.permutation\(len\(array\)\)\]"):
            shuffle(h)
        np.testing.assert_array_equal(h.get(), values)
        h[...] = h[np.random.default_rng(0).permutation(len(h))]
    else:
        shuffle(h)
    assert sorted(h.get().tolist()) == values.tolist() != h.get().tolist()


def test_the_last_row_is_set_to_another_one():
    h = InProcessClient().put(np.arange(400.0).reshape(200, 2))
    h[199] = h[3]
    column = h[:, 0]
    column[199], column[0] = column[0], column[199]
    assert h[199].get().tolist() == [0, 7]
    assert h[0].get().tolist() == [6, 1]
