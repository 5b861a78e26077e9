"""A user-defined kernel: the Euclidean length of each row of a matrix, ``np.linalg.norm(x, axis=1)``."""

import jax
import jax.numpy as jnp

from shardcall_server import authoring as own


def build(problem, mesh):
    """Every device sums the squares of its part of the rows; one sum over devices completes them."""
    (x,), (spec,) = problem.operands, problem.in_specs

    def body(block):  # [rows, columns], at the end perhaps padding, which may hold anything
        before = jax.lax.axis_index(spec[1]) * block.shape[1] if spec[1] else 0
        total = jnp.sum(own.mask_from(block, 1, x.shape[1] - before) ** 2, axis=1)
        return jnp.sqrt(jax.lax.psum(total, spec[1]) if spec[1] else total)

    specs = {"in_specs": own.partition_spec(spec), "out_specs": own.partition_spec(spec[:1])}
    per_device = jax.shard_map(body, mesh=mesh, **specs)
    return lambda x: (own.fit(per_device(x), problem.padded_result()),)


class RowLengths(own.Kernel):
    """The Euclidean length of each row; where columns are sharded, one all-reduce of a number a row."""

    name, version, summary = "row_lengths", 1, "The Euclidean length of each row of a matrix."
    operands = (own.OperandInfo("x", "A matrix of float32 or float64."),)
    strategies = (own.Strategy("psum", "Sums of squares, summed over devices.", lambda problem: None, build),)

    def validate(self, operands, parameters):
        (x,) = operands
        if x.ndim != 2 or x.dtype.name not in ("float32", "float64"):
            reason = own.Reason.INVALID_OPERAND
            raise own.CallError(reason, f"x is {x}; give a matrix of float32 or float64", field="x")
        return own.Signature(None, (own.ArrayType(x.shape[:1], x.dtype),))

    def default_out_specs(self, problem, strategy):
        return (problem.in_specs[0][:1],)  # rows stay where they are
