"""Graphs that are computed for every index of an axis at once: the results are those of one index after the other."""

import numpy as np
from kernels.conftest import KERNELS
from kernels.graphs import GraphWriter

from shardcall_core.layouts.layout import ArrayType

GRAPH = KERNELS["graph"]


def test_what_is_refused(refused):
    write = GraphWriter()
    body = write.graph(write("add", write.x(0), write.x(1)))
    x, y = ArrayType((4, 3), np.dtype("f4")), ArrayType((3,), np.dtype("f4"))

    def message(*operands, **parameters):
        how = {"graph": body, "in_axes": (0, -1), "out_axes": (0,), "size": 4, **parameters}
        outer = GraphWriter()
        graph = outer.graph(outer("vmap", *map(outer.x, range(len(operands))), **how))
        return refused(GRAPH, *operands, graph=graph).message

    assert "has 2 inputs and 1 operands came" in message(x)
    assert "in_axes is (2, -1)" in message(x, y, in_axes=(2, -1))
    assert "in_axes is (0,)" in message(x, y, in_axes=(0,))
    assert "an axis of length 5, the size" in message(x, y, size=5)
    assert "size=-1" in message(x, y, size=-1)
    assert "out_axes is (2,)" in message(x, y, out_axes=(2,))
    assert "out_axes is ()" in message(x, y, out_axes=())
    inner = GraphWriter()
    loop = inner.graph(inner("graph", inner.x(0), inner.x(1), graph=body, carried=(0,), count=1000))
    many = ArrayType((1 << 14, 1 << 10), np.dtype("f4"))
    error = message(many, ArrayType((), np.dtype("f4")), graph=loop, size=1 << 14)
    assert "node 0, vmap: the loop would take" in error
    inner = GraphWriter()
    first = inner("roll", inner.x(0), shift=1, axis=0)
    inner.nodes[-1] = inner.nodes[-1]._replace(strategy="gspmd")
    error = message(x, graph=inner.graph(first), in_axes=(0,))
    assert "node 0, vmap: " in error
    assert "strategy 'gspmd' of roll cannot be batched; leave the strategy out" in error
