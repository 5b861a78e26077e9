"""Derivatives of kernels.

The result of a call in a program that is differentiated is that of the kernel's strategy. Its derivative is one of two:

- for kernels that move, add and scale elements, the derivative of the strategy itself, which JAX computes;
- for others, that of a function of `jax.numpy` on the arrays without padding, which the compiler partitions.

Kernels in neither list cannot be differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.sharding import NamedSharding, PartitionSpec

from shardcall_core.element_types import is_inexact
from shardcall_core.functions.elementwise import loop_of
from shardcall_core.graphs.graph import BODIES, WITHOUT_DERIVATIVE, is_dynamic
from shardcall_core.layouts.layout import required
from shardcall_server.kernels.array_functions.function_kernel import TableKernel
from shardcall_server.kernels.array_functions.row import ResultBlock, call_of
from shardcall_server.kernels.core.blocks import fit, partition_spec
from shardcall_server.kernels.core.differentiation import differentiation, with_derivative
from shardcall_server.kernels.core.element_types import working_type
from shardcall_server.kernels.core.kernel import Kernel, Problem, Program
from shardcall_server.kernels.elementwise.elementwise import ElementwiseKernel
from shardcall_server.kernels.elementwise.random import key_of
from shardcall_server.kernels.elementwise.reductions import ReduceKernel

Reference = Callable[..., Any]
"""Computes the results from the present operands, all without padding."""

GRAPH = "graph"
VMAP = "vmap"

NATIVE = frozenset(
    (
        *("reshard", "copy", "transpose", "roll", "shift", "diff", "gradient", "laplacian", "cumsum"),
        *("getitem", "setitem", "reshape", "expand_dims", "squeeze", "broadcast_to", "flip", "concatenate", "stack"),
        *("tile", "repeat", "tril", "triu", "diagonal", "pad", "sort", "take", "take_along_axis", "take_at"),
        *("put_along_axis", "full", "full_like", "uniform", "normal"),
    )
)
"""The kernels whose strategies JAX differentiates."""

_FIRST_OPERAND = frozenset(("gradient", "laplacian"))
"""The kernels of `NATIVE` with a derivative with respect to their first operand only."""


def refusal(kernel: Kernel, problem: Problem, active: Sequence[bool]) -> str | None:
    """Returns why a call cannot be differentiated, as a clause; None if it can.

    Args:
        kernel: the kernel.
        problem: its problem.
        active: for each present operand, True if it depends on an input that the derivative is with respect to.
    """
    if kernel.name in BODIES:  # whose nodes are checked
        carried, count = (getattr(problem.parameters, name, None) for name in ("carried", "count"))
        return WITHOUT_DERIVATIVE if is_dynamic(kernel.name, carried, count) else None
    types = [array_type for array_type in (*problem.operands, *problem.results) if array_type is not None]
    if any(array_type.dtype.itemsize == 1 and is_inexact(array_type.dtype) for array_type in types):
        return "numbers of 8 bits have no derivatives; convert them to a wider type"
    if kernel.name in NATIVE:
        if kernel.name in _FIRST_OPERAND and any(active[1:]):
            return "it has a derivative with respect to its first operand only"
        return None
    if reference_of(kernel, problem) is None:
        return "the kernel has no derivative"
    return _REFUSALS[kernel.name](problem) if kernel.name in _REFUSALS else None


def differentiable(kernel: Kernel, problem: Problem, program: Program, mesh: jax.sharding.Mesh) -> Program:
    """Returns the program of a call in a form that JAX differentiates.

    If the kernel has no derivative, it is taken as 0; `refusal` returns where that would be wrong.

    Args:
        kernel: the kernel.
        problem: its problem, with all specs set.
        program: the program of the strategy.
        mesh: the mesh.
    """
    if kernel.name in NATIVE or kernel.name in BODIES:
        return program
    is_number = any(is_inexact(result.dtype) for result in problem.results)
    reference = reference_of(kernel, problem, mesh) if is_number else None
    operand_types = [operand for operand in problem.operands if operand is not None]

    def padded(array: jax.Array, index: int) -> jax.Array:
        spec = NamedSharding(mesh, partition_spec(required(problem.out_specs[index])))
        constrained: jax.Array = lax.with_sharding_constraint(fit(array, problem.padded_result(index)), spec)
        return constrained

    def differentiated(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        with differentiation(on=False):
            primals = program(*map(lax.stop_gradient, arrays))
        if reference is None:
            return primals
        computed = reference(*(fit(array, operand.shape) for array, operand in zip(arrays, operand_types, strict=True)))
        results = computed if isinstance(computed, tuple) else (computed,)
        count = len(problem.results)
        values = (
            with_derivative(value, padded(result.astype(value.dtype), i)) if is_inexact(value.dtype) else value
            for i, (value, result) in enumerate(zip(primals[:count], results[:count], strict=True))
        )
        return (*values, *primals[count:])

    return differentiated


def reference_of(kernel: Kernel, problem: Problem, mesh: jax.sharding.Mesh | None = None) -> Reference | None:
    """Returns the function whose derivative a kernel's result has; None if there is none."""
    if isinstance(kernel, ElementwiseKernel):
        return _elementwise(kernel, problem)
    if isinstance(kernel, ReduceKernel):
        return partial(_reduced, kernel.name, problem)
    if kernel.name in _BY_BODY and isinstance(kernel, TableKernel):
        return _replicated(_of_body(kernel, problem), mesh)
    if function := _PARTITIONED.get(kernel.name):
        return partial(function, problem)
    return _replicated(partial(function, problem), mesh) if (function := _REPLICATED.get(kernel.name)) else None


