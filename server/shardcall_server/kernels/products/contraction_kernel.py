"""The base class of `matmul` and `einsum`: default specs and the default strategy."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from shardcall_core.functions.contraction import STRETCHED, Contraction
from shardcall_core.functions.signature import ParametersT, Signature
from shardcall_core.layouts.layout import MeshAxes, OperandTypes, Spec, Specs
from shardcall_server.kernels.core.kernel import FunctionKernel, Problem
from shardcall_server.kernels.products import block_products, gathered_products, partial_sums, resharded_products
from shardcall_server.kernels.products.contraction import ContractionSharding

_PREFERRED = ("psum_scatter", "psum", "all_gather", "reshard", "gspmd", "summa")
"""The strategies, the preferred one of several with the same cost first."""


class ContractionKernel(FunctionKernel[ParametersT]):
    """A kernel that computes a `Contraction`."""

    @staticmethod
    @abstractmethod
    def contraction_of(problem: Problem[ParametersT]) -> Contraction:
        """Returns the contraction of a problem."""

    def product_count(self, operands: OperandTypes, signature: Signature[ParametersT]) -> int:
        """Returns the multiplications of a product of matrices, which is an underestimate for batches."""
        shapes = (array.shape for array in (*operands, *signature.results) if array is not None)
        return math.isqrt(math.prod(map(math.prod, shapes)))

    def default_out_specs(self, problem: Problem[ParametersT], strategy: str) -> Specs:
        """Returns the spec that an explicit strategy produces; for ``gspmd`` that of ``all_gather``."""
        if problem.out_specs[0] is not None:
            return problem.out_specs
        contraction = self.contraction_of(problem)
        if strategy == "reshard":
            return (resharded_products.default_out_spec(problem, self.contraction_of),)
        if strategy in ("all_gather", "summa", "gspmd"):
            return (gathered_products.result_spec(problem, contraction),)
        return (partial_sums.default_out_spec(problem, contraction, strategy),)

    def is_quick(self, problem: Problem[ParametersT]) -> bool:
        """Returns True up to some 10¹¹ operations, a second or so of one processor."""
        return 2 * math.prod(self.contraction_of(problem).sizes.values()) <= block_products.QUICK_FLOPS

    def choose(self, problem: Problem[ParametersT]) -> tuple[str, str]:
        """Returns the strategy with the smallest cost; of equal ones the first of `_PREFERRED`."""
        sharding, costs = ContractionSharding.of(problem, self.contraction_of(problem)), self.costs(problem)
        name = min(_PREFERRED, key=lambda name: costs.get(name, math.inf))
        return name, self._reason(name, sharding)

    def _reason(self, name: str, sharding: ContractionSharding) -> str:
        """Returns the reason for a strategy, as a clause."""
        reasons = {
            "psum_scatter": partial_sums.reason(sharding.summed_mesh_axes, "reduce-scatter"),
            "psum": partial_sums.reason(sharding.summed_mesh_axes, "all-reduce"),
            "all_gather": "every device gathers what its block of the result needs, so there are no partial sums",
            "reshard": "the operands are sharded otherwise than each other, and moving one sends the fewest bytes",
            "summa": "it sends the fewest bytes",
            "gspmd": "no axis that is summed over is sharded, so there are no partial sums",
        }
        if name == "gspmd" and any(names for label in sharding.contraction.summed for _, names in sharding.axes(label)):
            return "the compiler completes the partial sums"
        return reasons[name]


def default_specs(
    contraction: Contraction,
    in_specs: Sequence[Spec | None],
    mesh: MeshAxes,
    defaults: Sequence[Mapping[str, tuple[str, ...]]],
) -> tuple[Spec, ...]:
    """Fills in the specs that a caller left unset.

    If one spec is set, axes of the other that share a label are sharded alike, and its first other axis in the result
    is sharded over the first unused mesh axis.

    Args:
        contraction: the labels of the operands and of the result.
        in_specs: one per operand, None where unset.
        mesh: the axes that specs may name.
        defaults: for each operand, the mesh axes of its labels, used where no spec is set.
    """
    if all(spec is None for spec in in_specs):
        return tuple(
            tuple(() if label == STRETCHED else mesh_axes.get(label, ()) for label in labels)
            for labels, mesh_axes in zip(contraction.labels, defaults, strict=True)
        )
    assigned = {
        label: names
        for labels, spec in zip(contraction.labels, in_specs, strict=True)
        for label, names in zip(labels, spec or (), strict=False)
        if label != STRETCHED
    }
    free = [name for name in mesh.names if not any(name in names for spec in in_specs for names in spec or ())]
    return tuple(
        _beside(labels, assigned, free[:1], contraction) if spec is None else spec
        for labels, spec in zip(contraction.labels, in_specs, strict=True)
    )


def _beside(
    labels: Sequence[str], assigned: Mapping[str, tuple[str, ...]], free: Sequence[str], contraction: Contraction
) -> Spec:
    unassigned = [label for label in labels if label in contraction.result and label not in assigned]
    spec: list[tuple[str, ...]] = []
    for label in labels:
        names = tuple(free) if unassigned[:1] == [label] else assigned.get(label, ())
        spec.append(() if any({*names} & {*others} for others in spec) else names)
    return tuple(spec)
