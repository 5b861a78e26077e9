"""The functions of the Python array API standard 2024.12: their parameters, and operands of which they are traced."""

from typing import Any

import numpy as np

import shardcall as sc

F, K, B, C = (sc.Array((4, 4), dtype) for dtype in ("f8", "i8", "?", "c16"))
V, IV, SCALAR, ROW = sc.Array((3,), "f8"), sc.Array((3,), "i8"), sc.Array((), "f8"), sc.Array((1, 3), "f8")

UNARY = """
    abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan
    log log10 log1p log2 logical_not negative positive real reciprocal round sign signbit sin sinh sqrt square tan
    tanh trunc
"""
BINARY = """
    add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal
    floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum
    minimum multiply nextafter not_equal pow remainder subtract
"""
LIKE = "*, dtype=None, device=None"
WITH_AXES = "x, /, *, axis=None, keepdims=False"
CUMULATIVE = "x, /, *, axis=None, dtype=None, include_initial=False"
ONE_AXIS = "x, /, *, n=None, axis=-1, norm='backward'"
MANY_AXES = "x, /, *, s=None, axes=None, norm='backward'"


def _functions(names: str, parameters: str, *operands: Any) -> dict[str, tuple[str, tuple[Any, ...]]]:
    """Returns the rows of functions with the same parameters, whose operands are a matrix unless others are given."""
    return dict.fromkeys(names.split(), (parameters, operands or (F,)))


