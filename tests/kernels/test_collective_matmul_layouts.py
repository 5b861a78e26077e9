"""Specs of `collective_matmul`: defaults, chosen strategies, and the messages of refusals."""

import numpy as np
import pytest

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType, format_spec
from shardcall_server.kernels.products.collective_matmul import CollectiveMatMul

KERNEL = CollectiveMatMul()
SQUARE = ArrayType((8, 8), np.dtype(np.float32))
MESH = {"x": 2, "y": 2, "z": 2}


@pytest.mark.parametrize(
    ("strategy", "in_specs", "expected"),
    [
        ("auto", [], "all_gather: P('x', None) P(None, None) -> P(None, None)"),
        ("ring", [], "ring: P('x', None) P(None, None) -> P(None, None)"),
        ("psum_scatter_ring", [], "psum_scatter_ring: P(None, 'x') P('x', None) -> P('x', None)"),
        ("auto", [(None, "x")], "psum_scatter: P(None, 'x') P('x', None) -> P('x', None)"),
        ("auto", [None, ("x", None)], "psum_scatter: P(None, 'x') P('x', None) -> P('x', None)"),
        ("ring", [(None, "x")], "ring: P(None, 'x') P(None, None) -> P(None, None)"),
        ("ring", [None, ("x", None)], "ring: P('x', None) P('x', None) -> P('x', None)"),
        ("auto", [None, (None, "x")], "all_gather: P('x', None) P(None, 'x') -> P(None, 'x')"),
        ("auto", [()], "all_gather: P(None, None) P(None, 'x') -> P(None, None)"),
        ("auto", [("x", "y")], "all_gather: P('x', 'y') P('y', None) -> P(None, None)"),
        ("auto", [("z", ("y", "x"))], "psum_scatter: P('z', ('y', 'x')) P(('y', 'x'), None) -> P(('z', 'x'), None)"),
        ("psum_scatter", [None, ("x", "z")], "psum_scatter: P(None, 'x') P('x', 'z') -> P('x', 'z')"),
    ],
)
def test_unset_specs_follow_from_those_that_are_set(run, strategy, in_specs, expected):
    resolved = run.resolve(KERNEL, SQUARE, SQUARE, mesh=MESH, axis_name="x", strategy=strategy, in_specs=in_specs)
    lhs, rhs, result = (format_spec(spec) for spec in (*resolved.problem.in_specs, *resolved.problem.out_specs))
    assert f"{resolved.strategy.name}: {lhs} {rhs} -> {result}" == expected


@pytest.mark.parametrize(
    ("strategy", "in_specs", "out_spec", "says"),
    [
        ("auto", [("y", None), ()], None, "axis_name='x' shards neither, so nothing would travel"),
        ("auto", [("y", None), ()], None, "serve lhs P(None, 'x') with rhs P('x', None); change the specs, or call"),
        ("auto", [("x", "y"), ()], None, "the contracting axis must be sharded alike in both, except for 'x'"),
        ("auto", [(None, ("x", "y")), (("y", "x"), None)], None, "the contracting axis must be sharded alike"),
        ("auto", [(("x", "y"), None), ()], None, "'x' must be the last mesh axis of those that shard the axis to be"),
        ("auto", [("y", "x"), ("x", "y")], None, "rows and columns of the result would both be sharded over 'y'"),
        (
            "ring",
            [(("y", "x"), None), (None, ("y", "x"))],
            None,
            "rows and columns of the result would both be sharded",
        ),
        ("ring", [(None, "x"), ("x", None)], None, "'x' shards the contracting axis of both, and it serves lhs P('x'"),
        ("psum_scatter", [("x", None), ()], None, "'x' shards the contracting axis of at most one, and it serves lhs"),
        ("ring", [("x", None), ()], ("x", None), "rhs P(None, None) and the result P('x', None), and it makes P(None,"),
        ("ring", [("x", None), (None, "x")], (), "and it makes P(None, 'x') or P('x', None) of these operands"),
        ("psum_scatter", [(None, "x"), ("x", None)], (), "it makes P('x', None) or P(None, 'x') of these operands"),
    ],
)
def test_what_cannot_be_is_refused(refused, strategy, in_specs, out_spec, says):
    how = {"strategy": strategy, "in_specs": in_specs, "out_specs": [out_spec], "mesh": MESH, "axis_name": "x"}
    error = refused(KERNEL, SQUARE, SQUARE, **how)
    assert (error.reason, error.field) == (Reason.STRATEGY_UNSUPPORTED, "strategy")
    assert says in error.message


def test_a_refusal_names_the_strategies_that_serve(refused):
    how = {"in_specs": [(None, "x"), ("x", None)], "mesh": MESH, "axis_name": "x"}
    error = refused(KERNEL, SQUARE, SQUARE, strategy="ring", **how)
    assert error.metadata["able"] == "psum_scatter,psum_scatter_ring,psum_scatter_bidirectional_ring"
