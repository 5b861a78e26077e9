"""Functions of arrays with the names and arguments of NumPy, whose results stay on the mesh."""

from __future__ import annotations

import math
from typing import Final

import ml_dtypes
import numpy as np

from shardcall.methods import KernelMethods
from shardcall.namespace import (
    arithmetic,
    bessel,
    callables,
    contractions,
    control_flow,
    counting,
    creation,
    elements,
    indexing,
    inspection,
    joins,
    numeric,
    polynomials,
    positions,
    quantiles,
    ranges,
    searching,
    selection,
    set_operations,
    sets,
    shapes,
    standard,
    statistics,
    writing,
)
from shardcall.namespace.arithmetic import angle, power
from shardcall.namespace.base import NamespaceBase
from shardcall.namespace.contractions import einsum
from shardcall.namespace.counting import interp, searchsorted
from shardcall.namespace.emath import EmathNamespace
from shardcall.namespace.fft import FftNamespace
from shardcall.namespace.joins import concatenate, stack
from shardcall.namespace.lib import LibNamespace
from shardcall.namespace.linalg import LinalgNamespace
from shardcall.namespace.ndimage import NdimageNamespace
from shardcall.namespace.padding import pad
from shardcall.namespace.searching import where
from shardcall.namespace.special import SpecialNamespace
from shardcall.namespace.standard import (
    argsort,
    astype,
    copy,
    expand_dims,
    gradient,
    mean,
    repeat,
    reshape,
    sort,
    squeeze,
    std,
    take,
    take_along_axis,
    var,
)
from shardcall_core.functions.table import FUNCTIONS


