"""The rows of the table that sort axes and take elements give NumPy's results in every layout."""

import numpy as np
import pytest
from pairs import pairs_of

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.library import kernels

KERNELS = {kernel.name: kernel for kernel in kernels()}
LAYOUTS = [
    ({"x": 8}, ("x", None, None)),
    ({"x": 3}, (None, "x", None)),
    ({"a": 2, "b": 2}, ("b", None, "a")),
]
SHAPE = (5, 4, 9)


@pytest.mark.parametrize("shape", [(0,), (1,), (0, 3), (3, 0)])
def test_sorts_of_nothing(run, same, shape):
    x = np.zeros(shape)
    for axis in (-1, None):
        same(run(KERNELS["sort"], x, mesh={"x": 3}, axis=axis), np.sort(x, axis))
        same(run(KERNELS["argsort"], x, mesh={"x": 3}, axis=axis), np.argsort(x, axis))


@pytest.mark.parametrize(("layout", "axis", "shape"), pairs_of(LAYOUTS, [-1, 0, None], [(), (7,), (2, 3), (0,)]))
def test_takes_are_numpys(run, values, same, layout, axis, shape):
    mesh, spec = layout
    x, indices = values.normal(SHAPE), values.random.integers(-4, 4, shape)
    how = {"mesh": mesh, "in_specs": [spec], "padding": np.nan, "axis": axis}
    same(run(KERNELS["take"], x, np.asarray(indices), **how), np.asarray(np.take(x, indices, axis)))


@pytest.mark.parametrize(("mesh", "spec"), LAYOUTS)
def test_takes_with_sharded_indices(run, values, same, mesh, spec):
    x, indices = values.normal(SHAPE), values.random.integers(0, 4, (6, 5)).astype(np.uint8)
    specs = [spec, [next(filter(None, spec)), None]]
    same(run(KERNELS["take"], x, indices, mesh=mesh, in_specs=specs, padding=0, axis=1), np.take(x, indices, 1))


@pytest.mark.parametrize(("layout", "shape"), pairs_of(LAYOUTS, [(5, 4, 3), (5, 1, 9), (1, 4, 2), (5, 4, 0)]))
def test_takes_along_an_axis_are_numpys(run, values, same, layout, shape):
    mesh, spec = layout
    x, indices = values.normal(SHAPE), values.random.integers(-9, 9, shape)
    how = {"mesh": mesh, "in_specs": [spec], "axis": -1}
    same(run(KERNELS["take_along_axis"], x, indices, **how), np.take_along_axis(x, indices, -1))


def test_every_bit_is_taken(run, values, dtype):
    x, indices = values.any((7, 4), dtype), np.array([3, -1, 0])
    result = run(KERNELS["take"], x, indices, mesh={"x": 1}, axis=0)
    assert result.tobytes() == x[indices].tobytes()


@pytest.mark.parametrize("index", [5, -6, 2**40])
def test_indices_that_there_are_not_are_refused(run, values, index):
    x, indices = values.normal((5, 4)), np.array([0, index, 1])
    for name, taken in (("take", indices), ("take_along_axis", np.stack([indices] * 4, 1))):
        with pytest.raises(CallError, match="indices has an index that the axis of 5 elements") as raised:
            run(KERNELS[name], x, taken, mesh={"x": 3}, axis=0)
        assert raised.value.field == "indices"


X, INDICES, HALVES = (ArrayType((5, 4), np.dtype(t)) for t in ("float32", "int64", "float16"))
NONE = ArrayType((0, 4), np.dtype("float32"))


@pytest.mark.parametrize(
    ("name", "operands", "parameters", "field", "reason"),
    [
        ("sort", (X,), {"axis": 2}, "axis", "AXIS_OUT_OF_RANGE"),
        ("argsort", (X,), {"axis": "0"}, "axis", "PARAMETER_TYPE"),
        ("take", (X, HALVES), {"axis": 0}, "indices", "UNSUPPORTED_ELEMENT_TYPE"),
        ("take", (NONE, INDICES), {"axis": 0}, "x", "INVALID_OPERAND"),
        ("take_along_axis", (X, ArrayType((5,), np.dtype("int64"))), {}, "indices", "INVALID_OPERAND"),
        ("take_along_axis", (X, ArrayType((3, 4), np.dtype("int64"))), {}, "indices", "INVALID_OPERAND"),
    ],
)
def test_refusals_name_the_argument(refused, name, operands, parameters, field, reason):
    error = refused(KERNELS[name], *operands, mesh={"x": 2}, **parameters)
    assert (error.field, error.reason) == (field, Reason[reason])


def test_axes_that_are_not_sharded_are_sorted_without_collectives(run):
    x = ArrayType((16, 6), np.dtype("float32"))
    for name in ("sort", "argsort"):
        how = {"mesh": {"x": 8}, "in_specs": [("x", None)]}
        assert run.resolve(KERNELS[name], x, **how).strategy.name == "blocks"
        assert "all-gather" not in run.program(KERNELS[name], x, **how).text


STRATEGIES = [
    pytest.param((16, 6), {"x": 8}, ("x", None), 0, "all_to_all", marks=pytest.mark.long),
    pytest.param((16, 3), {"x": 8}, ("x", None), 0, "one_device", marks=pytest.mark.long),
    ((16, 6), {"x": 8}, ("x", None), None, "one_device"),
    pytest.param((16, 6, 5), {"a": 4, "b": 2}, ("b", "a", None), 0, "all_to_all", marks=pytest.mark.long),
    ((16, 6, 5), {"a": 4, "b": 2}, ("b", "a", None), 1, "all_to_all"),
    ((7, 5), {"a": 2, "b": 3}, (("b", "a"), None), 0, "all_to_all"),
    pytest.param((7, 5), {"a": 2, "b": 3}, ("b", "a"), 1, "one_device", marks=pytest.mark.long),
    ((13,), {"a": 2, "b": 3}, (("b", "a"),), 0, "one_device"),
]


@pytest.mark.parametrize(("shape", "mesh", "spec", "axis", "strategy"), STRATEGIES)
def test_sharded_axes_are_exchanged_or_sorted_on_one_device(run, values, same, shape, mesh, spec, axis, strategy):
    x, how = np.round(values.normal(shape)), {"mesh": mesh, "in_specs": [spec], "axis": axis}
    resolved = run.resolve(KERNELS["sort"], x, **how)
    assert resolved.strategy.name == strategy
    if axis is not None:
        assert resolved.problem.out_specs == resolved.problem.in_specs
    same(run(KERNELS["sort"], x, **how, padding=-np.inf), np.sort(x, axis))
    same(run(KERNELS["argsort"], x, **how, padding=-np.inf), np.argsort(x, axis, stable=True))
    out_specs = [[None] * (1 if axis is None else x.ndim)]
    same(run(KERNELS["sort"], x, **how, out_specs=out_specs), np.sort(x, axis))
    if strategy == "all_to_all":
        assert "all-gather" not in run.program(KERNELS["sort"], x, **how).text
