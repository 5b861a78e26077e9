"""Results of the functions of the array API standard 2024.12 with each of their keywords: they are NumPy's."""

import numpy as np
import pytest

RANDOM = np.random.default_rng(35)
X = RANDOM.normal(size=(4, 3))
S = RANDOM.normal(size=(2, 3, 3)) + 4 * np.eye(3)
Z = RANDOM.normal(size=(4, 6)) + 1j * RANDOM.normal(size=(4, 6))
K = RANDOM.integers(-3, 3, (4, 3))
ARRAYS = {"x": X, "s": S, "z": Z, "k": K, "ascending": np.sort(X.ravel()), "m": X > 0}


def creation(xp, x, **_):
    yield from (xp.arange(3), xp.arange(5.0, 1, -1.5), xp.arange(2, 8, 3, dtype=xp.float32), xp.zeros((2, 0)))
    yield from (xp.linspace(0, 1, 4), xp.linspace(1, 3, 4, endpoint=False, dtype=xp.float32), xp.zeros(()), xp.eye(3))
    yield from (xp.eye(2, 4, k=1, dtype=xp.int8), xp.eye(3, k=-1), xp.eye(2, k=5), xp.ones(3, dtype=xp.bool))
    yield from (xp.full((2,), 3), xp.full((), 2.5), xp.full(2, True), xp.full(2, 1j), xp.full_like(x, 2))
    yield from (xp.ones_like(x, dtype=xp.int16), xp.zeros_like(x), xp.tril(x, k=1), xp.triu(x, k=-1), xp.asarray(True))
    yield from (xp.asarray(2), xp.asarray(2.5), xp.asarray(1j), xp.asarray([[1, 2], [3, 4]]), xp.asarray((True, False)))
    yield from xp.meshgrid(x[0], xp.arange(2), xp.arange(4))
    yield from xp.meshgrid(x[0], xp.arange(2), indexing="ij")


def manipulation(xp, x, k, **_):
    yield from (*xp.broadcast_arrays(x, k[0], k[:1, :1]), xp.broadcast_to(k[0], (2, 4, 3)), xp.concat([x, k, k[:1]]))
    yield from (xp.concat([x, k], axis=-1), xp.concat([x, k[0]], axis=None), xp.expand_dims(x, axis=-1), xp.flip(x))
    yield from (xp.flip(x, axis=(0, -1)), xp.moveaxis(x, 0, -1), xp.moveaxis(x[None], (0, 1), (-1, 0)), x.T, x.mT)
    yield from (xp.permute_dims(x[None], (2, 0, 1)), xp.repeat(x, 2), xp.repeat(x, 2, axis=-1), xp.tile(x, (2, 1, 2)))
    yield from (xp.reshape(x, (2, -1)), xp.reshape(x, (-1,), copy=True), xp.roll(x, 5))
    yield from (xp.roll(x, (1, -2), axis=(0, 1)), xp.roll(x, -1, axis=-1), xp.squeeze(x[None, :, None], (0, 2)))
    yield from (xp.stack([x, x], axis=-1), xp.tile(x, (2,)))
    yield from xp.unstack(x, axis=-1)


def searching(xp, x, k, ascending, m, **_):
    yield from (xp.argmax(k), xp.argmax(k, axis=0), xp.argmin(k, axis=-1, keepdims=True), xp.count_nonzero(k, axis=0))
    yield from (xp.count_nonzero(k, axis=(0, 1), keepdims=True), xp.where(m, x, k), xp.where(m[:, :1], 1.5, k))
    yield from (xp.searchsorted(ascending, x), xp.searchsorted(ascending, ascending[1:4], side="right"))
    yield xp.searchsorted(xp.flip(ascending), x[0], sorter=xp.flip(xp.arange(12)))
    yield from (xp.take(k, xp.asarray([2, 0, 2]), axis=1), xp.take(k[0], xp.asarray([1, 1])))
    yield from (xp.take_along_axis(x, xp.argsort(x)), xp.sort(k, axis=0))
    yield from (xp.take_along_axis(x, xp.asarray([[1], [0], [2], [1]]), axis=1), xp.argsort(k, axis=0, stable=True))


def statistics(xp, x, k, z, m, **_):
    yield from (xp.cumulative_sum(k, axis=0), xp.cumulative_sum(x[0], include_initial=True))
    yield from (xp.cumulative_prod(k, axis=1), xp.cumulative_prod(x, axis=-1, include_initial=True))
    yield from (xp.cumulative_sum(m, axis=0, dtype=xp.float32), xp.max(k, axis=0), xp.min(x))
    yield from (xp.mean(x, axis=-1, keepdims=True), xp.mean(z), xp.prod(k, axis=(0, 1)), xp.sum(k, dtype=xp.float32))
    yield from (xp.sum(z, axis=0), xp.std(x, axis=0, correction=1), xp.var(x, correction=1.5), xp.sum(x, axis=()))
    yield from (xp.all(m, axis=0), xp.any(m, axis=1, keepdims=True), xp.all(k), xp.any(z, axis=()), xp.diff(x))
    yield from (xp.diff(k, axis=0, n=2), xp.diff(x[0], prepend=x[1, :1], append=x[2, :2]))
    empty = x[:0]
    yield from (xp.sum(empty), xp.prod(empty, axis=0), xp.all(empty, axis=1), xp.any(empty), xp.concat([empty, x]))
    yield from (xp.clip(k, -1, 1), xp.clip(x, max=0.5), xp.clip(x, x[:1], None), xp.round(x), xp.sign(z))


