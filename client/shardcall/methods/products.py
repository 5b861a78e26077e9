"""Products of arrays."""

from __future__ import annotations

from typing import Unpack

import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.types.element_types import parse_dtype
from shardcall.methods.calling import Calling, Outcome, ProductOptions


class Products(Calling[Outcome]):
    """Products of arrays."""

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
        """The product of two arrays, as ``numpy.matmul``.

        Args:
            lhs: [contracting] or [..., rows, contracting] the left array.
            rhs: [contracting] or [..., contracting, columns] the right array; batch axes are broadcast.
            transpose_lhs: swap the last two axes of ``lhs`` first: it is [..., contracting, rows].
            transpose_rhs: swap the last two axes of ``rhs`` first: it is [..., columns, contracting].
            preferred_element_type: in which products are summed up and returned, such as float32 for factors of
                bfloat16; left out, their common type, and floats of 16 bits and less are summed up in float32.
            options: as of `shardcall.methods.calling.ProductOptions`; unless told, ``lhs`` is split by rows over the
                first mesh axis, ``rhs`` by columns over the second, if there is one, and the product as the compiler
                decides. Beside a spec that is given, axes that meet are split alike.
        """
        return self._named(
            "matmul",
            lhs,
            rhs,
            transpose_lhs=transpose_lhs,
            transpose_rhs=transpose_rhs,
            preferred_element_type=_name(preferred_element_type),
            options=options,
        )

    def einsum(
        self,
        subscripts: str,
        lhs: OperandLike,
        rhs: OperandLike | None = None,
        *others: OperandLike,
        preferred_element_type: npt.DTypeLike | None = None,
        **options: Unpack[ProductOptions],
    ) -> Outcome:
        """Einstein's summation, as ``numpy.einsum``.

        Args:
            subscripts: the labels of axes: ``"ij,jk->ik"``, ``"...ii->...i"``; without ``->`` as NumPy completes it.
            lhs: the first array.
            rhs: the second array, if there are two.
            others: more arrays; all are multiplied in pairs, from the left, by the strategy ``gspmd``. The order in
                which they are given decides how much work that is and how large what lies between.
            preferred_element_type: as of `matmul`.
            options: as of `shardcall.methods.calling.ProductOptions`; unless told, the first axis of the result that
                each array has alone is split over a mesh axis of its own.
        """
        preferred = _name(preferred_element_type)
        return self._named(
            "einsum", lhs, rhs, *others, subscripts=subscripts, preferred_element_type=preferred, options=options
        )

    def collective_matmul(
        self, lhs: OperandLike, rhs: OperandLike, *, axis_name: str, **options: Unpack[ProductOptions]
    ) -> Outcome:
        """The product of two matrices, its communication spelled out along one mesh axis.

        Args:
            lhs: [rows, contracting] the left matrix.
            rhs: [contracting, columns] the right matrix.
            axis_name: the mesh axis along which blocks travel. Where it splits the contracting axis of both, sums do;
                else the operand that it splits does, of lhs by rows and rhs by columns lhs, unless ``out_spec`` keeps
                the rows split.
            options: as of `shardcall.methods.calling.ProductOptions`; unless told, ``lhs`` is split by rows over
                ``axis_name``, by columns for the strategies of sums, and ``rhs`` so that the contracting axes meet.
        """
        return self._named("collective_matmul", lhs, rhs, axis_name=axis_name, options=options)


def _name(dtype: npt.DTypeLike | None) -> str | None:
    return None if dtype is None else parse_dtype(dtype).name
