"""reshard, copy and transpose keep every bit of all element types."""

import numpy as np
import pytest
from kernels.conftest import COLLECTIVE

from shardcall_core.call_error import Reason
from shardcall_core.element_types import NAMED
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.array_functions.relayout import Copy, Reshard, Transpose

COPY, RESHARD, TRANSPOSE = Copy(), Reshard(), Transpose()
MESH = {"a": 4, "b": 2}
SPECS = [("a", "b"), (("a", "b"), None), (None, ("a", "b")), (None, None), ("b", None)]


def test_every_bit_is_kept(run, values, same_bits):
    x = values.any((19, 5), NAMED["float8_e5m2"])  # by way of float32, its NaN would change
    cube, how = values.normal((5, 9, 3)), {"mesh": MESH, "in_specs": [("b", "a", None)]}
    calls = [
        (run.call(TRANSPOSE, x, mesh=MESH, in_specs=[SPECS[4]], out_specs=[SPECS[0]]), x.T),
        *(
            (run.call(TRANSPOSE, cube, axes=axes, **how), np.transpose(cube, axes))
            for axes in (None, (1, 2, 0), (0, -1, 1))
        ),
    ]
    for shape in ((), (1,), (0, 3)):
        some = values.normal(shape)
        calls.append((run.call(COPY, some, mesh={"x": 8}), some))
        calls.append((run.call(TRANSPOSE, some, mesh={"x": 8}), some.T))
    for i, shape in enumerate(((19, 5), (1, 1), (7, 9))):  # which the mesh does not divide
        some, gathered = values.normal(shape), {"out_specs": [(None, None)], "strategy": "all_gather"}
        calls.append((run.call(RESHARD, some, mesh=MESH, in_specs=[SPECS[i]], **gathered), some))
    run.check_together(calls, same_bits, np.nan)


def test_nothing_moves_where_blocks_stay(run):
    x = ArrayType((19, 12), np.dtype("float32"))
    how = {"mesh": MESH, "in_specs": [("a", "b")]}
    for kernel in (COPY, RESHARD, TRANSPOSE):
        assert not COLLECTIVE.search(run.program(kernel, x, **how).text)
    assert "all-gather" in run.program(RESHARD, x, **how, out_specs=[(None, None)]).text
    assert run.resolve(TRANSPOSE, x, **how).problem.out_specs == ((("b",), ("a",)),)


def test_what_is_only_gathered_is_gathered_by_hand(run):
    x = ArrayType((16, 16), np.dtype("float32"))
    how = {"mesh": MESH, "in_specs": [(None, ("a", "b"))]}
    resolved = run.resolve(RESHARD, x, **how, out_specs=[(None, None)])
    assert (resolved.strategy.name, resolved.reason) == ("all_gather", "it is the first that serves this layout")
    text = run.program(RESHARD, x, **how, out_specs=[(None, None)]).compiled.as_text()
    assert text.count(" all-gather(") == 1
    assert "dimensions={0}" in next(line for line in text.splitlines() if " all-gather(" in line)
    for out_spec in ((None, ("a", "b")), (("a", "b"), None)):
        assert run.resolve(RESHARD, x, **how, out_specs=[out_spec]).strategy.name == "gspmd"


def test_what_is_turned_and_gathered_is_not_written_twice(run):
    x = ArrayType((512, 512), np.dtype("float32"))
    how = {"mesh": {"x": 8}, "in_specs": [(None, "x")], "out_specs": [(None, None)]}
    compiled = run.program(TRANSPOSE, x, **how, strategy="all_gather").compiled
    assert compiled.memory_analysis().temp_size_in_bytes < 512 * 512 * 4 / 2


@pytest.mark.parametrize(("mesh", "spec"), [({"x": 1}, ("x", None)), ({"x": 1}, (None, "x"))])
def test_of_one_device_nothing_is_gathered(run, mesh, spec):
    x = ArrayType((512, 512), np.dtype("float32"))
    how = {"mesh": mesh, "in_specs": [spec], "out_specs": [(None, None)]}
    for kernel in (RESHARD, TRANSPOSE):
        assert run.resolve(kernel, x, **how).strategy.name == "gspmd"
        assert " all-gather(" not in run.program(kernel, x, **how).compiled.as_text()


def test_all_gather_refuses_what_it_would_gather_in_vain(refused):
    x = ArrayType((16, 16), np.dtype("float32"))
    how = {"mesh": MESH, "in_specs": [("a", "b")], "strategy": "all_gather"}
    error = refused(RESHARD, x, **how, out_specs=[("b", "a")])
    assert error.reason == Reason.STRATEGY_UNSUPPORTED
    assert "x is sharded as P('a', 'b') and the result as P('b', 'a')" in error.message
    uneven = {"mesh": MESH, "in_specs": [(("a", "b"), None)], "strategy": "all_gather", "out_specs": [("a", None)]}
    assert "edges of its blocks" in refused(RESHARD, ArrayType((19, 4), np.dtype("float32")), **uneven).message
    assert "every device has" in refused(COPY, x, **how).message
