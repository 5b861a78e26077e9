"""The candidates for the strategy "auto": those that place the results as the rule's strategy does."""

import numpy as np
from rows import rows

from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec
from shardcall_server.compilation.keys import Platform, kernel_key, tuning_digest
from shardcall_server.compilation.resolve import Request, Resolution, resolve
from shardcall_server.kernels.core.call_checks import AUTO
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.kernels.products.collective_matmul import CollectiveMatMul
from shardcall_server.kernels.products.matmul import MatMul
from shardcall_server.kernels.stencils.convolve import Convolve
from shardcall_server.kernels.stencils.diff import Diff

DEVICES = range(8)
MESH = MeshAxes((("x", 8),))
ROWS, COLUMNS, UNSHARDED = (("x",), ()), ((), ("x",)), ((), ())
PLATFORM = Platform(device_kind="cpu", jax="0", flags="")


def resolved(
    kernel: Kernel,
    *in_specs: Spec,
    out_spec: Spec | None = None,
    strategy: str = AUTO,
    decided: str = "",
    **parameters: int | str,
) -> Resolution:
    matrices = (ArrayType((64, 64), np.dtype(np.float32)),) * len(in_specs)
    out_specs = () if out_spec is None else (out_spec,)
    request = Request(parameters, matrices, MESH, (), in_specs, out_specs, strategy)
    return resolve(kernel, request, DEVICES).with_strategy(decided)


@rows(
    ("kernel", "in_specs", "out_spec", "parameters"),
    [
        (Diff(), (ROWS,), None, {"axis": 0}),
        (Diff(), (COLUMNS,), None, {"axis": 0}),
        (Diff(), (ROWS,), COLUMNS, {"axis": 0}),
        (MatMul(), (COLUMNS, ROWS), None, {}),
        (MatMul(), (COLUMNS, ROWS), UNSHARDED, {}),
        (MatMul(), (COLUMNS, ROWS), COLUMNS, {}),
        (CollectiveMatMul(), (ROWS, UNSHARDED), UNSHARDED, {"axis_name": "x"}),
        (CollectiveMatMul(), (COLUMNS, ROWS), ROWS, {"axis_name": "x"}),
    ],
)
def test_candidates_serve_the_layout_of_the_rules_strategy_which_comes_first(kernel, in_specs, out_spec, parameters):
    rule = resolved(kernel, *in_specs, out_spec=out_spec, **parameters)
    assert rule.candidates[0] == rule.strategy.name
    by_name = {strategy.name: strategy for strategy in kernel.strategies}
    assert set(rule.candidates) == {name for name, s in by_name.items() if not s.refusal(rule.problem)}
    assert list(rule.candidates[1:]) == [name for name in by_name if name in rule.candidates[1:]]
    for name in rule.candidates:
        other = resolved(kernel, *in_specs, out_spec=out_spec, decided=name, **parameters)
        assert other.strategy.name == name
        assert other.problem == rule.problem


def test_a_layout_that_one_strategy_serves_has_one_candidate_and_a_named_strategy_none():
    rule = resolved(MatMul(), ROWS, UNSHARDED)
    assert (rule.problem.out_specs, rule.candidates) == ((ROWS,), (rule.strategy.name,))
    assert resolved(Diff(), ROWS, axis=0, strategy="gspmd").candidates == ()


def test_the_tuning_result_is_cached_by_all_of_the_key_but_the_strategy():
    keys = [kernel_key(resolved(Diff(), ROWS, axis=0, decided=name), PLATFORM) for name in ("", "halo", "gspmd")]
    assert len({tuning_digest(key) for key in keys}) == 1
    assert tuning_digest(keys[0]) not in {key.digest() for key in keys}
    upgraded = kernel_key(resolved(Diff(), ROWS, axis=0), Platform(device_kind="cpu", jax="1", flags=""))
    assert tuning_digest(upgraded) != tuning_digest(keys[0])
    assert tuning_digest(kernel_key(resolved(Diff(), COLUMNS, axis=0), PLATFORM)) != tuning_digest(keys[0])


@rows(
    ("kernel", "shapes", "parameters"),
    [
        (Diff(), [(4096, 8)], {"n": 17, "axis": 0}),
        (Convolve(), [(1 << 20,), (1 << 11,)], {}),
        (Convolve(), [(1 << 24,), (1 << 10,)], {}),
        (MatMul(), [(4096, 4096), (4096, 4096)], {}),
        (CollectiveMatMul(), [(4096, 4096), (4096, 4096)], {"axis_name": "x"}),
    ],
)
def test_what_may_take_long_is_not_timed(kernel, shapes, parameters):
    operands = tuple(ArrayType(shape, np.dtype(np.float64)) for shape in shapes)
    assert len(resolve(kernel, Request(parameters, operands, MESH, (), (), (), AUTO), DEVICES).candidates) == 1
    small = tuple(ArrayType(tuple(min(n, 64) for n in shape), np.dtype(np.float64)) for shape in shapes)
    quick = Request({**parameters, **({"n": 3} if "n" in parameters else {})}, small, MESH, (), (), (), AUTO)
    assert kernel.is_quick(resolve(kernel, quick, DEVICES).problem)