FUNCTIONS = {
    **_functions(UNARY, "x, /"),
    **_functions("bitwise_invert", "x, /", K),
    **_functions("logical_not", "x, /", B),
    **_functions("conj imag real", "x, /", C),
    **_functions(BINARY, "x1, x2, /", F, F),
    **_functions("bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor", "x1, x2, /", K, K),
    **_functions("logical_and logical_or logical_xor", "x1, x2, /", B, B),
    **_functions("clip", "x, /, min=None, max=None"),
    # Creation
    **_functions("arange", f"start, /, stop=None, step=1, {LIKE}", 5),
    **_functions("asarray", "obj, /, *, dtype=None, device=None, copy=None", [1.0, 2.0]),
    **_functions("empty ones zeros", f"shape, {LIKE}", (3, 4)),
    **_functions("empty_like ones_like zeros_like", f"x, /, {LIKE}"),
    **_functions("eye", "n_rows, n_cols=None, /, *, k=0, dtype=None, device=None", 3),
    **_functions("from_dlpack", "x, /, *, device=None, copy=None"),
    **_functions("full", f"shape, fill_value, {LIKE}", (3, 4), 2.0),
    **_functions("full_like", f"x, /, fill_value, {LIKE}", F, 2.0),
    **_functions("linspace", "start, stop, /, num, *, dtype=None, device=None, endpoint=True", 0, 1, 5),
    **_functions("meshgrid", "*arrays, indexing='xy'", V, IV),
    **_functions("tril triu", "x, /, *, k=0"),
    # Data types
    **_functions("astype", "x, dtype, /, *, copy=True, device=None", F, np.float32),
    **_functions("can_cast", "from_, to, /"),
    **_functions("finfo iinfo", "type, /"),
    **_functions("isdtype", "dtype, kind"),
    **_functions("result_type", "*arrays_and_dtypes"),
    # Indexing and searching
    **_functions("take", "x, indices, /, *, axis=None", V, IV),
    **_functions("take_along_axis", "x, indices, /, *, axis=-1", F, K),
    **_functions("argmax argmin count_nonzero", WITH_AXES),
    **_functions("nonzero", "x, /"),
    **_functions("searchsorted", "x1, x2, /, *, side='left', sorter=None", V, F),
    **_functions("where", "condition, x1, x2, /", B, F, F),
    # Manipulation
    **_functions("broadcast_arrays", "*arrays", F, SCALAR),
    **_functions("broadcast_to", "x, /, shape", F, (2, 4, 4)),
    **_functions("concat stack", "arrays, /, *, axis=0"),
    **_functions("expand_dims", "x, /, axis", F, 0),
    **_functions("flip", "x, /, *, axis=None"),
    **_functions("moveaxis", "x, source, destination, /", F, 0, 1),
    **_functions("permute_dims", "x, /, axes", F, (1, 0)),
    **_functions("repeat", "x, repeats, /, *, axis=None", F, 2),
    **_functions("reshape", "x, /, shape, *, copy=None", F, (2, 8)),
    **_functions("roll", "x, /, shift, *, axis=None", F, 1),
    **_functions("squeeze", "x, /, axis", ROW, 0),
    **_functions("tile", "x, repetitions, /", F, (2, 1)),
    **_functions("unstack", "x, /, *, axis=0"),
    # Sets and sorting
    **_functions("unique_all unique_counts unique_inverse unique_values", "x, /"),
    **_functions("argsort sort", "x, /, *, axis=-1, descending=False, stable=True"),
    # Statistics and utilities
    **_functions("all any max mean min", WITH_AXES),
    **_functions("prod sum", "x, /, *, axis=None, dtype=None, keepdims=False"),
    **_functions("std var", "x, /, *, axis=None, correction=0, keepdims=False"),
    **_functions("cumulative_prod cumulative_sum", CUMULATIVE, V),
    **_functions("diff", "x, /, *, axis=-1, n=1, prepend=None, append=None"),
    # Products and linear algebra
    **_functions("matmul linalg.matmul", "x1, x2, /", F, F),
    **_functions("matrix_transpose linalg.matrix_transpose", "x, /"),
    **_functions("tensordot linalg.tensordot", "x1, x2, /, *, axes=2", F, F),
    **_functions("vecdot linalg.vecdot", "x1, x2, /, *, axis=-1", F, F),
    **_functions("linalg.cholesky", "x, /, *, upper=False"),
    **_functions("linalg.cross", "x1, x2, /, *, axis=-1", V, V),
    **_functions("linalg.diagonal", "x, /, *, offset=0"),
    **_functions("linalg.det linalg.eigh linalg.eigvalsh linalg.inv linalg.slogdet linalg.svdvals", "x, /"),
    **_functions("linalg.matrix_norm", "x, /, *, keepdims=False, ord='fro'"),
    **_functions("linalg.matrix_power", "x, n, /", F, 3),
    **_functions("linalg.matrix_rank linalg.pinv", "x, /, *, rtol=None"),
    **_functions("linalg.outer", "x1, x2, /", V, V),
    **_functions("linalg.qr", "x, /, *, mode='reduced'"),
    **_functions("linalg.solve", "x1, x2, /", F, F),
    **_functions("linalg.svd", "x, /, *, full_matrices=True"),
    **_functions("linalg.trace", "x, /, *, offset=0, dtype=None"),
    **_functions("linalg.vector_norm", "x, /, *, axis=None, keepdims=False, ord=2"),
    # Fourier transforms
    **_functions("fft.fft fft.ifft fft.irfft fft.hfft", ONE_AXIS, C),
    **_functions("fft.rfft fft.ihfft", ONE_AXIS),
    **_functions("fft.fftn fft.ifftn fft.irfftn", MANY_AXES, C),
    **_functions("fft.rfftn", MANY_AXES),
    **_functions("fft.fftfreq fft.rfftfreq", "n, /, *, d=1.0, dtype=None, device=None", 8),
    **_functions("fft.fftshift fft.ifftshift", "x, /, *, axes=None"),
}
"""The parameters of each function, and its operands by position: types of arrays, and other values."""

OPERATORS = "add and floordiv lshift matmul mod mul or pow rshift sub truediv xor"
METHODS = """
    __abs__ __array_namespace__ __bool__ __complex__ __dlpack__ __dlpack_device__ __eq__ __float__ __ge__ __getitem__
    __gt__ __index__ __int__ __invert__ __le__ __lt__ __ne__ __neg__ __pos__ __setitem__ to_device
    T device dtype mT ndim shape size
"""
