"""Calls that NumPy refuses are refused with arrays on the mesh, by errors of the same class, and change nothing.

A comment names the class and a part of the message where the message is a promise, or NumPy accepts the call. Without a
comment, NumPy's class decides, and the installed NumPy whether a call is refused that only some versions accept.
"""

import builtins
import re

import numpy as np
import pytest
from end_to_end.numpy_calls import ARRAYS, Side, alternatives, rows_of
from end_to_end.numpy_comparison import family

import shardcall as sc

REFUSED = {
    "methods of arrays": """
        x.item({1, 2, 3|78|13, 0|1.5})
        x.astype(int, {casting='safe'|casting='certain'})
        x.sort(axis=None)
        x.argsort(kind='nonsense')
        x.ravel(order='Z')
        x.copy(order='Z')
        np.add(x, I, out=np.zeros(X.shape, 'f4'), casting='safe')
        np.linalg.svd(x, hermitian=True)  # TypeError: numpy.linalg.svd with hermitian=.* does not run on the mesh
        x.std(dtype=int)  # TypeError: dtype=int64
        np.{sum|prod|nansum|max}(x[:0], initial=None)
        x[:, :0].sum(axis=1, initial=None)
        np.{sum|max|argmin|sort|cumsum|mean|diff}(x, axis=[0])
        np.add.reduce(x, axis=[0])
        np.linalg.norm(x, axis=[0])
        np.{argmax|argmin}(x, axis=0, out=np.zeros(6, '{f8|u8}'))
        np.add(x, 1, signature='ff->f')  # TypeError: numpy.add with signature=.* does not run on the mesh.*get\\(\\)
        np.isnat(x)  # TypeError: numpy\\.isnat does not run on the mesh; isnan does
        np.pad(x, 1, mode=lambda row, *_: None)  # TypeError: mode is a function
        """,
    "elements": """
        x.__setitem__((0, 0), 'a')
        small.__setitem__({0, 300|slice(0, 1), [1, 2]|slice(0, 3), np.ones(2)|[0, 1], np.ones(3)|0, np.nan|0, 1j|13, 1})
        small.__setitem__({SMALL > 0, np.ones(1) * [[1], [2]]|[0, 13], 1|1.5, 1})
        v.__setitem__(V > 0, np.ones(({1, 4|2, 1})))
        small.__setitem__(0, [2])  # ValueError: stands for one element; give a scalar
        x.__setitem__((0, 0), [2.0])
        x.__setitem__(0, [[2.0] * 6])  # ValueError: values is of shape \\(1, 6\\), .* elements of shape \\(6,\\)
        x.__setitem__(slice(0, 2), [[[2.0]]])
        x[13]  # IndexError: index 13 is out of bounds for axis 0 with size 13
        x[0, 0, 0]  # IndexError: too many indices
        x[1.5]  # IndexError: only integers, slices
        x[::0]  # ValueError: step cannot be zero
        x[X[0] > 0]  # IndexError: boolean index did not match indexed array along axis 0; size of axis is 13
        x[[1, 2], [1, 2, 3]]  # IndexError: could not be broadcast together with shapes \\(2,\\) \\(3,\\)
        x[0, [1, 6]]  # IndexError: index 6 is out of bounds for axis 1 with size 6
        x[np.array([0, 13])]  # IndexError: index 13 is out of bounds
        x[put(np.array([0, 13]))]  # IndexError: an index that the axis of 13 elements does not have
        x[put(np.array([0, -14])), np.array([0, 1])] + 1  # IndexOutOfRangeError: take_at
        np.zeros_like(x, order='F')  # TypeError: order='F'.* row-major order
        np.reshape(x, -1, order='K')
        np.{reshape(x.T, -1, copy=False)|nan_to_num(np.broadcast_to(x, (2, 13, 6)), copy=False)}
        np.frompyfunc(max, 2, 1)({x, x|x, 1})  # TypeError: max \\(vectorized\\) does not run on the mesh
        np.nonzero(put(np.float64(3)))  # ValueError: no axes is not defined
        xp.where(x, x)  # ValueError: both x and y, or neither
        list(put(1.0))
        """,
    "keywords": """
        np.var(x, ddof=1, correction=1)
        np.quantile(x, 0.5, {weights=WEIGHTS[0]|axis=0, weights=WEIGHTS[0]|weights=-WEIGHTS}, method='inverted_cdf')
        np.take_along_axis(x, np.array([[0, 1]]), None)
        np.dot(x, np.ones((2, 5, 3)))
        np.cross({x, 3|x[:, :4], x[:, :4]})
        np.clip(x, 0, 1, max=2)
        np.add.reduce({x, out=np.empty(x.shape)|x[:0], initial=None})
        np.digitize(x, {[1j]|2j})
        np.histogramdd(x.reshape(-1, 2), [2, 0.5])
        np.nanmean(x, dtype=int)
        np.concatenate([x, x], dtype=int)
        np.stack([x, x], dtype='f4', casting='safe')
        np.trapezoid(x, np.arange(5))
        np.linalg.pinv(x, 0.1, rtol=0.1)
        np.histogram(x, np.array([2.0, 1.0, 3.0]))
        np.add(x, 'a')  # TypeError: operand 2 of numpy\\.add is of the type str; give an array
        np.add(None, x)  # TypeError: operand 1 of numpy.add is of the type NoneType
        np.take(x, 'a')  # TypeError: indices is of str
        np.take(x, None)  # TypeError: indices is of object; give integers
        np.put(x, 'a', 1)  # TypeError: ind is of str
        np.repeat(x, None)  # TypeError: repeats is of object
        np.split(x, None)  # TypeError: indices_or_sections is None; give an integer
        np.split(x, 0)  # ValueError: 0 parts; give 1 or more
        np.array_split(x, 2, axis=3)  # IndexError: axis 3 is out of bounds
        np.pad(x, {5: 1})  # IndexError: axis 5 is out of bounds
        np.polyint(x[0], m='a')  # TypeError: m is 'a'; give an integer
        np.vander(x[0], N=1.5)  # TypeError: N is 1\\.5; give an integer
        np.linalg.matrix_power(x[:6], 1.5)  # TypeError: n is 1\\.5; give an integer
        np.tensordot(x, x, axes='a')  # ValueError: axes='a'; give an integer, or two
        np.rot90(x, 'a')  # TypeError: k is 'a'; give an integer
        np.apply_along_axis(None, 0, x)  # TypeError: func1d is of NoneType; give a function
        np.sum(x, dtype='nope')  # TypeError: dtype is 'nope', which names no element type
        np.isin(x, None)  # TypeError: test_elements has element type object
        np.digitize(x, 'a')  # TypeError: bins has element type <U1
        np.searchsorted(x[0], 'a')  # TypeError: v has element type <U1
        np.linspace(x, 'a')  # TypeError: stop has element type <U1
        np.geomspace('a', x)  # TypeError: start has element type <U1
        np.logspace(x, 2, base='a')  # TypeError: base has element type <U1
        np.percentile(x, None)  # TypeError: q is of object; give real
        np.moveaxis(x, 'a', 0)  # TypeError: source is 'a'; give an integer
        np.unstack(x, axis='a')  # TypeError: axis is 'a'; give an integer
        np.linspace(x, 1, axis='a')  # TypeError: axis is 'a'; give
        np.moveaxis(x, 0, None)  # TypeError: destination is None
        np.swapaxes(x, 0, None)  # TypeError: axis2 is None; give an integer
        np.tensordot(x, x, axes=None)  # TypeError: axes=None; give an integer, or two
        np.histogram(x, range=(1, 'a'))  # TypeError: range is \\[1, 'a'\\]; give two real
        np.histogram(x, range=1)  # TypeError: range is 1; give two real numbers
        np.histogram2d(x[0], x[0], range=[(0, None), (0, 1)])  # TypeError: range is \\[0, None\\]; give two
        np.var(x * 1j, dtype='f4')  # TypeError: loses the imaginary part
        np.average(x[:0], axis=1)  # ZeroDivisionError: no mean along \\(1,\\)
        np.linalg.pinv(x, rcond=[0.5])  # ValueError: rcond is of shape \\(1,\\)
        xp.hstack([])  # ValueError: array
        """,
    "other arguments": """
        np.searchsorted(v, 3, {sorter=[0, 1]|sorter=V|sorter=0})
        np.reshape(v, 13, order=1)
        np.add(v, 1, {order='Z'|casting='Z'})
        np.cov(v, {dtype=int|aweights=np.ones((2, 4))|aweights=[1, 2]|aweights=-np.ones(13)|fweights=np.ones(13) / 2})
        np.nanvar(v, dtype=int)
        np.einsum('i->', v, dtype=int)
        np.select([v > 1], [2], binary[:1].astype('u1'))
        np.sort(v, {order='x'|kind='Z'})
        np.partition(v, {1, kind='quicksort'|1.0})
        np.argpartition(v, True)
        np.repeat(v, np.array([2.0]))
        np.split(v, [2.5])
        np.bincount({binary.astype(int), minlength=1.5|i})
        np.median(v, axis=0.0)
        np.round({v, 1.5|v > 1, 1})
        np.ediff1d(v > 1)
        np.tensordot(v, v, axes=([0], [1]))
        np.linspace(v[0], 1, 3, axis=1)
        np.expand_dims(v, None)
        np.size(v, 1)
        np.pad(v, [])
        np.lexsort((x, v > 3))
        np.lexsort((v, v), axis=1)
        np.partition(x, 13, axis=0)  # ValueError: out of bounds
        np.unravel_index(counts, (3, 4))  # ValueError: give 0 to 11
        np.delete(x, 13, 0)  # IndexError: out of bounds
        np.insert(x, 14, 1, 0)  # IndexError: out of bounds
        np.trim_zeros(x, 'x')  # ValueError: give 'f', 'b' or 'fb'
        np.trim_zeros(x, axis=2)  # AxisError: axis 2
        np.resize(x, (-1, 3))  # ValueError: 0 or more
        np.select([x], [x])  # TypeError: give conditions of bool
        np.unique(x, axis=2)  # AxisError: axis 2
        np.put_along_axis(x, np.array([[13]]), 0, 0)  # IndexError: index 13
        np.put_along_axis(x, np.array([[1]]), 0, None)  # ValueError: single dimension
        xp.put_along_axis(X, np.array([[1]]), 0, 0)  # TypeError: of this process
        np.diag(put(np.zeros((2, 2, 2))))  # ValueError: 3 axes
        xp.geomspace(0, 1)  # ValueError: is 0
        np.quantile(x, 2)  # ValueError: from 0 to 1
        np.quantile(x, x)  # TypeError: pass q.get
        np.quantile(x, 0.5, method='best')  # ValueError: method='best' is not one of
        np.median(x, axis=3)  # AxisError: name axes of x
        np.average(x, weights=[1, 2])  # TypeError: name their axis
        np.average(x, 0, weights=np.zeros(13))  # ZeroDivisionError: sum of zero
        np.nanargmax(x * np.nan, 1)  # ValueError: NaN alone
        np.histogram(x, 'auto')  # TypeError: estimators
        np.digitize(x, [1, 3, 2])  # ValueError: sort it
        np.split(x, 3)  # ValueError: use array_split
        np.fft.fft(x, axis=2)  # AxisError: axis=2
        np.fft.fftn(x, (3,), axes=(0, 1))  # ValueError: one size for each axis
        np.interp(x, [0, 1], [0, 1], period=0)  # ValueError: period=0
        np.interp(x, [0], [1, 2], period=3)  # ValueError: a value for each point
        np.tensordot(x, x, axes=([0, 0], [0, 0]))  # ValueError: each axis of an array once
        np.bincount(put(COUNTS - 5))  # ValueError: negative integer
        xp.zeros(3, device='cpu')  # ValueError: the only device is 'mesh'
        xp.arange(0, 3, 0)  # ZeroDivisionError: step is 0
        xp.linspace(0, 1, -1)  # ValueError: num=-1
        xp.logspace([0, 1], 2, axis=5)
        xp.full(3, 300, np.int8)
        xp.zeros((2, -3))  # InvalidParameterError: shape
        xp.sinn(x)  # AttributeError: did you mean
        """,
    "bits and parts of numbers": """
        np.packbits({x|x > 0, bitorder='x'|x > 0, axis=2})
        np.unpackbits({x|bytes, count=-1000})
        np.ldexp(x, 1.5)
        np.frexp(c)
        np.spacing(c)
        np.i0(c)
        np.bitwise_count(x)
        """,
    "indices and blocks": """
        np.choose({i, [1, 2]|i, []|i, [i, i], mode='x'|x, [1, 2]})
        np.ravel_multi_index(({i, i|i,}), (9, 9))
        np.ravel_multi_index((x,), (9,))
        np.ravel_multi_index((i, i), ({2**62, 2|9, 0}), mode='clip')
        np.unravel_index(i, (2**62, 2))
        np.diag_indices_from({x|x[0]})
        np.ix_(i[0], i)
        np.block({[[x], x]|[x, []]|[(x, x)]})
        np.correlate({x, x|x[0], x[0, :0]})
        np.histogramdd(x, bins=(2, 3))
        xp.lib.stride_tricks.sliding_window_view(x, {14, 0|3, None|3, 2})
        xp.lib.stride_tricks.sliding_window_view(x, 3, 0, writeable=True)  # TypeError: writeable
        """,
    "functions of functions": """
        np.apply_along_axis(np.sum, {2, x|0, x[:, :0]})
        np.apply_over_axes(lambda a, axis: a[0, 0], x, [0])
        np.piecewise(x, [X < 0], [1, 2, 3])
        """,
    "padding": """
        np.pad(x, 1, {mode='nonsense'|mode='constant', stat_length=1|mode='empty', constant_values=1})
        np.pad(x, {1, mode='maximum', stat_length=0|1, mode='mean', stat_length=-1|-1, mode='mean'|(1, 2, 3, 4)})
        np.pad(x, {((1, 2, 3),), mode='mean'|1.5, mode='mean'|1, constant_values=(1, 2, 3)})
        np.pad({x[:0], 1, mode='median'|small, 1, constant_values=300|small, 1, constant_values=np.nan})
        """,
    "polynomials": """
        np.vander({x|x[0], -1})
        np.poly(x)
        np.roots(x)
        np.polymul(x, [1])
        np.polyder(x, -1)
        np.polyint({x, -1|x[0], 3, k=[1, 2]})
        np.polyfit({x, x, 1|x[0], [1, 2], 1|x[0, :3], [1, 2, 3], -1|x[0, :3], [1, 2, 3], 1, w=[1]})
        np.polyfit(x[0, :3], [1, 2, 3], 2, cov=True)
        """,
    "filters": """
        ndimage.correlate(x, {[1, 2]|WEIGHTS, mode='x'|WEIGHTS[:0]|WEIGHTS[:3, :2], origin=2})
        ndimage.correlate(x, WEIGHTS, mode=['wrap', 'wrap', 'wrap'])
        ndimage.uniform_filter(x, {3, origin=2|(1, 2, 3)})
        ndimage.gaussian_filter({x, 1, order=-1|x, 1, radius=-1|put(X.astype('f2')), 1})
        special.j0(x)  # AttributeError: j0
        """,
    "linear algebra": """
        np.linalg.multi_dot([x.T, x, x.T, x.T])
        np.linalg.lstsq(x, v[:6])
        np.linalg.cond(x, {1|3})
        np.linalg.norm(v, {axis='a'|axis=5})
        np.linalg.matrix_norm(v)
        np.linalg.inv(put(np.ones((3, 3))))  # LinAlgError: singular matrix
        np.linalg.cholesky(put(-np.ones((3, 3)))) + 1  # LinAlgError: not positive definite
        np.linalg.solve(put(np.ones((3, 3))), np.ones(3))  # LinAlgError: singular matrix
        np.linalg.inv(x)  # LinAlgError: give
        np.linalg.svd(v)  # LinAlgError: give
        np.linalg.cond(squares[:, :0, :0])  # LinAlgError: give elements
        np.linalg.tensorinv(v[0])  # TypeError: with axes
        np.linalg.norm(x, 'x')  # ValueError: no order of matrices
        np.linalg.norm(x, 'fro', axis=0)  # ValueError: order of matrices
        np.linalg.norm(x, 1, axis=(0, 0))  # ValueError: repeated axis
        np.linalg.qr(x, 'raw')  # ValueError: mode='raw'
        np.linalg.cross(x[:, :2], x[:, :2])  # ValueError: give three
        np.linalg.multi_dot([x])  # ValueError: two or more
        np.linalg.tensorinv(x, 0)  # ValueError: give 1 or more
        np.linalg.tensorinv(x, 1)  # ValueError: as many elements along the first 1 axes
        np.linalg.tensorsolve(x, x)  # ValueError: as many elements along the axes of b
        np.linalg.tensorsolve(squares[0], v[:4], axes=(2,))  # ValueError: give some from 0 to 1
        np.linalg.matrix_rank(x, 1, rtol=1)  # ValueError: give one of them
        np.linalg.eigvals(put(np.full((2, 2), np.nan) * 1j))  # LinAlgError: do not converge
        xp.linalg.solve_triangular(put(np.triu(np.ones((4, 4)), 1)), np.ones(4))  # LinAlgError: zero on the diagonal
        xp.linalg.solve_triangular(squares[0], np.ones(4), trans='X')  # ValueError: trans='X'
        """,
    "methods of ufuncs": """
        np.subtract.reduce({x[:0]|x, axis=None|x, where=MASK})
        np.sin.reduce(x)
        np.add.reduce(x, 0, None, 'invalid')
        np.sum(x, out=3.5)
        np.maximum.accumulate(x, 5)
        np.add.accumulate({x, axis=None|x[0, 0]})
        np.add.reduceat(x, {[0, 13]|[-1]|[[0, 1]]})
        np.sin.outer(x, x)
        np.add.at({x, [13], 1|x, [0.5], 1|x, [0, 1], np.ones((3, 1))|x, [0]|x[0, 0], 0, 1})
        np.negative.at(x, [0], 1)
        np.matmul.at(x, [0], 1)
        np.add(x, 1, where=np.ones(6, int))
        np.bitwise_or.at(i, np.zeros(100, int), 1)  # TypeError: numpy\\.bitwise_or\\.at with equal indices
        np.hypot.reduceat(x, np.arange(100) % 2)  # TypeError: numpy\\.hypot\\.reduceat of 100 parts
        """,
    "writes": """
        np.copyto({counts, 1.5|counts, [1.5]|bytes, 300|counts, 1, casting='foo'|x, [1.0, 2]|x, 1, where=[True, False]})
        np.put({x, [99], 1|put(X[:0]), [0], 1, mode='clip'|x, [0], 1, mode='x'|x, np.array([0.0]), 1|bytes, [0], 300})
        np.place({x, [True], 1|x, MASK, []|i, MASK, np.array([0.5])})
        np.putmask(x, MASK[0], 1)
        np.fill_diagonal({v|cube}, 1)
        x.fill({[1, 2]|1j})
        bytes.fill(300)
        x.partition({13, 0|3, None})
        np.add({V, 1, out=small|X, 1, out=v})
        np.sum(x, 0, out=x)
        np.add(v, 1, out=v, where=np.ones((2, 13), bool))
        np.concatenate([x], dtype=float, out=x)
        np.take(i, [0, 2], out=put(np.zeros(2)))
        np.compress([True, False], i[0, :2], out=put(np.zeros(1)))
        np.copyto(x.sum(), 1)  # TypeError: got a number
        np.add(1, 1, out=x.sum())  # TypeError: got a number
        x.sum().fill(1)  # TypeError: got a number
        x.sum().put([0], 1)  # TypeError: got a number
        ndimage.gaussian_filter(x, 1, output=x)  # TypeError: results are new arrays
        """,
}