def linalg(xp, x, k, s, z, **_):
    linear, symmetric = xp.linalg, s + s.mT
    yield from (s @ s, xp.matmul(x.T, x[:, 0]), xp.matmul(k[0], k[1]), xp.matrix_transpose(s))
    yield from (xp.tensordot(x, k, axes=([0], [0])), xp.tensordot(x, k[0], axes=0), xp.tensordot(x, k), xp.vecdot(z, z))
    yield from (xp.vecdot(x, k, axis=0), linear.cross(x, k), linear.det(s), linear.diagonal(s, offset=1), linear.inv(s))
    yield from (linear.matrix_norm(s), linear.matrix_norm(s, ord=1, keepdims=True), linear.matrix_norm(s, ord=-2))
    yield from (linear.matrix_norm(s, ord="nuc"), linear.matrix_power(s, 0), linear.matrix_power(s, -2))
    yield from (linear.matrix_rank(s), linear.matrix_rank(x, rtol=0.9), linear.outer(x[0], z[0]), linear.pinv(x))
    yield from (*linear.slogdet(s), linear.solve(s, s[:, :, 0][..., None]), linear.solve(s[0], x[0]), linear.svdvals(s))
    yield from (linear.trace(s, offset=-1), linear.eigvalsh(symmetric), linear.vector_norm(z))
    yield from (linear.vector_norm(x, axis=(0, 1), keepdims=True), linear.vector_norm(x, axis=0, ord=1))
    yield from (linear.vector_norm(x, ord=np.inf), linear.vector_norm(x, axis=-1, ord=0))
    yield linear.vector_norm(x, ord=-1.5)
    values, vectors = linear.eigh(symmetric)
    q, r = linear.qr(x)
    complete = linear.qr(x, mode="complete")
    u, item, vh = linear.svd(s)
    lower, upper = linear.cholesky(s @ s.mT), linear.cholesky(s @ s.mT, upper=True)
    yield from (values, (vectors * values[:, None, :]) @ vectors.mT, q @ r, complete.Q @ complete.R, item, lower, upper)
    yield from ((u * item[:, None, :]) @ vh, xp.abs(q.mT @ q), xp.triu(r) - r, linear.svd(x).U.shape[1] * x)
    yield linear.svd(x, full_matrices=False).U.shape[1] * x


def transforms(xp, x, z, **_):
    fft = xp.fft
    for norm in ("backward", "ortho", "forward"):
        yield from (fft.fft(z, norm=norm), fft.ifftn(z, norm=norm), fft.rfft(x, norm=norm), fft.irfft(z, norm=norm))
    yield from (fft.fft(z, n=4, axis=0), fft.ifft(z, n=8), fft.fftn(z, s=(2, 8), axes=(0, 1)))
    yield from (fft.rfftn(x, axes=(1, 0)), fft.irfftn(z, s=(4, 5), axes=(0, 1)), fft.hfft(z), fft.hfft(z, n=7))
    yield from (fft.ihfft(x), fft.irfft(z, n=5), fft.fftfreq(5), fft.fftfreq(4, d=0.5), fft.rfftfreq(5, d=2.0))
    yield from (fft.rfftfreq(4), fft.fftshift(z), fft.ifftshift(x, axes=0), fft.fftshift(x, axes=(1,)))
    yield from (fft.fft(xp.astype(z, xp.complex64)), fft.rfft(xp.astype(x, xp.float32)))


def indices(xp, x, k, m, **_):
    yield from (x[1], x[-1, 2], x[()], x[...], x[1:3], x[:, ::-2], x[3:0:-1], x[..., 0], x[None], x[:, None, 1], x[5:])
    yield from (x[-2:], x[:-9], x[xp.asarray([2, 0, -1])], x[xp.asarray([[0], [1]]), xp.asarray([1, 2])])
    yield x[2, xp.asarray([0, 0])]


SHORT = (searching, statistics, indices)
LONG = (creation, manipulation, linalg, transforms)
"""Areas whose values are compared in test_values_long.py: their programs take long to compile."""


def traced(client, area, computed):
    """Gives a traced function that returns the results of an area, joined by type: a program has 64 at most."""

    @client.jit
    def run(arrays):
        computed[:] = [client.xp.asarray(item) for item in area(client.xp, **arrays)]
        kinds = {item.dtype for item in computed}
        joined = {kind: [client.xp.reshape(item, (-1,)) for item in computed if item.dtype == kind] for kind in kinds}
        return {kind.name: client.xp.concat(item) for kind, item in joined.items()}

    return run


def check_values(client, area):
    """Compares the values of an area with NumPy's, in one program."""
    flat = {kind: item.get() for kind, item in traced(client, area, [])(ARRAYS).items()}
    for i, expected in enumerate(map(np.asarray, area(np, **ARRAYS))):
        kind, size = expected.dtype.name, expected.size
        ours, flat[kind] = flat[kind][:size].reshape(expected.shape), flat[kind][size:]
        tolerance = 1e-5 if expected.dtype in (np.float32, np.complex64) else 1e-12
        np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=tolerance, err_msg=f"result {i}")


@pytest.mark.parametrize("area", SHORT + LONG, ids=lambda area: area.__name__)
def test_types_and_shapes_are_numpys(client, area):
    computed = []
    traced(client, area, computed).trace(ARRAYS)
    expected = [np.asarray(item) for item in area(np, **ARRAYS)]
    assert [(i, x.dtype, x.shape) for i, x in enumerate(computed)] == [
        (i, x.dtype, x.shape) for i, x in enumerate(expected)
    ]


@pytest.mark.parametrize("area", SHORT, ids=lambda area: area.__name__)
def test_values_are_numpys(client, area):
    check_values(client, area)
