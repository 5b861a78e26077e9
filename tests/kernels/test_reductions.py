"""Reductions are NumPy's, over any axes, however they are sharded."""

import re

import ml_dtypes
import numpy as np
import pytest
from kernels.graphs import GraphWriter
from pairs import pairs_of

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.elementwise.reductions import reductions
from shardcall_server.kernels.library import kernels

KERNELS = {kernel.name: kernel for kernel in reductions()}
GRAPH = next(kernel for kernel in kernels() if kernel.name == "graph")
EXACT = ("max", "min", "argmax", "argmin", "any", "all")
MESH = {"a": 4, "b": 2}


def expected(name, x, **how):
    with np.errstate(all="ignore"):
        return np.asarray(getattr(np, name)(x, **how))


def check(run, name, x, spec, strategy, *, padding=np.nan, **how):
    reference = expected(name, x, **how)
    if x.dtype.name.startswith("float8") and name not in EXACT:  # NumPy rounds every step of those
        reference = expected(name, x.astype(np.float32), **how).astype(x.dtype)
    actual = run(KERNELS[name], x, mesh=MESH, in_specs=[spec], strategy=strategy, padding=padding, **how)
    assert (actual.shape, actual.dtype) == (reference.shape, reference.dtype)
    exact = name in EXACT or reference.dtype.kind in "biu"
    small = reference.dtype.itemsize < 4
    bound = 0 if exact else 0.02 if small else 1e-5
    np.testing.assert_allclose(actual.astype(complex), reference.astype(complex), rtol=bound, atol=bound)


@pytest.mark.parametrize(("name", "strategy"), pairs_of([*KERNELS], ["gspmd", "all_reduce"]))
def test_padding_does_not_count(run, values, name, strategy):
    axis = (None, 0, -1)[[*KERNELS].index(name) % 3]
    check(run, name, values.normal((19, 5)), ("a", "b"), strategy, axis=axis)


@pytest.mark.parametrize(("name", "axis"), pairs_of(["max", "min"], [None, 1]))
def test_the_compiler_divides_a_reduction_of_a_program_that_is_not_exact(run, same, values, name, axis):
    x, write = values.normal((13, 9)), GraphWriter()
    parameters = {} if axis is None else {"axis": axis}
    result = write(name, write.x(0), **parameters)
    write.nodes[-1] = write.nodes[-1]._replace(strategy="gspmd")
    how = {"mesh": MESH, "in_specs": [("a", "b")], "padding": np.nan}
    same(run(GRAPH, x, graph=write.graph(result), **how), expected(name, x, axis=axis))


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["gspmd", "all_reduce"])
@pytest.mark.parametrize("spec", [("a", "b", None), (("b", "a"), None, None), (None, "a", "b"), (None, None, None)])
@pytest.mark.parametrize("name", KERNELS)
def test_every_axis_and_layout(run, values, name, spec, strategy):
    run.programs.clear()
    x = values.normal((9, 5, 3))
    one = name.startswith("arg")
    for axis in (None, 0, 1, -1, *([] if one else [(0, 2), (2, 1), ()])):
        for keepdims in (False, True):
            check(run, name, x, spec, strategy, axis=axis, keepdims=keepdims)


def test_a_mask_sharded_otherwise_is_left_to_the_compiler(run, values, refused):
    x, mask = values.normal((19, 5)), values.small((19, 5), np.dtype(bool))
    how = {"mesh": MESH, "in_specs": [("a", "b"), ("b", None)], "axis": 0}
    assert run.resolve(KERNELS["sum"], x, mask, **how).strategy.name == "gspmd"
    np.testing.assert_allclose(run(KERNELS["sum"], x, mask, **how, padding=1), x.sum(0, where=mask), rtol=1e-5)
    types = [ArrayType(array.shape, array.dtype) for array in (x, mask)]
    assert "where is sharded as" in refused(KERNELS["sum"], *types, **how, strategy="all_reduce").message


def test_results_have_numpys_type(element_types):
    for name, kernel in KERNELS.items():
        defaults = {info.name: info.default for info in kernel.parameters}
        for dtype in element_types:
            if name in ("mean", "var", "std") and dtype.name in ("int4", "uint4"):
                continue
            others = [None] * (len(kernel.operands) - 1)
            signature = kernel.validate([ArrayType((2,), dtype), *others], defaults)
            assert signature.results[0].dtype == expected(name, np.ones(2, dtype)).dtype, (name, dtype)


