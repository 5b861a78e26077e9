"""The product of two matrices, multiplied while blocks travel from device to device."""

from __future__ import annotations

import math
from functools import partial

import jax

from shardcall_core.call_error import CallError, Reason, did_you_mean, shorten
from shardcall_core.functions.products import CollectiveMatMulParameters
from shardcall_core.functions.signature import Signature
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import MeshAxes, OperandTypes, Specs, required
from shardcall_server.kernels.core import element_types
from shardcall_server.kernels.core.blocks import fit, mask_from, partition_spec
from shardcall_server.kernels.core.kernel import FunctionKernel, Problem, Program, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.products import block_products
from shardcall_server.kernels.products import collective_products as bodies
from shardcall_server.kernels.products.collective_layouts import (
    layouts,
    misfit,
    served_by,
    without,
)
from shardcall_server.kernels.products.collective_products import Body, Product
from shardcall_server.kernels.products.rings import Ring

_SCATTERING = ("psum_scatter", "psum_scatter_ring", "psum_scatter_bidirectional_ring")


def _build(
    problem: Problem[CollectiveMatMulParameters], mesh: jax.sharding.Mesh, *, body: Body, gather: bool
) -> Program:
    if program := block_products.empty_sum(problem):
        return program
    (result,), out_spec = problem.results, problem.out_specs[0]
    layout = next(fitting for fitting in layouts(problem, gather=gather) if fitting.result == out_spec)
    ring = Ring(layout.axis_name, problem.mesh.size([layout.axis_name]))
    (rows, contracting), (_, columns) = (required(operand).shape for operand in problem.operands)
    m, k, n = layout.padded(rows, contracting, columns, problem.mesh)

    def masked(block: jax.Array, axis: int, names: tuple[str, ...]) -> jax.Array:
        here = block_products.rows_here(contracting, names, block.shape[axis]) if names else contracting
        return mask_from(block, axis, here) if k > contracting else block

    def block(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        lhs, rhs = masked(lhs, 1, layout.lhs[1]), masked(rhs, 0, layout.rhs[0])
        return element_types.from_bits(body(lhs, rhs, Product(layout, ring, result.dtype)), result.dtype)

    sharded = jax.shard_map(
        block,
        mesh=mesh,
        in_specs=(partition_spec(layout.lhs), partition_spec(layout.rhs)),
        out_specs=partition_spec(layout.result),
        # Every device computes the same complete product in a ring, which JAX cannot infer.
        check_vma=False,
    )
    # An axis that is sharded over more mesh axes in one array than in another may need more padding there.
    return lambda lhs, rhs: (fit(sharded(fit(lhs, (m, k)), fit(rhs, (k, n))), problem.padded_result()),)


def _strategy(name: str, documentation: str, body: Body) -> Strategy:
    gather = name not in _SCATTERING
    return Strategy(
        name,
        documentation,
        partial(misfit, gather=gather),
        partial(_build, body=body, gather=gather),
    )


class CollectiveMatMul(FunctionKernel[CollectiveMatMulParameters]):
    """The product of two matrices along one mesh axis, overlapping the products with the transfer of blocks.

    ``r[i, j] = Σₖ lhs[i, k] · rhs[k, j]``, as ``np.matmul(lhs, rhs)``, of type ``np.result_type(lhs, rhs)``; sums are
    taken as `MatMul` takes them.

    Sharding: what travels along ``axis_name``, over D devices, follows from which axes of lhs and rhs it shards
    (`collective_layouts`). One operand is gathered, its rows or columns or along the contracting axis, and every other
    axis of the product stays as it is sharded: of lhs ``P(axis_name, None)`` and rhs ``P(None, axis_name)`` the result
    is ``P(None, axis_name)``. ``all_gather`` moves (D - 1) / D of the gathered operand's bytes per device, or of the
    product's where that is replicated; ``ring`` passes its blocks on in D - 1 steps and multiplies each as it comes;
    ``bidirectional_ring`` sends one half of a block in each direction. With the contracting axis sharded over
    ``axis_name`` in both, the sums are scattered by rows, or by columns if the result's spec says so: ``psum_scatter``
    in one collective, ``psum_scatter_ring`` and ``psum_scatter_bidirectional_ring`` by passing them on while every
    device adds its part; (D - 1) / D of the bytes of the sums. Other mesh axes may shard all array axes; those of the
    contracting axis are summed over by a ``psum``.

    Source: the JAX notebook shard_map, case study "collective matmul"; Wang et al., Overlap communication with
    dependent computation via decomposition in large deep learning models, ASPLOS 2023, section 5.1.
    """

    function = FUNCTIONS["collective_matmul"]
    version = 3
    reproducibility = Reproducibility.INTEGERS
    strategies = (
        _strategy(
            "all_gather",
            "Gathers the operand that axis_name shards and multiplies; gathers the products where every device would "
            "do all of them. Serves axis_name sharding lhs or rhs, or lhs by rows and rhs by columns or rows.",
            bodies.all_gather,
        ),
        _strategy(
            "ring",
            "The blocks of that operand go round and every device multiplies each as it comes. Serves what "
            "all_gather does, and never holds the complete operand.",
            partial(bodies.ring_of_blocks, bidirectional=False),
        ),
        _strategy(
            "bidirectional_ring",
            "As ring, with one half of each block sent in each direction. Serves what all_gather does.",
            partial(bodies.ring_of_blocks, bidirectional=True),
        ),
        _strategy(
            "psum_scatter",
            "Every device multiplies its blocks and the sums are scattered by rows, or by columns if the result's spec "
            "says so. Serves lhs P(None, axis_name), rhs P(axis_name, None).",
            bodies.psum_scatter,
        ),
        _strategy(
            "psum_scatter_ring",
            "As psum_scatter, but the sums go round and every device adds its part just in time. Serves what "
            "psum_scatter does, and never holds the complete sums.",
            partial(bodies.ring_of_sums, bidirectional=False),
        ),
        _strategy(
            "psum_scatter_bidirectional_ring",
            "As psum_scatter_ring, with one half of each sum sent in each direction. Serves what psum_scatter does.",
            partial(bodies.ring_of_sums, bidirectional=True),
        ),
    )

    def product_count(self, operands: OperandTypes, signature: Signature[CollectiveMatMulParameters]) -> int:
        """Returns the multiplications."""
        return math.prod(required(operands[0]).shape) * required(operands[1]).shape[-1]

    def default_in_specs(
        self,
        operands: OperandTypes,
        parameters: CollectiveMatMulParameters,
        in_specs: Specs,
        mesh: MeshAxes,
        strategy: str,
    ) -> Specs:
        """Fills in unset specs so that one operand is sharded over ``axis_name`` and the contracting axes alike.

        lhs by rows if it is unset, rhs replicated if lhs is sharded over ``axis_name`` and else by columns; for sums,
        and for ``auto`` where the spec that is set shards the contracting axis, the other shards it alike.

        Raises:
            CallError: for an axis_name that the mesh does not have.
        """
        axis_name = parameters.axis_name
        if axis_name not in mesh.names:
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"axis_name={shorten(axis_name)!r} is no axis of the mesh ({mesh}); "
                f"{did_you_mean(axis_name, mesh.names)}",
                field="axis_name",
            )
        lhs, rhs = in_specs
        if lhs is None and rhs is None:
            lhs = ((), (axis_name,)) if strategy in _SCATTERING else ((axis_name,), ())
        if lhs is None:
            (contracting, _) = required(rhs)
            sums = strategy in _SCATTERING or (strategy == "auto" and axis_name in contracting)
            lhs = ((), contracting) if sums else ((axis_name,), without(contracting, axis_name))
        if rhs is None:
            (_, contracting) = lhs
            sums = strategy in _SCATTERING or strategy == "auto"
            columns = () if any(axis_name in names for names in lhs) else (axis_name,)
            rhs = (contracting if sums else without(contracting, axis_name), columns)
        return lhs, rhs

    def default_out_specs(self, problem: Problem[CollectiveMatMulParameters], strategy: str) -> Specs:
        """Returns the spec that the strategy produces; if rows or columns can be gathered, that of gathered rows."""
        specs = [layout.result for layout in layouts(problem, gather=strategy not in _SCATTERING)]
        return (problem.out_specs[0] or (specs[0] if specs else None),)

    def is_quick(self, problem: Problem[CollectiveMatMulParameters]) -> bool:
        """Returns True up to some 10¹¹ operations, a second or so of one processor."""
        (rows, contracting), (_, columns) = (required(operand).shape for operand in problem.operands)
        return 2 * rows * contracting * columns <= block_products.QUICK_FLOPS

    def choose(self, problem: Problem[CollectiveMatMulParameters]) -> tuple[str, str]:
        """Returns ``psum_scatter`` where ``axis_name`` shards the contracting axis of both, else ``all_gather``.

        Raises:
            CallError: for layouts that neither serves.
        """
        axis_name = problem.parameters.axis_name
        lhs, rhs = map(required, problem.in_specs)
        sums = all(axis_name in names for names in (lhs[1], rhs[0]))
        why = misfit(problem, gather=not sums)
        if why is None and sums:
            return "psum_scatter", f"the contracting axis is sharded over {axis_name!r} in lhs and rhs"
        if why is None:
            return "all_gather", f"{axis_name!r} shards the contracting axis of at most one operand"
        raise CallError(
            Reason.STRATEGY_UNSUPPORTED,
            f"no strategy of kernel 'collective_matmul' serves this layout: {why}; other strategies "
            f"serve {served_by(axis_name, gather=sums)}; change the specs, or call matmul",
            field="strategy",
            metadata={"able": ""},
        )
