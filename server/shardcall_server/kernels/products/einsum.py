"""Einstein's summation."""

from __future__ import annotations

from dataclasses import replace

from shardcall_core.functions.contraction import Contraction
from shardcall_core.functions.products import EinsumParameters, contraction_of_arrays
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import MeshAxes, OperandTypes, Specs
from shardcall_server.kernels.core.kernel import Problem, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.products import gathered_products, gspmd_products, partial_sums, resharded_products
from shardcall_server.kernels.products.contraction_kernel import ContractionKernel, default_specs


def _of(problem: Problem[EinsumParameters]) -> Contraction:
    return contraction_of_arrays(problem.operands, problem.parameters)


def _of_pairs(strategy: Strategy) -> Strategy:
    """Returns a strategy for no more than two arrays."""

    def refusal(problem: Problem) -> str | None:
        if len(_of(problem).labels) > 2:
            return f"there are {len(_of(problem).labels)} arrays, and it multiplies two"
        return strategy.refusal(problem)

    return replace(strategy, refusal=refusal)


class Einsum(ContractionKernel[EinsumParameters]):
    """Einstein's summation, as `numpy.einsum`.

    With a label for every axis, ``r[labels of the result] = Σ lhs[its labels] · rhs[its labels]`` over all labels that
    the result lacks, as ``np.einsum(subscripts, lhs, rhs)``: products, sums, transpositions, diagonals. Element types
    are as `MatMul` has them; sums over labels that one operand has alone are taken before the product. More
    than two arrays are multiplied in pairs, from the left: the first two, then their product and the third. Labels are
    summed over as early as that allows, and nothing is rounded to the result's type in between.

    Sharding: every layout is served. Where the axes of each label are sharded alike nothing moves but sums: over D
    devices that shard a label that is summed over, ``psum`` moves 2 (D - 1) / D and ``psum_scatter`` (D - 1) / D of a
    device's part, in the sum's type. ``all_gather`` brings each device what its block of the result needs, ``reshard``
    moves an operand so that its labels are sharded as those of the other. ``gspmd`` is what the compiler makes of it,
    and the one strategy for more than two arrays. ``auto`` is as that of `MatMul`.

    Source: numpy/_core/einsumfunc.py; the JAX notebook shard_map, sections "psum" and "psum_scatter".
    """

    function = FUNCTIONS["einsum"]
    version = 6
    reproducibility = Reproducibility.INTEGERS
    contraction_of = staticmethod(_of)
    strategies = (
        gspmd_products.gspmd(_of),
        *map(
            _of_pairs,
            (*partial_sums.strategies(_of), gathered_products.all_gather(_of), resharded_products.reshard(_of)),
        ),
    )

    def default_in_specs(
        self, operands: OperandTypes, parameters: EinsumParameters, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in unset specs so that the axes of each label are sharded alike.

        Where none is set, the first axis of the result that each operand has alone is sharded over a mesh axis of its
        own, else the first label of lhs over all of them.
        """
        contraction = contraction_of_arrays(operands, parameters)
        filled = default_specs(contraction, in_specs[: len(contraction.labels)], mesh, _default_axes(contraction, mesh))
        return (*filled, *in_specs[len(filled) :])


def _default_axes(contraction: Contraction, mesh: MeshAxes) -> list[dict[str, tuple[str, ...]]]:
    if len(contraction.labels) == 2:
        lhs, rhs = contraction.labels
        free_labels = [
            next((label for label in contraction.result if axes.count(label) == 1 and label not in others), None)
            for axes, others in ((lhs, rhs), (rhs, lhs))
        ]
        if any(free_labels):
            names = iter((mesh.names[:1], mesh.names[1:2]))
            return [{label: next(names)} if label else {} for label in free_labels]
    first = next((label for label in contraction.labels[0] if contraction.labels[0].count(label) == 1), None)
    return [{first: mesh.names} if first and axes.count(first) == 1 else {} for axes in contraction.labels]
