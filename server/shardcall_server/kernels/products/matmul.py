"""The product of two matrices, of stacks of them, or of a matrix and a vector."""

from __future__ import annotations

from dataclasses import dataclass

from shardcall_core.layouts.layout import ArrayType, MeshAxes, OperandTypes, Specs
from shardcall_core.layouts.signature import OperandInfo, ParameterInfo, ParameterValues, Signature
from shardcall_server.kernels.core.kernel import Problem, required
from shardcall_server.kernels.core.parameters import boolean
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.products import block_products, gathered_products, gspmd_products, partial_sums
from shardcall_server.kernels.products.accumulation import PREFERRED, normalised, preferred_type
from shardcall_server.kernels.products.contraction import Contraction, Labels
from shardcall_server.kernels.products.contraction_kernel import ContractionKernel, default_specs

_ROW, _CONTRACTING, _COLUMN = "row", "contracting", "column"


@dataclass(frozen=True)
class MatMulParameters:
    """The parameters of `MatMul`; the preferred type is None where it is the factors' common type."""

    transpose_lhs: bool
    transpose_rhs: bool
    preferred_element_type: str | None


def _labels(operand: ArrayType, matrix: Labels, vector: Labels, *, transposed: bool) -> Labels:
    """Returns the labels of a factor; batch axes are counted from the right."""
    if operand.ndim == 1:
        return vector
    return (*(f"batch {i}" for i in range(operand.ndim - 2, 0, -1)), *(matrix[::-1] if transposed else matrix))


def _contraction(lhs: ArrayType, rhs: ArrayType, parameters: MatMulParameters) -> Contraction:
    of_lhs = _labels(lhs, (_ROW, _CONTRACTING), (_CONTRACTING,), transposed=parameters.transpose_lhs)
    of_rhs = _labels(rhs, (_CONTRACTING, _COLUMN), (_CONTRACTING,), transposed=parameters.transpose_rhs)
    batch = max(of_lhs[:-2], of_rhs[:-2], key=len)
    result = (*batch, *(label for label in (_ROW, _COLUMN) if label in of_lhs + of_rhs))
    return Contraction.of((of_lhs, of_rhs), result, (lhs.shape, rhs.shape))


def _of(problem: Problem[MatMulParameters]) -> Contraction:
    lhs, rhs = map(required, problem.operands)
    return _contraction(lhs, rhs, problem.parameters)


class MatMul(ContractionKernel[MatMulParameters]):
    """The product of two matrices, of stacks of them, or of a matrix and a vector, as `numpy.matmul`.

    ``r[…, i, j] = Σₖ lhs[…, i, k] · rhs[…, k, j]``, as ``np.matmul(lhs, rhs)``, the batch axes ``…`` broadcast, with
    ``lhs.mT`` for lhs where ``transpose_lhs`` says so. Of type ``np.result_type(lhs, rhs)``, or of
    ``preferred_element_type``, as if both factors were converted to it first. Floats of 16 bits and less are summed up
    in float32, integers wrap in the result's type, bool is an or of ands.

    Sharding: every layout is served. With rows of lhs and columns of rhs sharded, or batch axes, nothing moves. With
    the contracting axis sharded alike in both over D devices, ``psum`` moves 2 (D - 1) / D and ``psum_scatter``
    (D - 1) / D of a device's product, in the sum's type. With lhs and rhs ``P(a, b)``, ``all_gather`` moves
    (b - 1) / b of a device's rows of lhs and (a - 1) / a of its columns of rhs, ``summa`` up to twice that, a panel at
    a time. ``gspmd`` is what the compiler makes of it.

    Source: the JAX notebook shard_map, sections "psum" and "psum_scatter"; van de Geijn and Watts, SUMMA: scalable
    universal matrix multiplication algorithm, 1997.
    """

    name = "matmul"
    version = 3
    reproducibility = Reproducibility.INTEGERS
    summary = "The product of two matrices, of stacks of them, or of a matrix and a vector, as numpy.matmul."
    operands = (
        OperandInfo("lhs", "The left factor, [K] or [..., M, K]."),
        OperandInfo("rhs", "The right factor, [K] or [..., K, N]."),
    )
    parameters = (
        ParameterInfo("transpose_lhs", "Swap the last two axes of lhs first: it is [..., K, M].", False),
        ParameterInfo("transpose_rhs", "Swap the last two axes of rhs first: it is [..., N, K].", False),
        PREFERRED,
    )
    contraction_of = staticmethod(_of)
    strategies = (
        gspmd_products.gspmd(_of),
        *partial_sums.strategies(_of),
        gathered_products.all_gather(_of),
        gathered_products.summa(_of),
    )

    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[MatMulParameters]:
        """Checks a call and determines the result's type.

        Raises:
            CallError: for scalars, vectors to be transposed, shapes that do not match, element types without a
                common type, and a preferred_element_type that does not hold their common type.
        """
        lhs, rhs = map(required, operands)
        transposes = {name: boolean(parameters, name) for name in ("transpose_lhs", "transpose_rhs")}
        product = block_products.product_type(lhs, rhs, **transposes)
        dtype = preferred_type(parameters, product.dtype)
        understood = MatMulParameters(**transposes, preferred_element_type=normalised(dtype, product.dtype))
        _contraction(lhs, rhs, understood).check_rank()
        return Signature(understood, (ArrayType(product.shape, dtype),))

    def default_in_specs(
        self, operands: OperandTypes, parameters: MatMulParameters, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in unset specs: lhs by rows over the first mesh axis, rhs by columns over the second.

        For ``psum`` and ``psum_scatter`` the contracting axis is sharded over all mesh axes, for ``all_gather`` and
        ``summa`` both factors are, as ``P(a, b)``. Where one spec is set the axes of the other are sharded as those
        that they are multiplied with.
        """
        lhs, rhs = map(required, operands)
        contraction = _contraction(lhs, rhs, parameters)
        first, second = mesh.names[:1], mesh.names[1:2]
        by_rows: tuple[dict[str, tuple[str, ...]], ...] = ({_ROW: first}, {_COLUMN: second})
        if strategy in ("psum", "psum_scatter"):
            by_rows = ({_CONTRACTING: mesh.names},) * 2
        elif strategy in ("all_gather", "summa"):
            by_rows = ({_ROW: first, _CONTRACTING: second}, {_CONTRACTING: first, _COLUMN: second})
        return default_specs(contraction, in_specs, mesh, by_rows)
