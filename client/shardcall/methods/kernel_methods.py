"""The methods of kernels, with the names and defaults of their NumPy equivalents.

Written by `make functions` from `shardcall_core.functions`, where a function's row says what its method takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex, Unpack

import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.methods.kernel_caller import (
    ArrayOptions,
    Axes,
    Axis,
    BinaryOptions,
    ClipOptions,
    KernelCaller,
    Options,
    Outcome,
    ProductOptions,
    WhereOptions,
    Widths,
    kernel_method,
)
from shardcall.methods.seeds import seeded


class KernelMethods(KernelCaller[Outcome]):
    """The methods of kernels, with the names and defaults of their NumPy equivalents.

    The methods of a client return a `shardcall.Result`, those of an `aio` client an awaitable of one. Its array is of
    NumPy's class, and a `shardcall.RemoteArray` with ``keep=True``.
    """

    @kernel_method
    def sin(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns sin(x), element by element, as ``numpy.sin``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.sin([0.25, 0.5])
        """
        return self._named("sin", x, options=options)

    @kernel_method
    def cos(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns cos(x), element by element, as ``numpy.cos``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.cos([0.25, 0.5])
        """
        return self._named("cos", x, options=options)

    @kernel_method
    def tan(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns tan(x), element by element, as ``numpy.tan``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.tan([0.25, 0.5])
        """
        return self._named("tan", x, options=options)

    @kernel_method
    def arcsin(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns arcsin(x), element by element, as ``numpy.arcsin``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.arcsin([0.25, 0.5])
        """
        return self._named("arcsin", x, options=options)

    @kernel_method
    def arccos(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns arccos(x), element by element, as ``numpy.arccos``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.arccos([0.25, 0.5])
        """
        return self._named("arccos", x, options=options)

    @kernel_method
    def arctan(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns arctan(x), element by element, as ``numpy.arctan``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.arctan([0.25, 0.5])
        """
        return self._named("arctan", x, options=options)

    @kernel_method
    def sinh(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns sinh(x), element by element, as ``numpy.sinh``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.sinh([0.25, 0.5])
        """
        return self._named("sinh", x, options=options)

    @kernel_method
    def cosh(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns cosh(x), element by element, as ``numpy.cosh``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.cosh([0.25, 0.5])
        """
        return self._named("cosh", x, options=options)

    @kernel_method
    def tanh(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns tanh(x), element by element, as ``numpy.tanh``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.tanh([0.25, 0.5])
        """
        return self._named("tanh", x, options=options)

    @kernel_method
    def arcsinh(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns arcsinh(x), element by element, as ``numpy.arcsinh``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.arcsinh([0.25, 0.5])
        """
        return self._named("arcsinh", x, options=options)

    @kernel_method
    def arccosh(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns arccosh(x), element by element, as ``numpy.arccosh``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.arccosh([1.5, 2.0])
        """
        return self._named("arccosh", x, options=options)

    @kernel_method
    def arctanh(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns arctanh(x), element by element, as ``numpy.arctanh``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.arctanh([0.25, 0.5])
        """
        return self._named("arctanh", x, options=options)

    @kernel_method
    def degrees(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns degrees(x), element by element, as ``numpy.degrees``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.degrees([0.25, 0.5])
        """
        return self._named("degrees", x, options=options)

    @kernel_method
    def radians(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns radians(x), element by element, as ``numpy.radians``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.radians([0.25, 0.5])
        """
        return self._named("radians", x, options=options)

    @kernel_method
    def exp(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns exp(x), element by element, as ``numpy.exp``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.exp([0.25, 0.5])
        """
        return self._named("exp", x, options=options)

    @kernel_method
    def exp2(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns exp2(x), element by element, as ``numpy.exp2``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.exp2([0.25, 0.5])
        """
        return self._named("exp2", x, options=options)

    @kernel_method
    def expm1(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns expm1(x), element by element, as ``numpy.expm1``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.expm1([0.25, 0.5])
        """
        return self._named("expm1", x, options=options)

    @kernel_method
    def log(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns log(x), element by element, as ``numpy.log``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.log([0.25, 0.5])
        """
        return self._named("log", x, options=options)

    @kernel_method
    def log2(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns log2(x), element by element, as ``numpy.log2``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.log2([0.25, 0.5])
        """
        return self._named("log2", x, options=options)

    @kernel_method
    def log10(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns log10(x), element by element, as ``numpy.log10``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.log10([0.25, 0.5])
        """
        return self._named("log10", x, options=options)

    @kernel_method
    def log1p(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns log1p(x), element by element, as ``numpy.log1p``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.log1p([0.25, 0.5])
        """
        return self._named("log1p", x, options=options)

    @kernel_method
    def sqrt(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns sqrt(x), element by element, as ``numpy.sqrt``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.sqrt([0.25, 0.5])
        """
        return self._named("sqrt", x, options=options)

    @kernel_method
    def cbrt(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns cbrt(x), element by element, as ``numpy.cbrt``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.cbrt([0.25, 0.5])
        """
        return self._named("cbrt", x, options=options)

    @kernel_method
    def square(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns square(x), element by element, as ``numpy.square``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.square([0.25, 0.5])
        """
        return self._named("square", x, options=options)

    @kernel_method
    def reciprocal(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns reciprocal(x), element by element, as ``numpy.reciprocal``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.reciprocal([0.25, 0.5])
        """
        return self._named("reciprocal", x, options=options)

    @kernel_method
    def absolute(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns absolute(x), element by element, as ``numpy.absolute``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.absolute([0.25, 0.5])
        """
        return self._named("absolute", x, options=options)

    @kernel_method
    def abs(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns abs(x), element by element, as ``numpy.abs``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.abs([0.25, 0.5])
        """
        return self._named("abs", x, options=options)

    @kernel_method
    def negative(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns negative(x), element by element, as ``numpy.negative``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.negative([0.25, 0.5])
        """
        return self._named("negative", x, options=options)

    @kernel_method
    def positive(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns positive(x), element by element, as ``numpy.positive``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.positive([0.25, 0.5])
        """
        return self._named("positive", x, options=options)

    @kernel_method
    def sign(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns sign(x), element by element, as ``numpy.sign``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.sign([0.25, 0.5])
        """
        return self._named("sign", x, options=options)

    @kernel_method
    def floor(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns floor(x), element by element, as ``numpy.floor``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.floor([0.25, 0.5])
        """
        return self._named("floor", x, options=options)

    @kernel_method
    def ceil(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns ceil(x), element by element, as ``numpy.ceil``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.ceil([0.25, 0.5])
        """
        return self._named("ceil", x, options=options)

    @kernel_method
    def trunc(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns trunc(x), element by element, as ``numpy.trunc``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.trunc([0.25, 0.5])
        """
        return self._named("trunc", x, options=options)

    @kernel_method
    def rint(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns rint(x), element by element, as ``numpy.rint``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.rint([0.25, 0.5])
        """
        return self._named("rint", x, options=options)

    @kernel_method
    def conjugate(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns conjugate(x), element by element, as ``numpy.conjugate``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.conjugate([0.25, 0.5])
        """
        return self._named("conjugate", x, options=options)

    @kernel_method
    def real(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns real(x), element by element, as ``numpy.real``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.real([0.25, 0.5])
        """
        return self._named("real", x, options=options)

    @kernel_method
    def imag(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns imag(x), element by element, as ``numpy.imag``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.imag([0.25, 0.5])
        """
        return self._named("imag", x, options=options)

    @kernel_method
    def angle(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns angle(x), element by element, as ``numpy.angle``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.angle([0.25, 0.5])
        """
        return self._named("angle", x, options=options)

    @kernel_method
    def isnan(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns isnan(x), element by element, as ``numpy.isnan``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.isnan([0.25, 0.5])
        """
        return self._named("isnan", x, options=options)

    @kernel_method
    def isinf(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns isinf(x), element by element, as ``numpy.isinf``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.isinf([0.25, 0.5])
        """
        return self._named("isinf", x, options=options)

    @kernel_method
    def isfinite(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns isfinite(x), element by element, as ``numpy.isfinite``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.isfinite([0.25, 0.5])
        """
        return self._named("isfinite", x, options=options)

    @kernel_method
    def signbit(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns signbit(x), element by element, as ``numpy.signbit``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.signbit([0.25, 0.5])
        """
        return self._named("signbit", x, options=options)

    @kernel_method
    def logical_not(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns logical_not(x), element by element, as ``numpy.logical_not``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.logical_not([0.25, 0.5])
        """
        return self._named("logical_not", x, options=options)

    @kernel_method
    def invert(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns invert(x), element by element, as ``numpy.invert``.

        Floats narrower than float32 are computed in float32.

        Args:
            x: An array or a scalar.
            options: see `ArrayOptions`.

        Example:
            >>> client.invert([1, 2])
        """
        return self._named("invert", x, options=options)

    @kernel_method
    def equal(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns equal(x, y), element by element, as ``numpy.equal``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.equal([6, 7], [2, 3])
        """
        return self._named("equal", x, y, options=options)

    @kernel_method
    def not_equal(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns not_equal(x, y), element by element, as ``numpy.not_equal``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.not_equal([6, 7], [2, 3])
        """
        return self._named("not_equal", x, y, options=options)

    @kernel_method
    def less(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns less(x, y), element by element, as ``numpy.less``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.less([6, 7], [2, 3])
        """
        return self._named("less", x, y, options=options)

    @kernel_method
    def less_equal(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns less_equal(x, y), element by element, as ``numpy.less_equal``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.less_equal([6, 7], [2, 3])
        """
        return self._named("less_equal", x, y, options=options)

    @kernel_method
    def greater(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns greater(x, y), element by element, as ``numpy.greater``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.greater([6, 7], [2, 3])
        """
        return self._named("greater", x, y, options=options)

    @kernel_method
    def greater_equal(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns greater_equal(x, y), element by element, as ``numpy.greater_equal``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.greater_equal([6, 7], [2, 3])
        """
        return self._named("greater_equal", x, y, options=options)

    @kernel_method
    def add(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns add(x, y), element by element, as ``numpy.add``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.add([6, 7], [2, 3])
        """
        return self._named("add", x, y, options=options)

    @kernel_method
    def subtract(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns subtract(x, y), element by element, as ``numpy.subtract``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.subtract([6, 7], [2, 3])
        """
        return self._named("subtract", x, y, options=options)

    @kernel_method
    def multiply(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns multiply(x, y), element by element, as ``numpy.multiply``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.multiply([6, 7], [2, 3])
        """
        return self._named("multiply", x, y, options=options)

    @kernel_method
    def divide(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns divide(x, y), element by element, as ``numpy.divide``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.divide([6, 7], [2, 3])
        """
        return self._named("divide", x, y, options=options)

    @kernel_method
    def true_divide(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns true_divide(x, y), element by element, as ``numpy.true_divide``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.true_divide([6, 7], [2, 3])
        """
        return self._named("true_divide", x, y, options=options)

    @kernel_method
    def floor_divide(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns floor_divide(x, y), element by element, as ``numpy.floor_divide``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.floor_divide([6, 7], [2, 3])
        """
        return self._named("floor_divide", x, y, options=options)

    @kernel_method
    def remainder(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns remainder(x, y), element by element, as ``numpy.remainder``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.remainder([6, 7], [2, 3])
        """
        return self._named("remainder", x, y, options=options)

    @kernel_method
    def mod(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns mod(x, y), element by element, as ``numpy.mod``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.mod([6, 7], [2, 3])
        """
        return self._named("mod", x, y, options=options)

    @kernel_method
    def fmod(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns fmod(x, y), element by element, as ``numpy.fmod``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.fmod([6, 7], [2, 3])
        """
        return self._named("fmod", x, y, options=options)

    @kernel_method
    def power(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns power(x, y), element by element, as ``numpy.power``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.power([6, 7], [2, 3])

        Raises:
            InvalidOperandError: for integers to negative integer powers, as NumPy's ValueError.
        """
        return self._named("power", x, y, options=options)

    @kernel_method
    def float_power(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns float_power(x, y), element by element, as ``numpy.float_power``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.float_power([6, 7], [2, 3])
        """
        return self._named("float_power", x, y, options=options)

    @kernel_method
    def arctan2(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns arctan2(x, y), element by element, as ``numpy.arctan2``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.arctan2([6, 7], [2, 3])
        """
        return self._named("arctan2", x, y, options=options)

    @kernel_method
    def hypot(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns hypot(x, y), element by element, as ``numpy.hypot``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.hypot([6, 7], [2, 3])
        """
        return self._named("hypot", x, y, options=options)

    @kernel_method
    def logaddexp(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns logaddexp(x, y), element by element, as ``numpy.logaddexp``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.logaddexp([6, 7], [2, 3])
        """
        return self._named("logaddexp", x, y, options=options)

    @kernel_method
    def logaddexp2(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns logaddexp2(x, y), element by element, as ``numpy.logaddexp2``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.logaddexp2([6, 7], [2, 3])
        """
        return self._named("logaddexp2", x, y, options=options)

    @kernel_method
    def copysign(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns copysign(x, y), element by element, as ``numpy.copysign``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.copysign([6, 7], [2, 3])
        """
        return self._named("copysign", x, y, options=options)

    @kernel_method
    def maximum(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns maximum(x, y), element by element, as ``numpy.maximum``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.maximum([6, 7], [2, 3])
        """
        return self._named("maximum", x, y, options=options)

    @kernel_method
    def minimum(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns minimum(x, y), element by element, as ``numpy.minimum``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.minimum([6, 7], [2, 3])
        """
        return self._named("minimum", x, y, options=options)

    @kernel_method
    def fmax(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns fmax(x, y), element by element, as ``numpy.fmax``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.fmax([6, 7], [2, 3])
        """
        return self._named("fmax", x, y, options=options)

    @kernel_method
    def fmin(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns fmin(x, y), element by element, as ``numpy.fmin``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.fmin([6, 7], [2, 3])
        """
        return self._named("fmin", x, y, options=options)

    @kernel_method
    def logical_and(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns logical_and(x, y), element by element, as ``numpy.logical_and``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.logical_and([6, 7], [2, 3])
        """
        return self._named("logical_and", x, y, options=options)

    @kernel_method
    def logical_or(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns logical_or(x, y), element by element, as ``numpy.logical_or``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.logical_or([6, 7], [2, 3])
        """
        return self._named("logical_or", x, y, options=options)

    @kernel_method
    def logical_xor(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns logical_xor(x, y), element by element, as ``numpy.logical_xor``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.logical_xor([6, 7], [2, 3])
        """
        return self._named("logical_xor", x, y, options=options)

    @kernel_method
    def bitwise_and(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns bitwise_and(x, y), element by element, as ``numpy.bitwise_and``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.bitwise_and([6, 7], [2, 3])
        """
        return self._named("bitwise_and", x, y, options=options)

    @kernel_method
    def bitwise_or(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns bitwise_or(x, y), element by element, as ``numpy.bitwise_or``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.bitwise_or([6, 7], [2, 3])
        """
        return self._named("bitwise_or", x, y, options=options)

    @kernel_method
    def bitwise_xor(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns bitwise_xor(x, y), element by element, as ``numpy.bitwise_xor``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.bitwise_xor([6, 7], [2, 3])
        """
        return self._named("bitwise_xor", x, y, options=options)

    @kernel_method
    def left_shift(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns left_shift(x, y), element by element, as ``numpy.left_shift``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.left_shift([6, 7], [2, 3])
        """
        return self._named("left_shift", x, y, options=options)

    @kernel_method
    def right_shift(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns right_shift(x, y), element by element, as ``numpy.right_shift``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.right_shift([6, 7], [2, 3])
        """
        return self._named("right_shift", x, y, options=options)

    @kernel_method
    def gcd(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns gcd(x, y), element by element, as ``numpy.gcd``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.gcd([6, 7], [2, 3])
        """
        return self._named("gcd", x, y, options=options)

    @kernel_method
    def lcm(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        """Returns lcm(x, y), element by element, as ``numpy.lcm``.

        A Python number takes the element type of the array beside it.

        Args:
            x: An array or a scalar.
            y: An array or a scalar that broadcasts with x.
            options: see `BinaryOptions`.

        Example:
            >>> client.lcm([6, 7], [2, 3])
        """
        return self._named("lcm", x, y, options=options)

    @kernel_method
    def where(self, condition: OperandLike, x: OperandLike, y: OperandLike, **options: Unpack[WhereOptions]) -> Outcome:
        """Returns where(condition, x, y), element by element, as ``numpy.where``.

        A Python number takes the element type that ``numpy.add`` gives it beside the other operand. Beside bfloat16 a
        float becomes float32; in ``numpy.where``, float64.

        Args:
            condition: Where it is true or not zero, the result is x, elsewhere y.
            x: An array or a scalar that broadcasts with condition.
            y: Likewise.
            options: see `WhereOptions`.

        Example:
            >>> client.where([True, False, True], np.arange(3), 0)
        """
        return self._named("where", condition, x, y, options=options)

    @kernel_method
    def clip(
        self,
        x: OperandLike,
        min: OperandLike | None = None,
        max: OperandLike | None = None,
        **options: Unpack[ClipOptions],
    ) -> Outcome:
        """Returns clip(x, min, max), element by element, as ``numpy.clip``.

        Python numbers take the element type of x; an integer beyond its range does not bound the result.

        Args:
            x: An array or a scalar.
            min: The least value of the result, an array or a scalar; left out, there is none.
            max: The greatest value, likewise; where min is greater than max, the result is max.
            options: see `ClipOptions`.

        Example:
            >>> client.clip(np.arange(6), 1, 4)
        """
        return self._named("clip", x, min, max, options=options)

    @kernel_method
    def sum(
        self,
        x: OperandLike,
        axis: Axes | None = None,
        dtype: npt.DTypeLike | None = None,
        *,
        keepdims: bool = False,
        initial: OperandLike | None = None,
        where: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the sum, as ``numpy.sum``.

        Args:
            x: The array, of any rank and element type.
            axis: Over which axis or axes; None for all. Negative ones count from the last.
            dtype: The element type of the sum and the result; None for NumPy's.
            keepdims: Whether reduced axes stay, of size 1.
            initial: A scalar that the reduction begins with, converted to the result's type.
            where: Which elements count: true or not 0; broadcasts to x. All of them if left out.
            options: see `ArrayOptions`.

        Example:
            >>> client.sum(np.arange(6).reshape(2, 3), axis=0)
        """
        return self._named("sum", x, where, initial, axis=axis, keepdims=keepdims, dtype=dtype, options=options)

    @kernel_method
    def prod(
        self,
        x: OperandLike,
        axis: Axes | None = None,
        dtype: npt.DTypeLike | None = None,
        *,
        keepdims: bool = False,
        initial: OperandLike | None = None,
        where: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the product, as ``numpy.prod``.

        Args:
            x: The array, of any rank and element type.
            axis: Over which axis or axes; None for all. Negative ones count from the last.
            dtype: The element type of the sum and the result; None for NumPy's.
            keepdims: Whether reduced axes stay, of size 1.
            initial: A scalar that the reduction begins with, converted to the result's type.
            where: Which elements count: true or not 0; broadcasts to x. All of them if left out.
            options: see `ArrayOptions`.

        Example:
            >>> client.prod(np.arange(6).reshape(2, 3), axis=0)
        """
        return self._named("prod", x, where, initial, axis=axis, keepdims=keepdims, dtype=dtype, options=options)

    @kernel_method
    def max(
        self,
        x: OperandLike,
        axis: Axes | None = None,
        *,
        keepdims: bool = False,
        initial: OperandLike | None = None,
        where: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the largest element, NaN if there is one, as ``numpy.max``.

        Args:
            x: The array, of any rank and element type.
            axis: Over which axis or axes; None for all. Negative ones count from the last.
            keepdims: Whether reduced axes stay, of size 1.
            initial: A scalar that the reduction begins with, converted to the result's type.
            where: Which elements count: true or not 0; broadcasts to x. All of them if left out.
            options: see `ArrayOptions`.

        Example:
            >>> client.max(np.arange(6).reshape(2, 3), axis=0)
        """
        return self._named("max", x, where, initial, axis=axis, keepdims=keepdims, options=options)

    @kernel_method
    def min(
        self,
        x: OperandLike,
        axis: Axes | None = None,
        *,
        keepdims: bool = False,
        initial: OperandLike | None = None,
        where: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the smallest element, NaN if there is one, as ``numpy.min``.

        Args:
            x: The array, of any rank and element type.
            axis: Over which axis or axes; None for all. Negative ones count from the last.
            keepdims: Whether reduced axes stay, of size 1.
            initial: A scalar that the reduction begins with, converted to the result's type.
            where: Which elements count: true or not 0; broadcasts to x. All of them if left out.
            options: see `ArrayOptions`.

        Example:
            >>> client.min(np.arange(6).reshape(2, 3), axis=0)
        """
        return self._named("min", x, where, initial, axis=axis, keepdims=keepdims, options=options)

    @kernel_method
    def mean(
        self,
        x: OperandLike,
        axis: Axes | None = None,
        dtype: npt.DTypeLike | None = None,
        *,
        keepdims: bool = False,
        where: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the mean, as ``numpy.mean``.

        Args:
            x: The array, of any rank and element type.
            axis: Over which axis or axes; None for all. Negative ones count from the last.
            dtype: The element type of the sum and the result; None for NumPy's.
            keepdims: Whether reduced axes stay, of size 1.
            where: Which elements count: true or not 0; broadcasts to x. All of them if left out.
            options: see `ArrayOptions`.

        Example:
            >>> client.mean(np.arange(6).reshape(2, 3), axis=0)
        """
        return self._named("mean", x, where, axis=axis, keepdims=keepdims, dtype=dtype, options=options)

    @kernel_method
    def var(
        self,
        x: OperandLike,
        axis: Axes | None = None,
        ddof: float | SupportsIndex = 0,
        *,
        keepdims: bool = False,
        where: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the mean of the squared distances from the mean, as ``numpy.var``.

        Args:
            x: The array, of any rank and element type.
            axis: Over which axis or axes; None for all. Negative ones count from the last.
            ddof: What is taken off the number of elements to divide by.
            keepdims: Whether reduced axes stay, of size 1.
            where: Which elements count: true or not 0; broadcasts to x. All of them if left out.
            options: see `ArrayOptions`.

        Example:
            >>> client.var(np.arange(6).reshape(2, 3), axis=0)
        """
        return self._named("var", x, where, axis=axis, keepdims=keepdims, ddof=ddof, options=options)

    @kernel_method
    def std(
        self,
        x: OperandLike,
        axis: Axes | None = None,
        ddof: float | SupportsIndex = 0,
        *,
        keepdims: bool = False,
        where: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the square root of var, as ``numpy.std``.

        Args:
            x: The array, of any rank and element type.
            axis: Over which axis or axes; None for all. Negative ones count from the last.
            ddof: What is taken off the number of elements to divide by.
            keepdims: Whether reduced axes stay, of size 1.
            where: Which elements count: true or not 0; broadcasts to x. All of them if left out.
            options: see `ArrayOptions`.

        Example:
            >>> client.std(np.arange(6).reshape(2, 3), axis=0)
        """
        return self._named("std", x, where, axis=axis, keepdims=keepdims, ddof=ddof, options=options)

    @kernel_method
    def any(
        self,
        x: OperandLike,
        axis: Axes | None = None,
        *,
        keepdims: bool = False,
        where: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns whether an element is true, as ``numpy.any``.

        Args:
            x: The array, of any rank and element type.
            axis: Over which axis or axes; None for all. Negative ones count from the last.
            keepdims: Whether reduced axes stay, of size 1.
            where: Which elements count: true or not 0; broadcasts to x. All of them if left out.
            options: see `ArrayOptions`.

        Example:
            >>> client.any(np.arange(6).reshape(2, 3), axis=0)
        """
        return self._named("any", x, where, axis=axis, keepdims=keepdims, options=options)

    @kernel_method
    def all(
        self,
        x: OperandLike,
        axis: Axes | None = None,
        *,
        keepdims: bool = False,
        where: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns whether all elements are true, as ``numpy.all``.

        Args:
            x: The array, of any rank and element type.
            axis: Over which axis or axes; None for all. Negative ones count from the last.
            keepdims: Whether reduced axes stay, of size 1.
            where: Which elements count: true or not 0; broadcasts to x. All of them if left out.
            options: see `ArrayOptions`.

        Example:
            >>> client.all(np.arange(6).reshape(2, 3), axis=0)
        """
        return self._named("all", x, where, axis=axis, keepdims=keepdims, options=options)

    @kernel_method
    def argmax(
        self, x: OperandLike, axis: Axis | None = None, *, keepdims: bool = False, **options: Unpack[ArrayOptions]
    ) -> Outcome:
        """Returns the index of the first of the largest elements, or of the first NaN, as ``numpy.argmax``.

        Args:
            x: The array, of any rank and element type.
            axis: Over which axis; None for all. Negative ones count from the last.
            keepdims: Whether reduced axes stay, of size 1.
            options: see `ArrayOptions`.

        Example:
            >>> client.argmax(np.arange(6).reshape(2, 3), axis=0)
        """
        return self._named("argmax", x, axis=axis, keepdims=keepdims, options=options)

    @kernel_method
    def argmin(
        self, x: OperandLike, axis: Axis | None = None, *, keepdims: bool = False, **options: Unpack[ArrayOptions]
    ) -> Outcome:
        """Returns the index of the first of the smallest elements, or of the first NaN, as ``numpy.argmin``.

        Args:
            x: The array, of any rank and element type.
            axis: Over which axis; None for all. Negative ones count from the last.
            keepdims: Whether reduced axes stay, of size 1.
            options: see `ArrayOptions`.

        Example:
            >>> client.argmin(np.arange(6).reshape(2, 3), axis=0)
        """
        return self._named("argmin", x, axis=axis, keepdims=keepdims, options=options)

    @kernel_method
    def diff(
        self,
        x: OperandLike,
        n: int = 1,
        axis: Axis = -1,
        prepend: OperandLike | None = None,
        append: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the n-th discrete difference along an axis, as ``numpy.diff``.

        A Python float that is prepended or appended is a float64, as in NumPy.

        Args:
            x: The array, of rank 1 or more and any element type.
            n: How many times to take the difference; 0 to 1024, more if no row is left.
            axis: The axis; negative ones count from the last.
            prepend: Rows put before x along the axis: an array, or a scalar for one row.
            append: Rows put behind x along the axis: an array, or a scalar for one row.
            options: see `ArrayOptions`.

        Example:
            >>> client.diff(np.array([1, 4, 9, 16]))
        """
        return self._named("diff", x, prepend, append, n=n, axis=axis, options=options)

    @kernel_method
    def shift(
        self,
        x: OperandLike,
        shift: Axes,
        axis: Axes = -1,
        fill: OperandLike | None = None,
        mode: str = "fill",
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns rows moved along one axis or several, as ``numpy.roll``, or with a value where nothing moves to.

        Row ``i`` of the result is row ``i - shift`` of ``x``.

        Args:
            x: The array, of rank 1 or more and any element type.
            shift: By how many rows, for all axes or for each; negative towards the first.
            axis: The axis or axes; negative ones count from the last.
            fill: A scalar: what rows hold that nothing moves to, converted to x's element type; 0.
            mode: 'fill', or 'periodic' for ``numpy.roll``.
            options: see `ArrayOptions`.

        Example:
            >>> client.shift(np.arange(6), 2)
        """
        return self._named("shift", x, fill, shift=shift, axis=axis, mode=mode, options=options)

    @kernel_method
    def roll(self, x: OperandLike, shift: Axes, axis: Axes | None = None, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns elements moved round along one axis or several, as ``numpy.roll``.

        Args:
            x: The array, of any rank and element type.
            shift: By how many rows, for all axes or for each; negative towards the first.
            axis: The axis or axes; negative ones count from the last. None: x is flattened, and keeps its shape.
            options: see `ArrayOptions`.

        Example:
            >>> client.roll(np.arange(6), 2)
        """
        return self._named("roll", x, shift=shift, axis=axis, options=options)

    @kernel_method
    def gradient(
        self,
        x: OperandLike,
        *spacing: OperandLike,
        axis: Axes | None = None,
        edge_order: int = 1,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the derivative along one or more axes, as ``numpy.gradient``.

        There is one result for each axis.

        Args:
            x: The array, of rank 1 or more and any element type but bool.
            spacing: None for steps of 1, a scalar for all axes, or for each a scalar or the coordinates along it.
            axis: The axis or axes; None for all. Negative ones count from the last.
            edge_order: The order of the one-sided differences at the ends: 1 or 2.
            options: see `ArrayOptions`.

        Example:
            >>> client.gradient(np.array([1.0, 4.0, 9.0, 16.0]))
        """
        return self._named("gradient", x, *spacing, axis=axis, edge_order=edge_order, options=options)

    @kernel_method
    def laplacian(
        self,
        x: OperandLike,
        *spacing: OperandLike,
        axes: Axes | None = None,
        boundary: str = "periodic",
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the sum of second differences along several axes, as ``scipy.ndimage.laplace``.

        The term of an axis is ``x[i - 1] - 2 * x[i] + x[i + 1]``, divided by the square of the axis's spacing.

        Args:
            x: The array, of rank 1 or more and any element type but bool.
            spacing: The step between elements: none for 1, a scalar for all axes, or one for each.
            axes: The axis or axes; None for all. Negative ones count from the last.
            boundary: The values outside x: 'periodic', 'zero' or 'edge'.
            options: see `ArrayOptions`.

        Example:
            >>> client.laplacian(np.eye(4))
        """
        return self._named("laplacian", x, *spacing, axes=axes, boundary=boundary, options=options)

    @kernel_method
    def cumsum(
        self,
        x: OperandLike,
        axis: Axis | None = None,
        dtype: npt.DTypeLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the running sum along an axis, as ``numpy.cumsum``.

        Args:
            x: The array, of any rank and element type.
            axis: The axis; negative ones count from the last. Unset: x is flattened.
            dtype: The result's element type, by name. Unset: x's, a 64-bit one for shorter integers.
            options: see `ArrayOptions`.

        Example:
            >>> client.cumsum(np.arange(6))
        """
        return self._named("cumsum", x, axis=axis, dtype=dtype, options=options)

    @kernel_method
    def convolve(
        self,
        x: OperandLike,
        v: OperandLike,
        mode: str | SupportsIndex = "full",
        axis: Axis = -1,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the convolution with a window along an axis, as ``numpy.convolve``.

        ``"full"`` returns size + length - 1 rows, ``"same"`` max(size, length), ``"valid"`` those where the shorter of
        both is covered. A number stands for an array of one element.

        Args:
            x: The array, of rank 1 or more and any element type.
            v: The window, of rank 1.
            mode: Which sums are returned: 'full', 'same' or 'valid'; or 2, 1 or 0, as in NumPy.
            axis: The axis of x; negative ones count from the last.
            options: see `ArrayOptions`.

        Example:
            >>> client.convolve(np.arange(6), [1, 2, 1], mode='same')
        """
        return self._named("convolve", x, v, mode=mode, axis=axis, options=options)

    @kernel_method
    def matmul(
        self,
        lhs: OperandLike,
        rhs: OperandLike,
        *,
        transpose_lhs: bool = False,
        transpose_rhs: bool = False,
        preferred_element_type: npt.DTypeLike | None = None,
        **options: Unpack[ProductOptions],
    ) -> Outcome:
        """Returns the product of two matrices, of stacks of them, or of a matrix and a vector, as ``numpy.matmul``.

        By default ``lhs`` is sharded by rows over the first mesh axis and ``rhs`` by columns over the second, if there
        is one; where one spec is set, the other shards the contracting axes alike. Leading axes are broadcast.

        Args:
            lhs: The left factor, [K] or [..., M, K].
            rhs: The right factor, [K] or [..., K, N].
            transpose_lhs: Swap the last two axes of lhs first: it is [..., K, M].
            transpose_rhs: Swap the last two axes of rhs first: it is [..., N, K].
            preferred_element_type: The element type in which products are summed up and returned, by name: one that
                holds every value of the factors' common type. Unset: that type itself, floats of 16 bits and less
                summed up in float32.
            options: see `ProductOptions`.

        Example:
            >>> client.matmul(np.ones((2, 3)), np.ones((3, 4)))
        """
        return self._named(
            "matmul",
            lhs,
            rhs,
            transpose_lhs=transpose_lhs,
            transpose_rhs=transpose_rhs,
            preferred_element_type=preferred_element_type,
            options=options,
        )

    @kernel_method
    def einsum(
        self,
        subscripts: str,
        lhs: OperandLike,
        rhs: OperandLike | None = None,
        *others: OperandLike,
        preferred_element_type: npt.DTypeLike | None = None,
        **options: Unpack[ProductOptions],
    ) -> Outcome:
        """Returns the sum of products by Einstein's convention, as ``numpy.einsum``.

        More than two arrays are multiplied in pairs, from the left, by the strategy ``gspmd``; their order decides the
        number of operations and the sizes of intermediate arrays. By default the first axis of the result that only one
        array has is sharded over a mesh axis of its own.

        Args:
            subscripts: The labels of axes, such as "ij,jk->ik"; without "->" as NumPy completes it.
            lhs: The first array.
            rhs: The second array, if there are two.
            others: More arrays.
            preferred_element_type: The element type in which products are summed up and returned, by name: one that
                holds every value of the factors' common type. Unset: that type itself, floats of 16 bits and less
                summed up in float32.
            options: see `ProductOptions`.

        Example:
            >>> client.einsum('ij,jk->ik', np.ones((2, 3)), np.ones((3, 4)))
        """
        return self._named(
            "einsum",
            lhs,
            rhs,
            *others,
            subscripts=subscripts,
            preferred_element_type=preferred_element_type,
            options=options,
        )

    @kernel_method
    def collective_matmul(
        self, lhs: OperandLike, rhs: OperandLike, *, axis_name: str, **options: Unpack[ProductOptions]
    ) -> Outcome:
        """Returns the product of two matrices, multiplied while blocks travel along one mesh axis.

        By default ``lhs`` is sharded by rows over ``axis_name``, by columns for strategies that exchange sums, and
        ``rhs`` so that the contracting axes are sharded alike. Where ``axis_name`` shards the contracting axis of both
        matrices, partial sums are exchanged; else the blocks of the matrix that it shards: of ``lhs`` by rows and
        ``rhs`` by columns those of ``lhs``, unless ``out_spec`` keeps the rows sharded.

        Args:
            lhs: The left factor, [M, K].
            rhs: The right factor, [K, N].
            axis_name: The mesh axis along which blocks travel.
            options: see `ProductOptions`.

        Example:
            >>> client.collective_matmul(np.ones((8, 3)), np.ones((3, 4)), axis_name='x')
        """
        return self._named("collective_matmul", lhs, rhs, axis_name=axis_name, options=options)

    @kernel_method
    @seeded
    def uniform(
        self,
        seed: OperandLike,
        shape: Axes,
        low: OperandLike | None = None,
        high: OperandLike | None = None,
        dtype: npt.DTypeLike = "float64",
        **options: Unpack[Options],
    ) -> Outcome:
        """Returns random values uniform in [low, high), the same on every mesh.

        Values are those of ``jax.random`` for the key of the seed. Without ``mesh`` and ``out_spec`` one device draws
        them.

        Args:
            seed: An integer; equal seeds give equal values, on every mesh.
            shape: The result's shape: an integer or several.
            low: The least value; 0 if left out.
            high: The bound that all values are below, before rounding; 1 if left out.
            dtype: The result's element type.
            options: see `Options`.

        Example:
            >>> client.uniform(7, (2, 3))

        Raises:
            InvalidOperandError: for high below low. Bounds on the mesh are not checked: values are between the two.
        """
        return self._named("uniform", seed, low, high, shape=shape, dtype=dtype, options=options)

    @kernel_method
    @seeded
    def normal(
        self,
        seed: OperandLike,
        shape: Axes,
        loc: OperandLike | None = None,
        scale: OperandLike | None = None,
        dtype: npt.DTypeLike = "float64",
        **options: Unpack[Options],
    ) -> Outcome:
        """Returns normal random values, the same on every mesh.

        Values are those of ``jax.random`` for the key of the seed. Without ``mesh`` and ``out_spec`` one device draws
        them.

        Args:
            seed: An integer; equal seeds give equal values, on every mesh.
            shape: The result's shape: an integer or several.
            loc: The mean; 0 if left out.
            scale: The standard deviation; 1 if left out.
            dtype: The result's element type.
            options: see `Options`.

        Example:
            >>> client.normal(7, (2, 3))
        """
        return self._named("normal", seed, loc, scale, shape=shape, dtype=dtype, options=options)

    @kernel_method
    @seeded
    def randint(
        self,
        seed: OperandLike,
        shape: Axes,
        low: OperandLike,
        high: OperandLike,
        dtype: npt.DTypeLike = "int64",
        **options: Unpack[Options],
    ) -> Outcome:
        """Returns random integers uniform in [low, high), the same on every mesh.

        Values are those of ``jax.random`` for the key of the seed. Without ``mesh`` and ``out_spec`` one device draws
        them. As of JAX, values of a range of n > 2**16 of int32 and uint32, and of n > 2**32 of int64 and uint64, are
        random bits modulo n: those below ``low + 2**bits % n`` come up more often than others, by 1 part in
        ``2**bits//n``. Draw ranges of more than 2**16 as int64.

        Args:
            seed: An integer; equal seeds give equal values, on every mesh.
            shape: The result's shape: an integer or several.
            low: The least value.
            high: The bound that all values are below.
            dtype: The result's element type.
            options: see `Options`.

        Example:
            >>> client.randint(7, (2, 3), 0, 10)

        Raises:
            InvalidOperandError: for a bound beyond the type, or high not above low. A bound on the mesh is replaced by
                the nearest allowed one; where no value is left, all are ``low``.
        """
        return self._named("randint", seed, low, high, shape=shape, dtype=dtype, options=options)

    @kernel_method
    def permutation(
        self, seed: OperandLike, x: OperandLike, axis: Axis = 0, **options: Unpack[ArrayOptions]
    ) -> Outcome:
        """Returns the rows of an array in random order, the same order on every mesh.

        Args:
            seed: An integer; equal seeds give equal values, on every mesh.
            x: The array, of rank 1 or more and any element type.
            axis: Along which axis; negative ones count from the last.
            options: see `ArrayOptions`.

        Example:
            >>> client.permutation(7, np.arange(6))
        """
        return self._named("permutation", seed, x, axis=axis, options=options)

    @kernel_method
    def reshard(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns the array with another sharding, as ``jax.lax.with_sharding_constraint``.

        Args:
            x: The array, of any rank and element type.
            options: see `ArrayOptions`.

        Example:
            >>> client.reshard(np.arange(6).reshape(2, 3))
        """
        return self._named("reshard", x, options=options)

    @kernel_method
    def copy(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns a copy of the array, as ``numpy.copy``.

        Args:
            x: The array, of any rank and element type.
            options: see `ArrayOptions`.

        Example:
            >>> client.copy(np.arange(6).reshape(2, 3))
        """
        return self._named("copy", x, options=options)

    @kernel_method
    def transpose(self, x: OperandLike, axes: Axes | None = None, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns the array with its axes in another order, as ``numpy.transpose``.

        Args:
            x: The array, of any rank and element type.
            axes: For each axis of the result, the axis of x; None reverses them.
            options: see `ArrayOptions`.

        Example:
            >>> client.transpose(np.arange(6).reshape(2, 3))
        """
        return self._named("transpose", x, axes=axes, options=options)

    @kernel_method
    def reshape(self, x: OperandLike, shape: Axes, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns the elements in an array of another shape, as ``numpy.reshape``.

        Args:
            x: The array, of any rank and element type.
            shape: The shape; one size may be -1, which stands for what is left.
            options: see `ArrayOptions`.

        Example:
            >>> client.reshape(np.arange(6), (2, -1))
        """
        return self._named("reshape", x, shape=shape, options=options)

    @kernel_method
    def expand_dims(self, x: OperandLike, axis: Axes, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns the array with new axes of size 1, as ``numpy.expand_dims``.

        Args:
            x: The array, of any rank and element type.
            axis: The axes of the result that are new.
            options: see `ArrayOptions`.

        Example:
            >>> client.expand_dims(np.arange(3), axis=0)
        """
        return self._named("expand_dims", x, axis=axis, options=options)

    @kernel_method
    def squeeze(self, x: OperandLike, axis: Axes | None = None, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns the array without axes of size 1, as ``numpy.squeeze``.

        Args:
            x: The array, of any rank and element type.
            axis: The axes to remove; None for all of size 1.
            options: see `ArrayOptions`.

        Example:
            >>> client.squeeze(np.ones((3, 1)))
        """
        return self._named("squeeze", x, axis=axis, options=options)

    @kernel_method
    def broadcast_to(self, x: OperandLike, shape: Axes, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns the array broadcast to a shape, as ``numpy.broadcast_to``.

        The result is an array of its own.

        Args:
            x: The array, of any rank and element type.
            shape: The shape.
            options: see `ArrayOptions`.

        Example:
            >>> client.broadcast_to(np.arange(3), (2, 3))
        """
        return self._named("broadcast_to", x, shape=shape, options=options)

    @kernel_method
    def flip(self, x: OperandLike, axis: Axes | None = None, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns the elements in reverse order along axes, as ``numpy.flip``.

        Args:
            x: The array, of any rank and element type.
            axis: Along which axis; negative axes count from the last. None: all.
            options: see `ArrayOptions`.

        Example:
            >>> client.flip(np.arange(6).reshape(2, 3), axis=1)
        """
        return self._named("flip", x, axis=axis, options=options)

    @kernel_method
    def concatenate(self, arrays: Sequence[OperandLike], axis: Axis | None = 0, **options: Unpack[Options]) -> Outcome:
        """Returns arrays joined along an axis, as ``numpy.concatenate``.

        Args:
            arrays: The arrays.
            axis: Along which axis; negative axes count from the last. None: the arrays are flattened.
            options: see `Options`.

        Example:
            >>> client.concatenate([np.arange(3), np.arange(2)])
        """
        return self._named("concatenate", *arrays, axis=axis, options=options)

    @kernel_method
    def stack(self, arrays: Sequence[OperandLike], axis: Axis = 0, **options: Unpack[Options]) -> Outcome:
        """Returns arrays joined along a new axis, as ``numpy.stack``.

        Args:
            arrays: The arrays.
            axis: The axis of the result that is new.
            options: see `Options`.

        Example:
            >>> client.stack([np.arange(3), np.arange(3)], axis=1)
        """
        return self._named("stack", *arrays, axis=axis, options=options)

    @kernel_method
    def astype(self, x: OperandLike, dtype: npt.DTypeLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns the array in another element type, as ``numpy.ndarray.astype``.

        Of complex numbers the real part is taken.

        Args:
            x: The array, of any rank and element type.
            dtype: The element type.
            options: see `ArrayOptions`.

        Example:
            >>> client.astype(np.arange(3), 'float32')
        """
        return self._named("astype", x, dtype=dtype, options=options)

    @kernel_method
    def tile(self, x: OperandLike, reps: Axes, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns copies of the array beside each other, as ``numpy.tile``.

        Args:
            x: The array, of any rank and element type.
            reps: The number of copies along each axis.
            options: see `ArrayOptions`.

        Example:
            >>> client.tile(np.arange(3), 2)
        """
        return self._named("tile", x, reps=reps, options=options)

    @kernel_method
    def repeat(
        self, x: OperandLike, repeats: SupportsIndex, axis: Axis | None = None, **options: Unpack[ArrayOptions]
    ) -> Outcome:
        """Returns each row several times, as ``numpy.repeat``.

        Args:
            x: The array, of any rank and element type.
            repeats: How often each row occurs.
            axis: Along which axis; negative axes count from the last. None: x is flattened.
            options: see `ArrayOptions`.

        Example:
            >>> client.repeat(np.arange(3), 2)
        """
        return self._named("repeat", x, repeats=repeats, axis=axis, options=options)

    @kernel_method
    def tril(self, x: OperandLike, k: Axis = 0, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns the elements on and below a diagonal, zeros elsewhere, as ``numpy.tril``.

        Args:
            x: The array, of any rank and element type.
            k: The diagonal: 0 for the main one, positive above it.
            options: see `ArrayOptions`.

        Example:
            >>> client.tril(np.ones((3, 3)))
        """
        return self._named("tril", x, k=k, options=options)

    @kernel_method
    def triu(self, x: OperandLike, k: Axis = 0, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns the elements on and above a diagonal, zeros elsewhere, as ``numpy.triu``.

        Args:
            x: The array, of any rank and element type.
            k: The diagonal: 0 for the main one, positive above it.
            options: see `ArrayOptions`.

        Example:
            >>> client.triu(np.ones((3, 3)), k=1)
        """
        return self._named("triu", x, k=k, options=options)

    @kernel_method
    def diagonal(
        self, x: OperandLike, offset: Axis = 0, axis1: Axis = 0, axis2: Axis = 1, **options: Unpack[ArrayOptions]
    ) -> Outcome:
        """Returns the diagonals of matrices, as ``numpy.diagonal``.

        The result is an array of its own.

        Args:
            x: The array, of any rank and element type.
            offset: The diagonal: 0 for the main one, positive above it.
            axis1: The axis of the rows.
            axis2: The axis of the columns.
            options: see `ArrayOptions`.

        Example:
            >>> client.diagonal(np.arange(9).reshape(3, 3))
        """
        return self._named("diagonal", x, offset=offset, axis1=axis1, axis2=axis2, options=options)

    @kernel_method
    def trace(
        self,
        x: OperandLike,
        offset: Axis = 0,
        axis1: Axis = 0,
        axis2: Axis = 1,
        dtype: npt.DTypeLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the sums of the diagonals of matrices, as ``numpy.trace``.

        Args:
            x: The array, of any rank and element type.
            offset: The diagonal: 0 for the main one, positive above it.
            axis1: The axis of the rows.
            axis2: The axis of the columns.
            dtype: The element type of the sums; None for that of ``numpy.sum``.
            options: see `ArrayOptions`.

        Example:
            >>> client.trace(np.arange(9).reshape(3, 3))
        """
        return self._named("trace", x, offset=offset, axis1=axis1, axis2=axis2, dtype=dtype, options=options)

    @kernel_method
    def pad(
        self,
        x: OperandLike,
        pad_width: Widths,
        mode: str = "constant",
        constant_values: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the array with rows before and behind, as ``numpy.pad``.

        Args:
            x: The array, of any rank and element type.
            pad_width: The rows before and behind: one number, one of each, or both for each axis; or a dict by axis.
            mode: The new elements: constant, edge, reflect, symmetric, wrap.
            constant_values: [] the value of the new elements for the mode constant; 0 if left out.
            options: see `ArrayOptions`.

        Example:
            >>> client.pad(np.arange(3), (1, 2), mode='edge')
        """
        return self._named("pad", x, constant_values, pad_width=pad_width, mode=mode, options=options)

    @kernel_method
    def sort(self, x: OperandLike, axis: Axis | None = -1, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns the elements in ascending order along an axis, NaN last, as ``numpy.sort``.

        Equal elements keep their order.

        Args:
            x: The array, of any rank and element type.
            axis: Along which axis; negative axes count from the last. None: x is flattened.
            options: see `ArrayOptions`.

        Example:
            >>> client.sort(np.array([3, 1, 2]))
        """
        return self._named("sort", x, axis=axis, options=options)

    @kernel_method
    def argsort(self, x: OperandLike, axis: Axis | None = -1, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns the indices that sort an axis, as ``numpy.argsort`` with stable=True.

        Args:
            x: The array, of any rank and element type.
            axis: Along which axis; negative axes count from the last. None: x is flattened.
            options: see `ArrayOptions`.

        Example:
            >>> client.argsort(np.array([3, 1, 2]))
        """
        return self._named("argsort", x, axis=axis, options=options)

    @kernel_method
    def take(
        self, x: OperandLike, indices: OperandLike, axis: Axis | None = None, **options: Unpack[ArrayOptions]
    ) -> Outcome:
        """Returns the elements at indices along an axis, as ``numpy.take``.

        Args:
            x: The array, of any rank and element type.
            indices: Integers; negative ones count from the last element. An index out of range is refused.
            axis: Along which axis; negative axes count from the last. None: x is flattened.
            options: see `ArrayOptions`.

        Example:
            >>> client.take(np.arange(6).reshape(2, 3), [2, 0], axis=1)

        Raises:
            IndexOutOfRangeError: for an index that there is not.
        """
        return self._named("take", x, indices, axis=axis, options=options)

    @kernel_method
    def take_along_axis(
        self, x: OperandLike, indices: OperandLike, axis: Axis = -1, **options: Unpack[ArrayOptions]
    ) -> Outcome:
        """Returns the elements at indices along an axis, others for each row, as ``numpy.take_along_axis``.

        Args:
            x: The array, of any rank and element type.
            indices: Integers; negative ones count from the last element. An index out of range is refused.
            axis: Along which axis; negative axes count from the last.
            options: see `ArrayOptions`.

        Example:
            >>> client.take_along_axis(np.arange(6).reshape(2, 3), np.array([[2], [0]]))

        Raises:
            IndexOutOfRangeError: for an index that there is not.
        """
        return self._named("take_along_axis", x, indices, axis=axis, options=options)

    @kernel_method
    def cumprod(
        self,
        x: OperandLike,
        axis: Axis | None = None,
        dtype: npt.DTypeLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the running product along an axis, as ``numpy.cumprod``.

        Args:
            x: The array, of any rank and element type.
            axis: Along which axis; negative axes count from the last. None: x is flattened.
            dtype: The element type of the products; None for that of x, or 64 bits for shorter integers.
            options: see `ArrayOptions`.

        Example:
            >>> client.cumprod(np.arange(1, 6))
        """
        return self._named("cumprod", x, axis=axis, dtype=dtype, options=options)

    @kernel_method
    def searchsorted(
        self, a: OperandLike, v: OperandLike, side: str = "left", **options: Unpack[ArrayOptions]
    ) -> Outcome:
        """Returns the positions at which numbers keep a sorted array sorted, as ``numpy.searchsorted``.

        Args:
            a: The sorted array [...], replicated.
            v: The numbers, an array or a scalar.
            side: The position among equal numbers: left or right of them.
            options: see `ArrayOptions`.

        Example:
            >>> client.searchsorted([1, 3, 5], [0, 3, 4])
        """
        return self._named("searchsorted", a, v, side=side, options=options)

    @kernel_method
    def interp(
        self,
        x: OperandLike,
        xp: OperandLike,
        fp: OperandLike,
        left: OperandLike | None = None,
        right: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the values of a function that is linear between points, as ``numpy.interp``.

        Args:
            x: Where to evaluate the function; an array or a scalar.
            xp: The coordinates [N] of the points, ascending, replicated.
            fp: The values [N] at the points.
            left: The value left of all points; the first one by default.
            right: The value right of all points; the last one by default.
            options: see `ArrayOptions`.

        Example:
            >>> client.interp([0.5, 1.5], [0.0, 1.0, 2.0], [0.0, 10.0, 40.0])
        """
        return self._named("interp", x, xp, fp, left, right, options=options)
