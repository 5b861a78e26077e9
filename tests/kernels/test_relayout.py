"""reshard, copy and transpose keep every bit of all element types."""

import re

import numpy as np
import pytest
from pairs import pairs_of

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.array_functions.relayout import Copy, Reshard, Transpose

MESH = {"a": 4, "b": 2}
SPECS = [("a", "b"), (("a", "b"), None), (None, ("a", "b")), (None, None), ("b", None)]
COLLECTIVE = re.compile(r"all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter")


def assert_same_bits(actual, expected):
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    assert actual.tobytes() == np.ascontiguousarray(expected).tobytes()


def test_bits_are_kept_of_what_is_sent(run, values, element_types):
    dtype = next(element_type for element_type in element_types if element_type.name == "float8_e5m2")
    x = values.any((19, 5), dtype)  # by way of float32, its NaN would change
    how = {"mesh": MESH, "in_specs": [SPECS[4]], "out_specs": [SPECS[0]]}
    assert_same_bits(run(Transpose(), x, **how), x.T)


@pytest.mark.parametrize("axes", [None, (1, 2, 0), (0, -1, 1)])
def test_transpose_is_numpys(run, values, axes):
    x = values.normal((5, 9, 3))
    how = {"mesh": MESH, "in_specs": [("b", "a", None)], "padding": np.nan}
    assert_same_bits(run(Transpose(), x, axes=axes, **how), np.transpose(x, axes))


@pytest.mark.parametrize("shape", [(), (1,), (0, 3)])
def test_scalars_and_arrays_of_nothing(run, values, shape):
    x = values.normal(shape)
    assert_same_bits(run(Copy(), x, mesh={"x": 8}), x)
    assert_same_bits(run(Transpose(), x, mesh={"x": 8}), x.T)


def test_nothing_moves_where_blocks_stay(run):
    x = ArrayType((19, 12), np.dtype("float32"))
    how = {"mesh": MESH, "in_specs": [("a", "b")]}
    for kernel in (Copy(), Reshard(), Transpose()):
        assert not COLLECTIVE.search(run.program(kernel, x, **how).text)
    assert "all-gather" in run.program(Reshard(), x, **how, out_specs=[(None, None)]).text
    problem = run.resolve(Transpose(), x, **how).problem
    assert problem.out_specs == ((("b",), ("a",)),)


@pytest.mark.parametrize(("shape", "spec"), pairs_of([(19, 5), (1, 1), (7, 9)], SPECS[:3]))
def test_sizes_that_the_mesh_does_not_divide_are_gathered(run, values, spec, shape):
    x = values.normal(shape)
    how = {"mesh": MESH, "in_specs": [spec], "out_specs": [(None, None)], "strategy": "all_gather", "padding": np.nan}
    assert_same_bits(run(Reshard(), x, **how), x)


def test_what_is_only_gathered_is_gathered_by_hand(run):
    x = ArrayType((16, 16), np.dtype("float32"))
    how = {"mesh": MESH, "in_specs": [(None, ("a", "b"))]}
    resolved = run.resolve(Reshard(), x, **how, out_specs=[(None, None)])
    assert (resolved.strategy.name, resolved.reason) == ("all_gather", "it is the first that serves this layout")
    text = run.program(Reshard(), x, **how, out_specs=[(None, None)]).compiled.as_text()
    assert text.count(" all-gather(") == 1
    assert "dimensions={0}" in next(line for line in text.splitlines() if " all-gather(" in line)
    for out_spec in ((None, ("a", "b")), (("a", "b"), None)):
        assert run.resolve(Reshard(), x, **how, out_specs=[out_spec]).strategy.name == "gspmd"


def test_what_is_turned_and_gathered_is_not_written_twice(run):
    x = ArrayType((512, 512), np.dtype("float32"))
    how = {"mesh": {"x": 8}, "in_specs": [(None, "x")], "out_specs": [(None, None)]}
    compiled = run.program(Transpose(), x, **how, strategy="all_gather").compiled
    assert compiled.memory_analysis().temp_size_in_bytes < 512 * 512 * 4 / 2


@pytest.mark.parametrize(("mesh", "spec"), [({"x": 1}, ("x", None)), ({"x": 1}, (None, "x"))])
def test_of_one_device_nothing_is_gathered(run, mesh, spec):
    x = ArrayType((512, 512), np.dtype("float32"))
    how = {"mesh": mesh, "in_specs": [spec], "out_specs": [(None, None)]}
    for kernel in (Reshard(), Transpose()):
        assert run.resolve(kernel, x, **how).strategy.name == "gspmd"
        assert " all-gather(" not in run.program(kernel, x, **how).compiled.as_text()


def test_all_gather_refuses_what_it_would_gather_in_vain(refused):
    x = ArrayType((16, 16), np.dtype("float32"))
    how = {"mesh": MESH, "in_specs": [("a", "b")], "strategy": "all_gather"}
    error = refused(Reshard(), x, **how, out_specs=[("b", "a")])
    assert error.reason == Reason.STRATEGY_UNSUPPORTED
    assert "x is sharded as P('a', 'b') and the result as P('b', 'a')" in error.message
    uneven = {"mesh": MESH, "in_specs": [(("a", "b"), None)], "strategy": "all_gather", "out_specs": [("a", None)]}
    assert "edges of its blocks" in refused(Reshard(), ArrayType((19, 4), np.dtype("float32")), **uneven).message
    assert "every device has" in refused(Copy(), x, **how).message


def test_refusals_say_what_to_do(refused):
    x = ArrayType((3, 4), np.dtype("float32"))
    error = refused(Transpose(), x, axes=(0,))
    assert (error.reason, error.field) == (Reason.INVALID_PARAMETER, "axes")
    assert "names 1 of 2 axes" in error.message
    assert "twice" in refused(Transpose(), x, axes=(0, -2)).message
    assert refused(Transpose(), x, axes=(0, 2)).reason == Reason.AXIS_OUT_OF_RANGE
