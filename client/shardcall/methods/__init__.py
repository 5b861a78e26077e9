"""The methods of kernels, with the names and defaults of their NumPy equivalents."""

from __future__ import annotations

from shardcall.methods.differences import diff, gradient, laplacian, roll, shift
from shardcall.methods.elementwise import Binary, Unary, binary, clip, unary, where
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

    sin: Unary = unary("sin")
    cos: Unary = unary("cos")
    tan: Unary = unary("tan")
    arcsin: Unary = unary("arcsin")
    arccos: Unary = unary("arccos")
    arctan: Unary = unary("arctan")
    sinh: Unary = unary("sinh")
    cosh: Unary = unary("cosh")
    tanh: Unary = unary("tanh")
    arcsinh: Unary = unary("arcsinh")
    arccosh: Unary = unary("arccosh")
    arctanh: Unary = unary("arctanh")
    degrees: Unary = unary("degrees")
    radians: Unary = unary("radians")
    exp: Unary = unary("exp")
    exp2: Unary = unary("exp2")
    expm1: Unary = unary("expm1")
    log: Unary = unary("log")
    log2: Unary = unary("log2")
    log10: Unary = unary("log10")
    log1p: Unary = unary("log1p")
    sqrt: Unary = unary("sqrt")
    cbrt: Unary = unary("cbrt")
    square: Unary = unary("square")
    reciprocal: Unary = unary("reciprocal")
    absolute: Unary = unary("absolute")
    abs: Unary = unary("abs")
    negative: Unary = unary("negative")
    positive: Unary = unary("positive")
    sign: Unary = unary("sign")
    floor: Unary = unary("floor")
    ceil: Unary = unary("ceil")
    trunc: Unary = unary("trunc")
    rint: Unary = unary("rint")
    conjugate: Unary = unary("conjugate")
    real: Unary = unary("real")
    imag: Unary = unary("imag")
    angle: Unary = unary("angle")
    isnan: Unary = unary("isnan")
    isinf: Unary = unary("isinf")
    isfinite: Unary = unary("isfinite")
    signbit: Unary = unary("signbit")
    logical_not: Unary = unary("logical_not")
    invert: Unary = unary("invert")
    add: Binary = binary("add")
    subtract: Binary = binary("subtract")
    multiply: Binary = binary("multiply")
    divide: Binary = binary("divide")
    true_divide: Binary = binary("true_divide")
    floor_divide: Binary = binary("floor_divide")
    remainder: Binary = binary("remainder")
    mod: Binary = binary("mod")
    fmod: Binary = binary("fmod")
    power: Binary = binary("power")
    float_power: Binary = binary("float_power")
    arctan2: Binary = binary("arctan2")
    hypot: Binary = binary("hypot")
    logaddexp: Binary = binary("logaddexp")
    logaddexp2: Binary = binary("logaddexp2")
    copysign: Binary = binary("copysign")
    maximum: Binary = binary("maximum")
    minimum: Binary = binary("minimum")
    fmax: Binary = binary("fmax")
    fmin: Binary = binary("fmin")
    equal: Binary = binary("equal")
    not_equal: Binary = binary("not_equal")
    less: Binary = binary("less")
    less_equal: Binary = binary("less_equal")
    greater: Binary = binary("greater")
    greater_equal: Binary = binary("greater_equal")
    logical_and: Binary = binary("logical_and")
    logical_or: Binary = binary("logical_or")
    logical_xor: Binary = binary("logical_xor")
    bitwise_and: Binary = binary("bitwise_and")
    bitwise_or: Binary = binary("bitwise_or")
    bitwise_xor: Binary = binary("bitwise_xor")
    left_shift: Binary = binary("left_shift")
    right_shift: Binary = binary("right_shift")
    gcd: Binary = binary("gcd")
    lcm: Binary = binary("lcm")
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
