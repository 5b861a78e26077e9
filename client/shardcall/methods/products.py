"""Products of arrays."""

from __future__ import annotations

from typing import Unpack

import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.methods.kernel_method import KernelCaller, Outcome, ProductOptions, kernel_method
from shardcall_core.types.element_types import dtype_name


@kernel_method
def matmul(
    self: KernelCaller[Outcome],
    lhs: OperandLike,
    rhs: OperandLike,
    *,
    transpose_lhs: bool = False,
    transpose_rhs: bool = False,
    preferred_element_type: npt.DTypeLike | None = None,
    **options: Unpack[ProductOptions],
) -> Outcome:
    """Returns the matrix product of two arrays, as ``numpy.matmul``.

    By default ``lhs`` is sharded by rows over the first mesh axis and ``rhs`` by columns over the second, if there
    is one; where one spec is set, the other shards the contracting axes alike.

    Args:
        lhs: [K] or [..., M, K] the left factor.
        rhs: [K] or [..., K, N] the right factor; the leading axes of both are broadcast.
        transpose_lhs: swap the last two axes of ``lhs`` first: it is [..., K, M].
        transpose_rhs: swap the last two axes of ``rhs`` first: it is [..., N, K].
        preferred_element_type: the element type of sums and result, such as float32 for factors of bfloat16;
            None for the factors' common type, with floats of 16 bits and less summed in float32.
        options: see `ProductOptions`.
    """
    return self._named(
        "matmul",
        lhs,
        rhs,
        transpose_lhs=transpose_lhs,
        transpose_rhs=transpose_rhs,
        preferred_element_type=dtype_name(preferred_element_type),
        options=options,
    )


@kernel_method
def einsum(
    self: KernelCaller[Outcome],
    subscripts: str,
    lhs: OperandLike,
    rhs: OperandLike | None = None,
    *others: OperandLike,
    preferred_element_type: npt.DTypeLike | None = None,
    **options: Unpack[ProductOptions],
) -> Outcome:
    """Returns Einstein's summation, as ``numpy.einsum``.

    More than two arrays are multiplied in pairs, from the left, by the strategy ``gspmd``; their order decides the
    number of operations and the sizes of intermediate arrays. By default the first axis of the result that only one
    array has is sharded over a mesh axis of its own.

    Args:
        subscripts: the labels of axes, such as ``"ij,jk->ik"`` or ``"...ii->...i"``; NumPy's rule adds a missing
            ``->``.
        lhs: the first array.
        rhs: the second array; None for one array.
        others: more arrays.
        preferred_element_type: as for `matmul`.
        options: see `ProductOptions`.
    """
    preferred = dtype_name(preferred_element_type)
    return self._named(
        "einsum", lhs, rhs, *others, subscripts=subscripts, preferred_element_type=preferred, options=options
    )


@kernel_method
def collective_matmul(
    self: KernelCaller[Outcome],
    lhs: OperandLike,
    rhs: OperandLike,
    *,
    axis_name: str,
    **options: Unpack[ProductOptions],
) -> Outcome:
    """Returns the product of two matrices by collectives along one mesh axis.

    By default ``lhs`` is sharded by rows over ``axis_name``, by columns for strategies that exchange sums, and
    ``rhs`` so that the contracting axes are sharded alike.

    Args:
        lhs: [M, K] the left matrix.
        rhs: [K, N] the right matrix.
        axis_name: the mesh axis of the collectives. Where it shards the contracting axis of both matrices, partial
            sums are exchanged; else the blocks of the matrix that it shards: of ``lhs`` by rows and ``rhs`` by
            columns those of ``lhs``, unless ``out_spec`` keeps the rows sharded.
        options: see `ProductOptions`.
    """
    return self._named("collective_matmul", lhs, rhs, axis_name=axis_name, options=options)
