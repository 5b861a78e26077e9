"""The methods of kernels, with the names and defaults of their NumPy equivalents."""

from __future__ import annotations

from shardcall.methods.differences import diff, gradient, laplacian, roll, shift
from shardcall.methods.elementwise import BinaryMethod, UnaryMethod, binary, clip, unary, where
from shardcall.methods.kernel_method import KernelCaller, Outcome
from shardcall.methods.layouts import copy, reshard, transpose
from shardcall.methods.products import collective_matmul, einsum, matmul
from shardcall.methods.random import normal, permutation, randint, uniform
from shardcall.methods.reductions import all, any, argmax, argmin, max, mean, min, prod, std, sum, var
from shardcall.methods.scans import convolve, cumsum
from shardcall.methods.shapes import (
    astype,
    broadcast_to,
    concatenate,
    diagonal,
    expand_dims,
    flip,
    pad,
    repeat,
    reshape,
    squeeze,
    stack,
    tile,
    trace,
    tril,
    triu,
)
from shardcall.methods.sorting import argsort, sort, take, take_along_axis
from shardcall.methods.statistics import cumprod, interp, searchsorted


class KernelMethods(KernelCaller[Outcome]):
    """The methods of kernels, with the names and defaults of their NumPy equivalents.

    The methods of a client return a `shardcall.Result`, those of an `aio` client an awaitable of one. Its array is of
    NumPy's class, and a `shardcall.RemoteArray` with ``keep=True``.
    """

    # By their own names: of other expressions the type checkers of users would infer the types, each in its way.
    diff = diff
    shift = shift
    roll = roll
    gradient = gradient
    laplacian = laplacian

    matmul = matmul
    einsum = einsum
    collective_matmul = collective_matmul

    uniform = uniform
    normal = normal
    randint = randint
    permutation = permutation

    cumsum = cumsum
    convolve = convolve

    sin: UnaryMethod = unary("sin")
    cos: UnaryMethod = unary("cos")
    tan: UnaryMethod = unary("tan")
    arcsin: UnaryMethod = unary("arcsin")
    arccos: UnaryMethod = unary("arccos")
    arctan: UnaryMethod = unary("arctan")
    sinh: UnaryMethod = unary("sinh")
    cosh: UnaryMethod = unary("cosh")
    tanh: UnaryMethod = unary("tanh")
    arcsinh: UnaryMethod = unary("arcsinh")
    arccosh: UnaryMethod = unary("arccosh")
    arctanh: UnaryMethod = unary("arctanh")
    degrees: UnaryMethod = unary("degrees")
    radians: UnaryMethod = unary("radians")
    exp: UnaryMethod = unary("exp")
    exp2: UnaryMethod = unary("exp2")
    expm1: UnaryMethod = unary("expm1")
    log: UnaryMethod = unary("log")
    log2: UnaryMethod = unary("log2")
    log10: UnaryMethod = unary("log10")
    log1p: UnaryMethod = unary("log1p")
    sqrt: UnaryMethod = unary("sqrt")
    cbrt: UnaryMethod = unary("cbrt")
    square: UnaryMethod = unary("square")
    reciprocal: UnaryMethod = unary("reciprocal")
    absolute: UnaryMethod = unary("absolute")
    abs: UnaryMethod = unary("abs")
    negative: UnaryMethod = unary("negative")
    positive: UnaryMethod = unary("positive")
    sign: UnaryMethod = unary("sign")
    floor: UnaryMethod = unary("floor")
    ceil: UnaryMethod = unary("ceil")
    trunc: UnaryMethod = unary("trunc")
    rint: UnaryMethod = unary("rint")
    conjugate: UnaryMethod = unary("conjugate")
    real: UnaryMethod = unary("real")
    imag: UnaryMethod = unary("imag")
    angle: UnaryMethod = unary("angle")
    isnan: UnaryMethod = unary("isnan")
    isinf: UnaryMethod = unary("isinf")
    isfinite: UnaryMethod = unary("isfinite")
    signbit: UnaryMethod = unary("signbit")
    logical_not: UnaryMethod = unary("logical_not")
    invert: UnaryMethod = unary("invert")
    add: BinaryMethod = binary("add")
    subtract: BinaryMethod = binary("subtract")
    multiply: BinaryMethod = binary("multiply")
    divide: BinaryMethod = binary("divide")
    true_divide: BinaryMethod = binary("true_divide")
    floor_divide: BinaryMethod = binary("floor_divide")
    remainder: BinaryMethod = binary("remainder")
    mod: BinaryMethod = binary("mod")
    fmod: BinaryMethod = binary("fmod")
    power: BinaryMethod = binary("power")
    float_power: BinaryMethod = binary("float_power")
    arctan2: BinaryMethod = binary("arctan2")
    hypot: BinaryMethod = binary("hypot")
    logaddexp: BinaryMethod = binary("logaddexp")
    logaddexp2: BinaryMethod = binary("logaddexp2")
    copysign: BinaryMethod = binary("copysign")
    maximum: BinaryMethod = binary("maximum")
    minimum: BinaryMethod = binary("minimum")
    fmax: BinaryMethod = binary("fmax")
    fmin: BinaryMethod = binary("fmin")
    equal: BinaryMethod = binary("equal")
    not_equal: BinaryMethod = binary("not_equal")
    less: BinaryMethod = binary("less")
    less_equal: BinaryMethod = binary("less_equal")
    greater: BinaryMethod = binary("greater")
    greater_equal: BinaryMethod = binary("greater_equal")
    logical_and: BinaryMethod = binary("logical_and")
    logical_or: BinaryMethod = binary("logical_or")
    logical_xor: BinaryMethod = binary("logical_xor")
    bitwise_and: BinaryMethod = binary("bitwise_and")
    bitwise_or: BinaryMethod = binary("bitwise_or")
    bitwise_xor: BinaryMethod = binary("bitwise_xor")
    left_shift: BinaryMethod = binary("left_shift")
    right_shift: BinaryMethod = binary("right_shift")
    gcd: BinaryMethod = binary("gcd")
    lcm: BinaryMethod = binary("lcm")
    where = where
    clip = clip

    sum = sum
    prod = prod
    mean = mean
    var = var
    std = std
    max = max
    min = min
    argmax = argmax
    argmin = argmin
    any = any
    all = all

    reshard = reshard
    copy = copy
    transpose = transpose

    reshape = reshape
    expand_dims = expand_dims
    squeeze = squeeze
    broadcast_to = broadcast_to
    flip = flip
    concatenate = concatenate
    stack = stack
    astype = astype
    tile = tile
    repeat = repeat
    tril = tril
    triu = triu
    diagonal = diagonal
    trace = trace
    pad = pad

    sort = sort
    argsort = argsort
    take = take
    take_along_axis = take_along_axis

    cumprod = cumprod
    searchsorted = searchsorted
    interp = interp