def error_class(name: str) -> type[Exception]:
    """Returns the class of errors of a name."""
    return next(getattr(module, name) for module in (np.exceptions, np.linalg, builtins, sc) if hasattr(module, name))


def refused_calls(rows: str) -> list[tuple[str, str]]:
    """Returns the calls of a family, each with its comment."""
    parts = [row.partition("  # ") for row in rows_of(rows)]
    return [(call, says) for text, _, says in parts for call in alternatives(text)]


@pytest.mark.parametrize("family_name", REFUSED)
def test_calls_are_refused_and_change_nothing(strict_client, family_name):
    wrong = []
    for text, says in refused_calls(REFUSED[family_name]):
        code = compile(text, "<call>", "eval")
        side = Side(code, strict_client)
        error = side.outcome()
        name, _, message = says.partition(": ")
        expected = error_class(name) if name else family(Side(code).outcome())
        if not (isinstance(error, expected) and re.search(message, str(error))):
            wrong.append(f"{text}: {error!r}, and not {expected.__name__}: {message}")
        for name, array in side.operands().items():
            if not np.array_equal(array.get(), ARRAYS[name.upper()], equal_nan=array.dtype.kind in "fc"):
                wrong.append(f"{text} changes {name}")
    assert not wrong, "\n".join(wrong)
