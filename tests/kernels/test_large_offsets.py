"""Offsets beyond 2**31 are counted in 64 bits, as the uncompiled programs show, without any array."""

import jax
import numpy as np
import pytest
from jax.extend.core import Jaxpr, Literal
from kernels.conftest import KERNELS

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType, padded_shape
from shardcall_server.compilation.program import build_mesh, named_sharding

LIMIT, DEVICES = 2**31, 8
SIZES = [LIMIT + 2**20, LIMIT - 3]
"""Of axes, the second of which padding takes over the limit."""


def equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, tuple | list) else (parameter,):
                if isinstance(of := getattr(inner, "jaxpr", inner), Jaxpr):
                    yield from equations(of)


def overflows(equation):
    """Returns whether an equation may compute an offset in 32 bits that needs more."""
    operands, (result, *_) = equation.invars, equation.outvars
    name, narrow = equation.primitive.name, getattr(result.aval, "dtype", None) == np.int32
    if name in ("dynamic_slice", "dynamic_update_slice"):
        starts = operands[1 if name == "dynamic_slice" else 2 :]
        shape = operands[0].aval.shape
        varies = [not isinstance(start, Literal) and start.aval.dtype.itemsize < 8 for start in starts]
        return any(n >= LIMIT and may for n, may in zip(shape, varies, strict=True))
    if name == "iota":
        return narrow and result.aval.shape[equation.params["dimension"]] >= LIMIT
    if name == "mul" and narrow:
        return any(isinstance(o, Literal) and abs(int(o.val)) * (DEVICES - 1) >= LIMIT for o in operands)
    return False


def traced(run, kernel, *operands, **how):
    resolved = run.resolve(kernel, *operands, **how)
    problem = resolved.problem
    mesh = build_mesh(problem.mesh, resolved.device_ids)
    arguments = [
        jax.ShapeDtypeStruct(
            padded_shape(operand.shape, spec, problem.mesh), operand.dtype, sharding=named_sharding(mesh, spec)
        )
        for operand, spec in zip(problem.operands, problem.in_specs, strict=True)
        if operand is not None and spec is not None
    ]
    return jax.jit(resolved.strategy.build(problem, mesh)).trace(*arguments).jaxpr.jaxpr


def floats(*shape):
    return ArrayType(shape, np.dtype(np.float32))


ROW, COLUMN, UNSHARDED = (None, "x"), ("x", None), (None, None)
CASES = [
    ("matmul", "psum", "summed", [ROW, COLUMN], [UNSHARDED], {}),
    ("matmul", "psum_scatter", "summed", [ROW, COLUMN], [COLUMN], {}),
    ("matmul", "all_gather", "summed", [ROW, COLUMN], [COLUMN], {}),
    ("matmul", "all_gather", "summed", [COLUMN, COLUMN], [COLUMN], {}),
    ("matmul", "summa", "summed", [COLUMN, COLUMN], [COLUMN], {}),
    ("matmul", "all_gather", "rows", [COLUMN, COLUMN], [COLUMN], {}),
    ("collective_matmul", "ring", "rows", [COLUMN, UNSHARDED], [UNSHARDED], {"axis_name": "x"}),
    ("reshard", "all_gather", "one", [COLUMN], [UNSHARDED], {}),
    ("diff", "halo", "one", [COLUMN], [COLUMN], {"axis": 0}),
    ("shift", "halo", "one", [COLUMN], [COLUMN], {"shift": 1, "axis": 0}),
    ("cumsum", "block_scan", "one", [COLUMN], [COLUMN], {"axis": 0}),
    ("argmax", "all_reduce", "one", [COLUMN], [None], {}),
    ("sum", "all_reduce", "one", [COLUMN], [None], {}),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_offsets_beyond_31_bits_are_counted_in_64(run, case, size):
    name, strategy, of, in_specs, out_specs, parameters = case
    operands = {
        "summed": (floats(16, size), floats(size, 16)),
        "rows": (floats(size, 2), floats(2, 2)),
        "one": (floats(size, 1),),
    }[of]
    how = {"mesh": {"x": DEVICES}, "in_specs": in_specs, "out_specs": out_specs, "strategy": strategy}
    computed = list(equations(traced(run, KERNELS[name], *operands, **how, **parameters)))
    assert computed
    assert not [str(equation) for equation in computed if overflows(equation)]


def test_offsets_that_overflow_are_seen():
    def slices(array, index, device):
        return jax.lax.dynamic_slice_in_dim(array, device.astype(index) * 2**29, 8), device * 2**29

    array, device = jax.ShapeDtypeStruct((LIMIT,), np.float32), jax.ShapeDtypeStruct((), np.int32)
    for index, count in ((np.int32, 3), (np.int64, 1)):
        jaxpr = jax.jit(slices, static_argnums=1).trace(array, index, device).jaxpr.jaxpr
        assert sum(map(overflows, equations(jaxpr))) == count


def test_programs_whose_offsets_the_compiler_wraps_are_refused(run):
    x = ArrayType((2**34,), np.dtype(np.int8))
    how = {"mesh": {"x": DEVICES}, "in_specs": [(None,)], "strategy": "gspmd"}
    with pytest.raises(CallError, match="axis of 17179869184 elements") as raised:
        run.program(KERNELS["reshard"], x, **how, out_specs=[("x",)])
    assert raised.value.reason == Reason.NOT_SUPPORTED
    assert run.program(KERNELS["reshard"], ArrayType((2**31,), x.dtype), **how, out_specs=[("x",)])
    assert run.program(KERNELS["copy"], x, mesh={"x": DEVICES}, in_specs=[("x",)])
