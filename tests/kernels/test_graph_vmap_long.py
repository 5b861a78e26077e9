"""The tests of `test_graph_control.py` that take long."""

import numpy as np
import pytest
from kernels.derivative_cases import CASES
from kernels.graphs import GraphWriter
from kernels.test_derivatives_long import calls_on
from kernels.test_graph_control import GRAPH, KERNELS

from shardcall_core.call_error import CallError, Reason
from shardcall_core.graphs.graph import Value
from shardcall_core.layouts.layout import ArrayType

pytestmark = pytest.mark.long

SIZE = 3


MESHES = [({"x": 8}, ("x",)), ({"a": 4, "b": 2}, ("a", "b")), ({"x": 1}, ()), ({"x": 3}, (None, "x"))]


_FIXED = ("getitem", "setitem")  # the integers of others may be in another sequence


def varied(x, name, index):
    """An operand of one index, of the same type."""
    if x.dtype.kind == "f":
        return x * (1, 0.9, 0.97)[index]
    return x[::-1] if x.ndim and index == 1 and name not in _FIXED else x


def batched(name, number, strategy, spec):
    """A call of a kernel for three indices: the graph, the operands, and the operands of every index."""
    operands, parameters = CASES[name][number]
    arrays = [None if x is None else np.asarray(x) for x in operands]
    present = [x for x in arrays if x is not None]
    write = GraphWriter()
    numbers = iter(range(len(present)))
    first = write(name, *(None if x is None else write.x(next(numbers)) for x in arrays), **parameters)
    is_first = next(i for i, x in enumerate(arrays) if x is not None and x.ndim == len(spec)) if spec else 0
    specs = (*[None] * is_first, tuple((e,) if e else () for e in spec)) if spec else ()
    write.nodes[-1] = write.nodes[-1]._replace(strategy=strategy, in_specs=specs)
    operand_types = [None if x is None else ArrayType(x.shape, x.dtype) for x in arrays]
    operand_types += [None] * (len(KERNELS[name].operand_infos(len(operand_types))) - len(operand_types))
    defaults = {p.name: parameters.get(p.name, p.default) for p in KERNELS[name].parameters}
    results = KERNELS[name].validate(operand_types, defaults).results
    inner = write.graph(*(Value(first.node, i) for i in range(len(results))))
    in_axes = tuple(min(i, x.ndim) for i, x in enumerate(present))
    out_axes = tuple(result.ndim - i % 2 if result.ndim else 0 for i, result in enumerate(results))
    write = GraphWriter()
    write("vmap", *map(write.x, range(len(present))), graph=inner, in_axes=in_axes, out_axes=out_axes, size=SIZE)
    graph = write.graph(*(Value(0, i) for i in range(len(results))))
    rows_of_operands = [[None if x is None else varied(x, name, k) for x in arrays] for k in range(SIZE)]
    rows = [[x for x in row if x is not None] for row in rows_of_operands]
    stacked = [np.stack(xs, axis) for xs, axis in zip(zip(*rows, strict=True), in_axes, strict=True)]
    return graph, stacked, rows_of_operands, out_axes, parameters


@pytest.mark.parametrize(("name", "number", "mesh", "strategy"), calls_on(MESHES))
def test_results_are_those_of_every_index(run, name, number, mesh, strategy):
    axes, entries = MESHES[mesh]
    largest = max((np.ndim(x) for x in CASES[name][number][0] if x is not None), default=0)
    spec = (*entries, *[None] * (largest - len(entries))) if len(entries) <= largest and entries else ()
    graph, operands, rows_of_operands, out_axes, parameters = batched(name, number, strategy, spec)
    try:
        results = run(GRAPH, *operands, graph=graph, mesh=axes, padding=float("nan"))
    except CallError as error:
        if error.reason != Reason.STRATEGY_UNSUPPORTED and "axis_name" not in error.message:
            raise
        pytest.skip(error.message)
    alone = [_as_tuple(run(KERNELS[name], *row, mesh={"x": 1}, **parameters)) for row in rows_of_operands]
    for i, (result, axis) in enumerate(zip(_as_tuple(results), out_axes, strict=True)):
        expected = np.stack([of_index[i] for of_index in alone], axis)
        np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-12, err_msg=f"result {i}")


def _as_tuple(results):
    return results if isinstance(results, tuple) else (results,)