def _replicated(reference: Reference, mesh: jax.sharding.Mesh | None) -> Reference:
    """Returns a function that every device computes from complete operands.

    XLA aborts on some gathers and scatters that it partitions, such as those of the derivative of a sort ("Check
    failed: ShapeUtil::IsScalarWithElementType" in ``spmd_partitioner_util.h``, jaxlib 0.10.2).
    """
    if mesh is None or mesh.size == 1:
        return reference

    def on_every_device(*operands: jax.Array) -> Any:
        mapped: Reference = jax.shard_map(
            reference, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False
        )
        return mapped(*operands)

    return on_every_device


def _elementwise(kernel: ElementwiseKernel, problem: Problem) -> Reference:
    function: Callable[..., jax.Array] = _ELEMENTWISE.get(kernel.name) or getattr(jnp, kernel.name)
    types = loop_of(kernel.name, problem.operands).operands

    def computed(*operands: jax.Array) -> jax.Array:
        present = iter(operands)
        wide = [
            None if operand is None or dtype is None else next(present).astype(working_type(dtype))
            for operand, dtype in zip(problem.operands, types, strict=True)
        ]
        return function(*wide)

    return computed


def _fmax(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.where(jnp.isnan(x), y, jnp.where(jnp.isnan(y), x, jnp.maximum(x, y)))


def _fmin(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.where(jnp.isnan(x), y, jnp.where(jnp.isnan(y), x, jnp.minimum(x, y)))


@jax.custom_jvp
def _power(x: jax.Array, y: jax.Array) -> jax.Array:
    """`jnp.power`, whose derivative of x⁰ is 0 at x = 0 for all y; that of `jnp.power` is 0 for integers y only."""
    return jnp.power(x, y)


@partial(_power.defjvp, symbolic_zeros=True)
def _power_jvp(
    primals: Sequence[jax.Array], tangents: Sequence[jax.Array | SymbolicZero]
) -> tuple[jax.Array, jax.Array]:
    (x, y), (dx, dy) = primals, tangents
    result, is_pole = _power(x, y), (x == 0) & (y == 0)
    tangent = jnp.zeros_like(result)
    if not isinstance(dx, SymbolicZero):
        tangent += dx * y * jnp.where(is_pole, 0, _power(jnp.where(is_pole, 1, x), y - 1))
    if not isinstance(dy, SymbolicZero):
        tangent += dy * jnp.log(jnp.where(x == 0, 1, x)) * result
    return result, tangent


_ELEMENTWISE: Mapping[str, Callable[..., jax.Array]] = {
    "fmax": _fmax,
    "fmin": _fmin,
    "power": _power,
    "float_power": _power,
}
"""The functions that replace those of `jax.numpy` with NumPy's name, for their derivatives."""


def _reduced(name: str, problem: Problem, x: jax.Array, *others: jax.Array) -> jax.Array:
    parameters = problem.parameters
    names = [
        name for name, operand in zip(("where", "initial"), problem.operands[1:], strict=False) if operand is not None
    ]
    how: dict[str, Any] = dict(zip(names, others, strict=True))
    result = problem.results[0].dtype
    if name in ("var", "std"):
        how["ddof"] = parameters.ddof
        x = x.astype(jnp.result_type(x.dtype, working_type(result)))
    else:
        x = x.astype(working_type(result))
    if "initial" in how:
        how["initial"] = how["initial"].astype(x.dtype)
    elif problem.checks:  # of max and min, so that an element is left
        how["initial"] = jnp.full((), -jnp.inf if name == "max" else jnp.inf, x.dtype)
    if "where" in how:
        how["where"] = how["where"] != 0
        x = jnp.where(how["where"], x, 0)  # or the derivative of a variance has the differences from its mean
    reduced: jax.Array = getattr(jnp, name)(x, axis=parameters.axis, keepdims=parameters.keepdims, **how)
    return reduced


def _of_body(kernel: TableKernel, problem: Problem) -> Reference:
    """Returns the body of a row of the table, of complete arrays."""
    result = problem.results[0]
    block = ResultBlock(call_of(problem), result.dtype, result.shape, (0,) * result.ndim)

    def computed(*operands: jax.Array) -> Any:
        present = iter(operands)
        return kernel.row.body(block, [None if operand is None else next(present) for operand in problem.operands])

    return computed


_BY_BODY = frozenset(("trace", "arange", "linspace", "cumprod", "bincount", "fft", "ifft", "rfft", "irfft", "put_at"))


def _matmul(problem: Problem, lhs: jax.Array, rhs: jax.Array) -> jax.Array:
    parameters, dtype = problem.parameters, working_type(problem.results[0].dtype)
    lhs, rhs = lhs.astype(dtype), rhs.astype(dtype)
    if getattr(parameters, "transpose_lhs", False):
        lhs = lhs.mT
    if getattr(parameters, "transpose_rhs", False):
        rhs = rhs.mT
    return jnp.matmul(lhs, rhs, precision=lax.Precision.HIGHEST)


def _einsum(problem: Problem, *operands: jax.Array) -> jax.Array:
    dtype = working_type(problem.results[0].dtype)
    wide = [operand.astype(dtype) for operand in operands]
    product: jax.Array = jnp.einsum(problem.parameters.subscripts, *wide, precision=lax.Precision.HIGHEST)
    return product


def _convolve(problem: Problem, x: jax.Array, v: jax.Array) -> jax.Array:
    parameters, dtype = problem.parameters, working_type(problem.results[0].dtype)
    rows = jnp.moveaxis(x.astype(dtype), parameters.axis, -1)
    flat = rows.reshape(-1, rows.shape[-1])
    convolved = jax.vmap(lambda row: jnp.convolve(row, v.astype(dtype), mode=parameters.mode))(flat)
    return jnp.moveaxis(convolved.reshape(*rows.shape[:-1], convolved.shape[-1]), -1, parameters.axis)


def _interp(problem: Problem, x: jax.Array, xp: jax.Array, fp: jax.Array, *ends: jax.Array) -> jax.Array:
    names = [name for name, operand in zip(("left", "right"), problem.operands[3:], strict=True) if operand is not None]
    return jnp.interp(x, xp, fp, **dict(zip(names, ends, strict=True)))


def _permuted(problem: Problem, seed: jax.Array, x: jax.Array) -> jax.Array:
    axis = problem.parameters.axis
    return jnp.take(x, jax.random.permutation(key_of(seed), x.shape[axis]), axis=axis, unique_indices=True)


def _as_type(problem: Problem, x: jax.Array) -> jax.Array:
    return x.astype(problem.results[0].dtype)


def _wide(problem: Problem, *operands: jax.Array) -> list[jax.Array]:
    dtype = problem.results[-1].dtype
    return [operand.astype(jnp.result_type(operand.dtype, dtype)) for operand in operands]


def _linalg(name: str, *parameters: str) -> Callable[..., Any]:
    def computed(problem: Problem, *operands: jax.Array) -> Any:
        how = {parameter: getattr(problem.parameters, parameter) for parameter in parameters}
        result = getattr(jnp.linalg, name)(*_wide(problem, *operands), **how)
        return tuple(result) if isinstance(result, tuple) else result

    return computed


def _eigvalsh(problem: Problem, x: jax.Array) -> jax.Array:
    values: jax.Array = _linalg("eigh", "UPLO")(problem, x)[0]
    return values


def _solved_triangular(problem: Problem, *operands: jax.Array) -> jax.Array:
    parameters, (x, b) = problem.parameters, _wide(problem, *operands)
    x = jnp.tril(x) if parameters.lower else jnp.triu(x)
    if parameters.unit_diagonal:
        x = jnp.where(jnp.eye(x.shape[-1], dtype=bool), 1, x)
    x = x if parameters.trans == "N" else x.mT if parameters.trans == "T" else jnp.conj(x.mT)
    solution: jax.Array = jnp.linalg.solve(x, b)
    return solution


_PARTITIONED: Mapping[str, Callable[..., Any]] = {
    "matmul": _matmul,
    "collective_matmul": _matmul,
    "einsum": _einsum,
    "astype": _as_type,
    "erf": lambda problem, x: lax.erf(_as_type(problem, x)),
    "gammaln": lambda problem, x: lax.lgamma(_as_type(problem, x)),
}
"""The functions of other kernels, which the compiler partitions."""

_REPLICATED: Mapping[str, Callable[..., Any]] = {
    # XLA's derivative with respect to v is a multiple where x is replicated over one of several axes (jaxlib 0.10.1).
    "convolve": _convolve,
    "interp": _interp,
    "permutation": _permuted,
    "cholesky": _linalg("cholesky", "upper"),
    "inv": _linalg("inv"),
    "solve": _linalg("solve"),
    "solve_triangular": _solved_triangular,
    "det": _linalg("det"),
    "slogdet": _linalg("slogdet"),
    "eigh": _linalg("eigh", "UPLO"),
    "eigvalsh": _eigvalsh,
    "svd": _linalg("svd", "full_matrices"),
    "svdvals": _linalg("svdvals"),
    "qr": _linalg("qr", "mode"),
}


def _full_matrices(problem: Problem) -> str | None:
    x = required(problem.operands[0]).shape
    if problem.parameters.full_matrices:
        return f"the square factors of {x[-2]} x {x[-1]} matrices are not unique; give full_matrices=False"
    return None


def _complete(problem: Problem) -> str | None:
    x = required(problem.operands[0]).shape
    if x[-2] < x[-1] or (problem.parameters.mode == "complete" and x[-2] != x[-1]):
        return f"QR decompositions of {x[-2]} x {x[-1]} matrices have none; mode reduced of tall matrices does"
    return None


def _products(problem: Problem) -> str | None:
    mode = problem.parameters.mode
    return (
        None
        if mode in ("set", "add", "min", "max")
        else f"mode {mode!r} has none; take elements, compute, and set them"
    )


_REFUSALS: Mapping[str, Callable[[Problem], str | None]] = {
    "svd": _full_matrices,
    "qr": _complete,
    "put_at": _products,
}
