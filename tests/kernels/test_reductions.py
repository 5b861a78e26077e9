"""Reductions are NumPy's, over any axes, however they are sharded."""

import re

import ml_dtypes
import numpy as np
import pytest
from kernels.conftest import KERNELS as ALL_KERNELS
from kernels.graphs import GraphWriter

from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.core import kernel as kernel_interface
from shardcall_server.kernels.elementwise.reductions import reductions

KERNELS = {kernel.name: kernel for kernel in reductions()}
EXACT = ("max", "min", "argmax", "argmin", "any", "all")
MESH = {"a": 4, "b": 2}


def expected(name, x, **how):
    with np.errstate(all="ignore"):
        return np.asarray(getattr(np, name)(x, **how))


def strategies(name):
    """The names of the strategies of a reduction."""
    return [strategy.name for strategy in KERNELS[name].strategies]


def reduced(run, name, x, spec, strategy, **how):
    """A call of a reduction, and NumPy's result."""
    reference = expected(name, x, **how)
    if x.dtype.name.startswith("float8") and name not in EXACT:  # NumPy rounds every step of those
        reference = expected(name, x.astype(np.float32), **how).astype(x.dtype)
    return run.call(KERNELS[name], x, mesh=MESH, in_specs=[spec], strategy=strategy, **how), (name, reference)


def assert_reduced(actual, named):
    """Checks that a result is within the bound of a function."""
    name, reference = named
    assert (actual.shape, actual.dtype) == (reference.shape, reference.dtype)
    exact = name in EXACT or reference.dtype.kind in "biu"
    bound = 0 if exact else 0.02 if reference.dtype.itemsize < 4 else 1e-5
    np.testing.assert_allclose(actual.astype(complex), reference.astype(complex), rtol=bound, atol=bound)


def test_padding_does_not_count(run, values):
    cases = []
    for number, name in enumerate(KERNELS):
        x, axis = values.normal((19, 5)), (None, 0, -1)[number % 3]
        cases += [reduced(run, name, x, ("a", "b"), strategy, axis=axis) for strategy in strategies(name)]
    run.check_together(cases, assert_reduced, np.nan)


def test_indices_in_small_arrays_are_those_of_the_compiler(run, values, monkeypatch):
    monkeypatch.setattr(kernel_interface, "SMALL", 99)
    small, complex_x = values.normal((33, 3)), values.small((33, 3), np.dtype(complex))
    for name, x in (("gathered", small), ("all_reduce", np.zeros((34, 3))), ("all_reduce", complex_x)):
        assert run.resolve(KERNELS["argmin"], x, mesh=MESH, in_specs=[("a", "b")], axis=0).strategy.name == name


def test_the_compiler_divides_a_reduction_of_a_program_that_is_not_exact(run, values):
    x, cases = values.normal((13, 9)), []
    for name in ("max", "min"):
        for parameters in ({}, {"axis": 1}):
            write = GraphWriter()
            result = write(name, write.x(0), **parameters)
            write.nodes[-1] = write.nodes[-1]._replace(strategy="gspmd")
            call = run.call(ALL_KERNELS["graph"], x, graph=write.graph(result), mesh=MESH, in_specs=[("a", "b")])
            cases.append((call, expected(name, x, **parameters)))
    run.check_together(cases, padding=np.nan)


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
    assert run(KERNELS["sum"], x, mesh={"x": 8}) == np.sum(x.astype(np.float32)).astype(ml_dtypes.bfloat16)


def test_sums_of_nothing(run, same):
    x, how = np.zeros((0, 3), np.float32), {"mesh": {"x": 8}}
    calls = [
        (run.call(KERNELS[name], x, axis=0, **how), expected(name, x, axis=0)) for name in ("sum", "prod", "any", "all")
    ]
    largest = expected("max", x, axis=1)
    calls += [(run.call(KERNELS["max"], x, axis=1, strategy=s, **how), largest) for s in ("auto", "gspmd")]
    for dtype in (np.float32, np.complex64):
        begin = np.array(3, dtype)
        largest = run.call(KERNELS["max"], x.astype(dtype), None, begin, axis=0, **how)
        calls.append((largest, expected("max", x.astype(dtype), axis=0, initial=begin)))
    run.check_together(calls)
    for dtype in (np.float32, np.complex64):
        with pytest.warns(RuntimeWarning):
            mean = expected("mean", x.astype(dtype), axis=0)
        result = run(KERNELS["mean"], x.astype(dtype), axis=0, **how)
        same(result, mean)
        same(result.imag, mean.imag)


def test_scalars_and_arrays_smaller_than_the_mesh(run, values):
    arrays = [values.small(shape, np.dtype(np.int32)) for shape in ((), (1,), (3,))]
    calls = [
        (run.call(KERNELS[name], x, mesh={"x": 8}), expected(name, x)) for name in ("sum", "argmax") for x in arrays
    ]
    run.check_together(calls, padding=7)


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
    assert run.resolve(KERNELS["sum"], x, out_specs=[("a",)], **how).strategy.name == "gspmd"


def test_the_variance_of_large_numbers_and_infinities_is_numpys(run):
    some = [1e25, 3e25, 2e25, 1e25], [3e37, -3e37, 1, 1], [np.inf, 1, 2, 3], [np.nan, 1, 2, 3]
    arrays = [np.array(items, np.float32) for items in some]
    run.check_together(
        (run.call(KERNELS["var"], x, mesh={"x": devices}), expected("var", x)) for x in arrays for devices in (1, 8)
    )
