"""A kernel of one's own: the Euclidean length of each row of a matrix, ``np.linalg.norm(x, axis=1)``."""

import jax
import jax.numpy as jnp

from shardcall_server.authoring import (
    ArrayType,
    CallError,
    Kernel,
    OperandInfo,
    Reason,
    Signature,
    Strategy,
    fit,
    mask_from,
    partition_spec,
)


def build(problem, mesh):
    """Every device sums the squares of its part of the rows; one sum over devices completes them."""
    (x,), (spec,) = problem.operands, problem.in_specs

    def body(block):  # [rows, columns], at the end perhaps padding, which may hold anything
        before = jax.lax.axis_index(spec[1]) * block.shape[1] if spec[1] else 0
        total = jnp.sum(mask_from(block, 1, x.shape[1] - before) ** 2, axis=1)
        return jnp.sqrt(jax.lax.psum(total, spec[1]) if spec[1] else total)

    per_device = jax.shard_map(body, mesh=mesh, in_specs=partition_spec(spec), out_specs=partition_spec(spec[:1]))
    return lambda x: (fit(per_device(x), problem.padded_result()),)


class RowLengths(Kernel):
    """The Euclidean length of each row; where columns are split, one all-reduce of a number a row."""

    name, version, summary = "row_lengths", 1, "The Euclidean length of each row of a matrix."
    operands, parameters = (OperandInfo("x", "A matrix of float32 or float64."),), ()
    strategies = (Strategy("psum", "Sums of squares, summed over the devices of a row.", lambda problem: None, build),)

    def validate(self, operands, parameters):
        (x,) = operands
        if x.ndim != 2 or x.dtype.name not in ("float32", "float64"):
            raise CallError(Reason.INVALID_OPERAND, f"x is {x}; give a matrix of float32 or float64", field="x")
        return Signature({}, (ArrayType(x.shape[:1], x.dtype),))

    def default_out_specs(self, problem, strategy):
        return (problem.in_specs[0][:1],)  # rows stay where they are
