"""Parameters of the functions of the Python array API standard 2024.12."""

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
SORTED = "x, /, *, axis=-1, descending=False, stable=True"
CUMULATIVE = "x, /, *, axis=None, dtype=None, include_initial=False"
ONE_AXIS = "x, /, *, n=None, axis=-1, norm='backward'"
MANY_AXES = "x, /, *, s=None, axes=None, norm='backward'"
FUNCTIONS = {
    **dict.fromkeys(UNARY.split(), "x, /"),
    **dict.fromkeys(BINARY.split(), "x1, x2, /"),
    "clip": "x, /, min=None, max=None",
    # Creation
    "arange": f"start, /, stop=None, step=1, {LIKE}",
    "asarray": "obj, /, *, dtype=None, device=None, copy=None",
    "empty": f"shape, {LIKE}",
    "empty_like": f"x, /, {LIKE}",
    "eye": "n_rows, n_cols=None, /, *, k=0, dtype=None, device=None",
    "from_dlpack": "x, /, *, device=None, copy=None",
    "full": f"shape, fill_value, {LIKE}",
    "full_like": f"x, /, fill_value, {LIKE}",
    "linspace": "start, stop, /, num, *, dtype=None, device=None, endpoint=True",
    "meshgrid": "*arrays, indexing='xy'",
    "ones": f"shape, {LIKE}",
    "ones_like": f"x, /, {LIKE}",
    "tril": "x, /, *, k=0",
    "triu": "x, /, *, k=0",
    "zeros": f"shape, {LIKE}",
    "zeros_like": f"x, /, {LIKE}",
    # Data types
    "astype": "x, dtype, /, *, copy=True, device=None",
    "can_cast": "from_, to, /",
    "finfo": "type, /",
    "iinfo": "type, /",
    "isdtype": "dtype, kind",
    "result_type": "*arrays_and_dtypes",
    # Indexing and searching
    "take": "x, indices, /, *, axis=None",
    "take_along_axis": "x, indices, /, *, axis=-1",
    "argmax": WITH_AXES,
    "argmin": WITH_AXES,
    "count_nonzero": WITH_AXES,
    "nonzero": "x, /",
    "searchsorted": "x1, x2, /, *, side='left', sorter=None",
    "where": "condition, x1, x2, /",
    # Manipulation
    "broadcast_arrays": "*arrays",
    "broadcast_to": "x, /, shape",
    "concat": "arrays, /, *, axis=0",
    "expand_dims": "x, /, axis",
    "flip": "x, /, *, axis=None",
    "moveaxis": "x, source, destination, /",
    "permute_dims": "x, /, axes",
    "repeat": "x, repeats, /, *, axis=None",
    "reshape": "x, /, shape, *, copy=None",
    "roll": "x, /, shift, *, axis=None",
    "squeeze": "x, /, axis",
    "stack": "arrays, /, *, axis=0",
    "tile": "x, repetitions, /",
    "unstack": "x, /, *, axis=0",
    # Sets and sorting
    **dict.fromkeys(("unique_all", "unique_counts", "unique_inverse", "unique_values"), "x, /"),
    "argsort": SORTED,
    "sort": SORTED,
    # Statistics and utilities
    **dict.fromkeys(("max", "mean", "min", "all", "any"), WITH_AXES),
    **dict.fromkeys(("prod", "sum"), "x, /, *, axis=None, dtype=None, keepdims=False"),
    **dict.fromkeys(("std", "var"), "x, /, *, axis=None, correction=0, keepdims=False"),
    **dict.fromkeys(("cumulative_prod", "cumulative_sum"), CUMULATIVE),
    "diff": "x, /, *, axis=-1, n=1, prepend=None, append=None",
    # Products
    "matmul": "x1, x2, /",
    "matrix_transpose": "x, /",
    "tensordot": "x1, x2, /, *, axes=2",
    "vecdot": "x1, x2, /, *, axis=-1",
    # Extensions
    "linalg.cholesky": "x, /, *, upper=False",
    "linalg.cross": "x1, x2, /, *, axis=-1",
    "linalg.diagonal": "x, /, *, offset=0",
    **{f"linalg.{name}": "x, /" for name in ("det", "eigh", "eigvalsh", "inv", "slogdet", "svdvals")},
    "linalg.matmul": "x1, x2, /",
    "linalg.matrix_norm": "x, /, *, keepdims=False, ord='fro'",
    "linalg.matrix_power": "x, n, /",
    "linalg.matrix_rank": "x, /, *, rtol=None",
    "linalg.matrix_transpose": "x, /",
    "linalg.outer": "x1, x2, /",
    "linalg.pinv": "x, /, *, rtol=None",
    "linalg.qr": "x, /, *, mode='reduced'",
    "linalg.solve": "x1, x2, /",
    "linalg.svd": "x, /, *, full_matrices=True",
    "linalg.tensordot": "x1, x2, /, *, axes=2",
    "linalg.trace": "x, /, *, offset=0, dtype=None",
    "linalg.vecdot": "x1, x2, /, *, axis=-1",
    "linalg.vector_norm": "x, /, *, axis=None, keepdims=False, ord=2",
    **{f"fft.{name}": ONE_AXIS for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")},
    **{f"fft.{name}": MANY_AXES for name in ("fftn", "ifftn", "rfftn", "irfftn")},
    "fft.fftfreq": "n, /, *, d=1.0, dtype=None, device=None",
    "fft.rfftfreq": "n, /, *, d=1.0, dtype=None, device=None",
    "fft.fftshift": "x, /, *, axes=None",
    "fft.ifftshift": "x, /, *, axes=None",
}
"""The functions of the standard, with their parameters."""

OPERATORS = "add and floordiv lshift matmul mod mul or pow rshift sub truediv xor"
METHODS = """
    __abs__ __array_namespace__ __bool__ __complex__ __dlpack__ __dlpack_device__ __eq__ __float__ __ge__ __getitem__
    __gt__ __index__ __int__ __invert__ __le__ __lt__ __ne__ __neg__ __pos__ __setitem__ to_device
    T device dtype mT ndim shape size
"""
