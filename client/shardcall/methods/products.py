"""Products of arrays."""

from __future__ import annotations

from typing import Unpack

from shardcall.arrays import OperandLike
from shardcall.methods.calling import Calling, Outcome, ProductOptions


class Products(Calling[Outcome]):
    """Products of arrays."""

    def matmul(self, lhs: OperandLike, rhs: OperandLike, **options: Unpack[ProductOptions]) -> Outcome:
        """The product of two arrays, as ``numpy.matmul``.

        Args:
            lhs: [..., rows, contracting] the left array.
            rhs: [..., contracting, columns] the right array.
            options: as of `shardcall.methods.calling.ProductOptions`; unless told, ``lhs`` is split by rows over the
                first mesh axis, ``rhs`` by columns over the second, if there is one, and the product as the compiler
                decides.
        """
        return self._named("matmul", lhs, rhs, options=options)

    def collective_matmul(
        self, lhs: OperandLike, rhs: OperandLike, *, axis_name: str, **options: Unpack[ProductOptions]
    ) -> Outcome:
        """The product of two matrices, its communication spelled out along one mesh axis.

        Args:
            lhs: [rows, contracting] the left matrix.
            rhs: [contracting, columns] the right matrix.
            axis_name: the mesh axis along which blocks travel.
            options: as of `shardcall.methods.calling.ProductOptions`; specs that are left out are as the strategy
                needs them.
        """
        return self._named("collective_matmul", lhs, rhs, axis_name=axis_name, options=options)
