"""The product of two matrices, of stacks of them, or of a matrix and a vector."""

from __future__ import annotations

from shardcall_core.functions.contraction import Contraction
from shardcall_core.functions.products import COLUMN, CONTRACTING, ROW, MatMulParameters, contraction_of_factors
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import MeshAxes, OperandTypes, Specs, required
from shardcall_server.kernels.core.kernel import Problem
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.products import gathered_products, gspmd_products, partial_sums, resharded_products
from shardcall_server.kernels.products.contraction_kernel import ContractionKernel, default_specs


def _of(problem: Problem[MatMulParameters]) -> Contraction:
    lhs, rhs = map(required, problem.operands)
    return contraction_of_factors(lhs, rhs, problem.parameters)


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
    a time. ``reshard`` moves an operand so that the other stays where it is: of lhs and rhs ``P("x", None)``, with few
    rows of lhs, (D - 1) / D of a block of lhs and of the product. ``gspmd`` is what the compiler makes of it. ``auto``
    is the strategy whose devices send the fewest bytes and repeat the fewest products.

    Source: the JAX notebook shard_map, sections "psum" and "psum_scatter"; van de Geijn and Watts, SUMMA: scalable
    universal matrix multiplication algorithm, 1997.
    """

    function = FUNCTIONS["matmul"]
    version = 4
    reproducibility = Reproducibility.INTEGERS
    contraction_of = staticmethod(_of)
    strategies = (
        gspmd_products.gspmd(_of),
        *partial_sums.strategies(_of),
        gathered_products.all_gather(_of),
        gathered_products.summa(_of),
        resharded_products.reshard(_of),
    )

    def default_in_specs(
        self, operands: OperandTypes, parameters: MatMulParameters, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in unset specs: lhs by rows over the first mesh axis, rhs by columns over the second.

        For ``psum`` and ``psum_scatter`` the contracting axis is sharded over all mesh axes, for ``all_gather`` and
        ``summa`` both factors are, as ``P(a, b)``. Where one spec is set the axes of the other are sharded as those
        that they are multiplied with.
        """
        lhs, rhs = map(required, operands)
        contraction = contraction_of_factors(lhs, rhs, parameters)
        first, second = mesh.names[:1], mesh.names[1:2]
        by_rows: tuple[dict[str, tuple[str, ...]], ...] = ({ROW: first}, {COLUMN: second})
        if strategy in ("psum", "psum_scatter"):
            by_rows = ({CONTRACTING: mesh.names},) * 2
        elif strategy in ("all_gather", "summa"):
            by_rows = ({ROW: first, CONTRACTING: second}, {CONTRACTING: first, COLUMN: second})
        return default_specs(contraction, in_specs, mesh, by_rows)