def test_half_precision_is_summed_up_in_float32(run):
    x = np.full(5003, 0.1, ml_dtypes.bfloat16)
    total = run(KERNELS["sum"], x, mesh={"x": 8})
    assert total == np.sum(x.astype(np.float32)).astype(ml_dtypes.bfloat16)


def test_sums_of_nothing(run, same):
    x = np.zeros((0, 3), np.float32)
    for name in ("sum", "prod", "any", "all"):
        same(run(KERNELS[name], x, mesh={"x": 8}, axis=0), expected(name, x, axis=0))
    for strategy in ("auto", "gspmd"):
        same(run(KERNELS["max"], x, mesh={"x": 8}, axis=1, strategy=strategy), expected("max", x, axis=1))
    for dtype in (np.float32, np.complex64):
        begin = np.array(3, dtype)
        largest = run(KERNELS["max"], x.astype(dtype), None, begin, mesh={"x": 8}, axis=0)
        same(largest, expected("max", x.astype(dtype), axis=0, initial=begin))
    for dtype in (np.float32, np.complex64):
        with pytest.warns(RuntimeWarning):
            mean = expected("mean", x.astype(dtype), axis=0)
        result = run(KERNELS["mean"], x.astype(dtype), mesh={"x": 8}, axis=0)
        same(result, mean)
        same(result.imag, mean.imag)


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_scalars_and_arrays_smaller_than_the_mesh(run, values, same, shape):
    x = values.small(shape, np.dtype(np.int32))
    for name in ("sum", "argmax"):
        same(run(KERNELS[name], x, mesh={"x": 8}, padding=7), expected(name, x))


def test_only_parts_of_the_result_move(run):
    x = ArrayType((61, 12), np.dtype("float32"))
    how = {"mesh": MESH, "in_specs": [("a", "b")]}
    text = run.program(KERNELS["sum"], x, axis=0, **how).text
    assert re.search(r"= f32\[1,6\]\S* all-reduce\(", text)
    assert not re.search("all-gather|all-to-all|collective-permute", text)
    alone = run.program(KERNELS["sum"], x, axis=0, **how | {"in_specs": [(None, "a")]})
    assert alone.resolved.strategy.name == "gspmd"
    assert not re.search("all-gather|all-reduce|all-to-all|collective-permute", alone.text)


def test_the_result_is_sharded_as_x_without_the_axes(run):
    x = ArrayType((61, 12), np.dtype("float32"))
    how = {"mesh": MESH, "in_specs": [("a", "b")], "axis": 0}
    assert run.resolve(KERNELS["sum"], x, **how).problem.out_specs == ((("b",),),)
    assert run.resolve(KERNELS["sum"], x, keepdims=True, **how).problem.out_specs == (((), ("b",)),)
    other = run.resolve(KERNELS["sum"], x, out_specs=[("a",)], **how)
    assert other.strategy.name == "gspmd"


def test_refusals_say_what_to_do(refused):
    x = ArrayType((3, 4), np.dtype("float32"))
    assert refused(KERNELS["sum"], x, axis=2).reason == Reason.AXIS_OUT_OF_RANGE
    assert "twice" in refused(KERNELS["sum"], x, axis=(0, -2)).message
    assert "one axis" in refused(KERNELS["argmax"], x, axis=(0, 1)).message
    assert refused(KERNELS["sum"], x, keepdims="yes").field == "keepdims"
    assert "no element type" in refused(KERNELS["sum"], x, dtype="float33").message
    error = refused(KERNELS["max"], ArrayType((0, 4), np.dtype("float32")), axis=0)
    assert (error.reason, error.field) == (Reason.INVALID_OPERAND, "x")
    assert "sizes are not 0" in error.message
    error = refused(KERNELS["mean"], ArrayType((3,), np.dtype(np.complex64)), dtype="float32")
    assert error.reason == Reason.UNSUPPORTED_ELEMENT_TYPE
    assert "dtype='complex64'" in error.message


@pytest.mark.parametrize("devices", [1, 8])
def test_the_variance_of_large_numbers_and_infinities_is_numpys(run, same, devices):
    for items in ([1e25, 3e25, 2e25, 1e25], [3e37, -3e37, 1, 1], [np.inf, 1, 2, 3], [np.nan, 1, 2, 3]):
        x = np.array(items, np.float32)
        same(run(KERNELS["var"], x, mesh={"x": devices}), expected("var", x))