class Namespace(NamespaceBase):
    """Functions of arrays with the names and arguments of NumPy and of the Python array API standard.

    Their results stay on the mesh, as those of `Client.submit`. No function waits for its result, but those with as
    many elements as the values say, such as `nonzero`, wait for the number. A function takes arrays on the mesh, arrays
    of this process and numbers; it runs where its committed operands are.
    """

    pi: float = math.pi
    e: float = math.e
    inf: float = math.inf
    nan: float = math.nan
    newaxis: None = None

    bool: type[np.bool] = np.bool
    bool_: type[np.bool] = np.bool
    int8: type[np.int8] = np.int8
    int16: type[np.int16] = np.int16
    int32: type[np.int32] = np.int32
    int64: type[np.int64] = np.int64
    uint8: type[np.uint8] = np.uint8
    uint16: type[np.uint16] = np.uint16
    uint32: type[np.uint32] = np.uint32
    uint64: type[np.uint64] = np.uint64
    float16: type[np.float16] = np.float16
    float32: type[np.float32] = np.float32
    float64: type[np.float64] = np.float64
    complex64: type[np.complex64] = np.complex64
    complex128: type[np.complex128] = np.complex128
    bfloat16: type[np.generic] = ml_dtypes.bfloat16
    int4: type[np.generic] = ml_dtypes.int4
    uint4: type[np.generic] = ml_dtypes.uint4
    float8_e4m3fn: type[np.generic] = ml_dtypes.float8_e4m3fn
    float8_e5m2: type[np.generic] = ml_dtypes.float8_e5m2

    __array_api_version__ = inspection.STANDARD_VERSION

    def __array_namespace_info__(self) -> inspection.NamespaceInfo:
        """Returns the devices and the element types."""
        return inspection.NamespaceInfo()

    @property
    def fft(self) -> FftNamespace:
        """Fourier transforms."""
        return FftNamespace(self)

    @property
    def linalg(self) -> LinalgNamespace:
        """Linear algebra."""
        return LinalgNamespace(self)

    @property
    def emath(self) -> EmathNamespace:
        """Functions whose results are complex where real numbers have none."""
        return EmathNamespace(self)

    @property
    def lib(self) -> LibNamespace:
        """Windows of arrays."""
        return LibNamespace(self)

    @property
    def ndimage(self) -> NdimageNamespace:
        """Filters of images."""
        return NdimageNamespace(self)

    @property
    def special(self) -> SpecialNamespace:
        """Functions of mathematical physics and statistics."""
        return SpecialNamespace(self)

    @property
    def function_names(self) -> frozenset[str]:
        """The names of the functions."""
        return _NAMES

    # Functions that the base class has, too, with other arguments. By their own names, of which type checkers know the
    # types; of another expression they would take the type that the base class declares.
    angle = angle
    power = power
    einsum = einsum
    searchsorted = searchsorted
    interp = interp
    where = where
    astype = astype
    copy = copy
    reshape = reshape
    sort = sort
    argsort = argsort
    var = var
    std = std
    repeat = repeat
    gradient = gradient
    take = take
    take_along_axis = take_along_axis
    squeeze = squeeze
    expand_dims = expand_dims
    mean = mean
    concatenate = concatenate
    stack = stack
    pad = pad

    # All others; `Final`, so that type checkers take the types of the functions.
    round: Final = arithmetic.round
    ptp: Final = arithmetic.ptp
    apply_along_axis: Final = callables.apply_along_axis
    apply_over_axes: Final = callables.apply_over_axes
    piecewise: Final = callables.piecewise
    count_nonzero: Final = arithmetic.count_nonzero
    isclose: Final = arithmetic.isclose
    allclose: Final = arithmetic.allclose
    array_equal: Final = arithmetic.array_equal
    array_equiv: Final = arithmetic.array_equiv
    i0: Final = bessel.i0
    dot: Final = contractions.dot
    tensordot: Final = contractions.tensordot
    vecdot: Final = contractions.vecdot
    matvec: Final = contractions.matvec
    vecmat: Final = contractions.vecmat
    vdot: Final = contractions.vdot
    inner: Final = contractions.inner
    outer: Final = contractions.outer
    kron: Final = contractions.kron
    cross: Final = contractions.cross
    fori_loop: Final = control_flow.fori_loop
    while_loop: Final = control_flow.while_loop
    scan: Final = control_flow.scan
    cond: Final = control_flow.cond
    with_spec: Final = control_flow.with_spec
    digitize: Final = counting.digitize
    bincount: Final = counting.bincount
    histogram_bin_edges: Final = counting.histogram_bin_edges
    histogram: Final = counting.histogram
    histogram2d: Final = counting.histogram2d
    histogramdd: Final = counting.histogramdd
    full: Final = creation.full
    zeros: Final = creation.zeros
    ones: Final = creation.ones
    empty: Final = creation.empty
    full_like: Final = creation.full_like
    zeros_like: Final = creation.zeros_like
    ones_like: Final = creation.ones_like
    empty_like: Final = creation.empty_like
    eye: Final = creation.eye
    identity: Final = creation.identity
    tri: Final = creation.tri
    asarray: Final = creation.asarray
    array: Final = creation.array
    from_dlpack: Final = creation.from_dlpack
    meshgrid: Final = creation.meshgrid
    fromfunction: Final = creation.fromfunction
    ldexp: Final = elements.ldexp
    frexp: Final = elements.frexp
    isreal: Final = elements.isreal
    iscomplex: Final = elements.iscomplex
    real_if_close: Final = elements.real_if_close
    sort_complex: Final = elements.sort_complex
    packbits: Final = elements.packbits
    unpackbits: Final = elements.unpackbits
    bitwise_count: Final = elements.bitwise_count
    spacing: Final = elements.spacing
    getitem: Final = indexing.getitem
    setitem: Final = indexing.setitem
    update: Final = indexing.update
    finfo: Final = inspection.finfo
    iinfo: Final = inspection.iinfo
    can_cast: Final = inspection.can_cast
    isdtype: Final = inspection.isdtype
    result_type: Final = inspection.result_type
    broadcast_shapes: Final = inspection.broadcast_shapes
    atleast_1d: Final = joins.atleast_1d
    atleast_2d: Final = joins.atleast_2d
    atleast_3d: Final = joins.atleast_3d
    hstack: Final = joins.hstack
    vstack: Final = joins.vstack
    dstack: Final = joins.dstack
    column_stack: Final = joins.column_stack
    array_split: Final = joins.array_split
    split: Final = joins.split
    hsplit: Final = joins.hsplit
    vsplit: Final = joins.vsplit
    dsplit: Final = joins.dsplit
    fliplr: Final = joins.fliplr
    flipud: Final = joins.flipud
    rot90: Final = joins.rot90
    divmod: Final = numeric.divmod
    modf: Final = numeric.modf
    fix: Final = numeric.fix
    heaviside: Final = numeric.heaviside
    isneginf: Final = numeric.isneginf
    isposinf: Final = numeric.isposinf
    nan_to_num: Final = numeric.nan_to_num
    sinc: Final = numeric.sinc
    cumulative_sum: Final = numeric.cumulative_sum
    cumulative_prod: Final = numeric.cumulative_prod
    correlate: Final = numeric.correlate
    trapezoid: Final = numeric.trapezoid
    ediff1d: Final = numeric.ediff1d
    unwrap: Final = numeric.unwrap
    vander: Final = polynomials.vander
    poly: Final = polynomials.poly
    roots: Final = polynomials.roots
    polyval: Final = polynomials.polyval
    polyadd: Final = polynomials.polyadd
    polysub: Final = polynomials.polysub
    polymul: Final = polynomials.polymul
    polydiv: Final = polynomials.polydiv
    polyder: Final = polynomials.polyder
    polyint: Final = polynomials.polyint
    polyfit: Final = polynomials.polyfit
    choose: Final = positions.choose
    ravel_multi_index: Final = positions.ravel_multi_index
    diag_indices_from: Final = positions.diag_indices_from
    ix_: Final = positions.ix_
    block: Final = positions.block
    median: Final = quantiles.median
    nanmedian: Final = quantiles.nanmedian
    quantile: Final = quantiles.quantile
    percentile: Final = quantiles.percentile
    nanquantile: Final = quantiles.nanquantile
    nanpercentile: Final = quantiles.nanpercentile
    arange: Final = ranges.arange
    linspace: Final = ranges.linspace
    logspace: Final = ranges.logspace
    geomspace: Final = ranges.geomspace
    flatnonzero: Final = searching.flatnonzero
    nonzero: Final = searching.nonzero
    argwhere: Final = searching.argwhere
    compress: Final = searching.compress
    extract: Final = searching.extract
    trim_zeros: Final = searching.trim_zeros
    unique: Final = searching.unique
    isin: Final = selection.isin
    select: Final = selection.select
    put_along_axis: Final = selection.put_along_axis
    lexsort: Final = selection.lexsort
    append: Final = selection.append
    delete: Final = selection.delete
    insert: Final = selection.insert
    resize: Final = selection.resize
    diag: Final = selection.diag
    diagflat: Final = selection.diagflat
    unravel_index: Final = selection.unravel_index
    partition: Final = selection.partition
    argpartition: Final = selection.argpartition
    union1d: Final = set_operations.union1d
    intersect1d: Final = set_operations.intersect1d
    setdiff1d: Final = set_operations.setdiff1d
    setxor1d: Final = set_operations.setxor1d
    unique_all: Final = sets.unique_all
    unique_counts: Final = sets.unique_counts
    unique_inverse: Final = sets.unique_inverse
    unique_values: Final = sets.unique_values
    ravel: Final = shapes.ravel
    matrix_transpose: Final = shapes.matrix_transpose
    swapaxes: Final = shapes.swapaxes
    moveaxis: Final = shapes.moveaxis
    rollaxis: Final = shapes.rollaxis
    broadcast_arrays: Final = shapes.broadcast_arrays
    unstack: Final = shapes.unstack
    shape: Final = shapes.shape
    ndim: Final = shapes.ndim
    size: Final = shapes.size
    iscomplexobj: Final = shapes.iscomplexobj
    isrealobj: Final = shapes.isrealobj
    nextafter: Final = standard.nextafter
    nansum: Final = statistics.nansum
    nanprod: Final = statistics.nanprod
    nanmax: Final = statistics.nanmax
    nanmin: Final = statistics.nanmin
    nanargmax: Final = statistics.nanargmax
    nanargmin: Final = statistics.nanargmin
    nanmean: Final = statistics.nanmean
    nanvar: Final = statistics.nanvar
    nanstd: Final = statistics.nanstd
    nancumsum: Final = statistics.nancumsum
    nancumprod: Final = statistics.nancumprod
    average: Final = statistics.average
    cov: Final = statistics.cov
    corrcoef: Final = statistics.corrcoef
    logsumexp: Final = statistics.logsumexp
    softmax: Final = statistics.softmax
    log_softmax: Final = statistics.log_softmax
    copyto: Final = writing.copyto
    put: Final = writing.put
    place: Final = writing.place
    putmask: Final = writing.putmask
    fill_diagonal: Final = writing.fill_diagonal

    # The names of the Python array API standard, and second names of NumPy's.
    acos: Final = KernelMethods.arccos
    asin: Final = KernelMethods.arcsin
    atan: Final = KernelMethods.arctan
    acosh: Final = KernelMethods.arccosh
    asinh: Final = KernelMethods.arcsinh
    atanh: Final = KernelMethods.arctanh
    atan2: Final = KernelMethods.arctan2
    bitwise_invert: Final = KernelMethods.invert
    bitwise_not: Final = KernelMethods.invert
    bitwise_left_shift: Final = KernelMethods.left_shift
    bitwise_right_shift: Final = KernelMethods.right_shift
    conj: Final = KernelMethods.conjugate
    concat: Final = KernelMethods.concatenate
    permute_dims: Final = KernelMethods.transpose
    pow: Final = KernelMethods.power


def _function_names() -> frozenset[str]:
    defined = {name for name, value in vars(Namespace).items() if callable(value) and not isinstance(value, type)}
    return frozenset(name for name in defined | (FUNCTIONS.keys() & dir(Namespace)) if not name.startswith("_"))


_NAMES = _function_names() | {"emath", "fft", "lib", "linalg", "special"}
