"""The rows of the table that sort axes and take elements give NumPy's results in every layout."""

import numpy as np
import pytest
from kernels.conftest import KERNELS, LAYOUTS

from shardcall_core.call_error import CallError
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.core import kernel

SHAPE = (5, 4, 9)


def takes(run, values, layout):
    """Calls of `take` with indices of any shape, whole or sharded as x, and of `take_along_axis`."""
    mesh, spec = layout
    x, how = values.normal(SHAPE), {"mesh": mesh, "in_specs": [spec]}
    for axis in (-1, 0, None):
        for shape in ((), (7,), (2, 3), (0,)):
            indices = np.asarray(values.random.integers(-4, 4, shape))
            yield run.call(KERNELS["take"], x, indices, axis=axis, **how), np.asarray(np.take(x, indices, axis))
    indices = values.random.integers(0, 4, (6, 5)).astype(np.uint8)
    sharded = {"mesh": mesh, "in_specs": [spec, [next(filter(None, spec)), None]]}
    yield run.call(KERNELS["take"], x, indices, axis=1, **sharded), np.take(x, indices, 1)
    for shape in ((5, 4, 3), (5, 1, 9), (1, 4, 2), (5, 4, 0)):
        indices = values.random.integers(-9, 9, shape)
        yield run.call(KERNELS["take_along_axis"], x, indices, axis=-1, **how), np.take_along_axis(x, indices, -1)


def sorts(run, values, layout):
    """Calls of `sort`, `argsort` and `lexsort` of numbers with equals, NaN, infinities and zeros."""
    mesh, spec = layout
    x = np.round(values.normal(SHAPE))
    x[1, 2, 3:5], x[0, 0, :4] = np.nan, (np.inf, -np.inf, 0.0, -0.0)
    for axis in (-1, 0, None):
        how = {"mesh": mesh, "in_specs": [spec], "axis": axis}
        yield run.call(KERNELS["sort"], x, **how), np.sort(x, axis)
        yield run.call(KERNELS["argsort"], x, **how), np.argsort(x, axis, stable=True)
        if axis is not None:
            yield run.call(KERNELS["lexsort"], x, **how), np.lexsort(x, axis)


@pytest.mark.parametrize("layout", LAYOUTS[2:])
def test_takes_are_numpys(run, values, layout):
    run.check_together(takes(run, values, layout), padding=-1)


@pytest.mark.parametrize("layout", LAYOUTS[2:])
def test_sorts_are_numpys(run, values, layout):
    run.check_together(sorts(run, values, layout), padding=-np.inf)


def test_sorts_of_nothing(run):
    cases = []
    for shape in ((0,), (1,), (0, 3), (3, 0)):
        for axis in (-1, None):
            x, how = np.zeros(shape), {"mesh": {"x": 3}, "axis": axis}
            cases.append((run.call(KERNELS["sort"], x, **how), np.sort(x, axis)))
            cases.append((run.call(KERNELS["argsort"], x, **how), np.argsort(x, axis)))
    run.check_together(cases)


@pytest.mark.parametrize("index", [5, -6, 2**40])
def test_indices_that_there_are_not_are_refused(run, values, index):
    x, indices = values.normal((5, 4)), np.array([0, index, 1])
    for name, taken in (("take", indices), ("take_along_axis", np.stack([indices] * 4, 1))):
        with pytest.raises(CallError, match="indices has an index that the axis of 5 elements") as raised:
            run(KERNELS[name], x, taken, mesh={"x": 3}, axis=0)
        assert raised.value.field == "indices"


STRATEGIES = [
    ((16, 6), {"x": 8}, ("x", None), 0, "all_to_all"),
    ((16, 3), {"x": 8}, ("x", None), 0, "one_device"),
    ((16, 6), {"x": 8}, ("x", None), None, "one_device"),
    ((16, 6), {"x": 8}, ("x", None), 1, "blocks"),
    ((16, 6, 5), {"a": 4, "b": 2}, ("b", "a", None), 0, "all_to_all"),
    ((16, 6, 5), {"a": 4, "b": 2}, ("b", "a", None), 1, "all_to_all"),
    ((7, 5), {"a": 2, "b": 3}, (("b", "a"), None), 0, "all_to_all"),
    ((7, 5), {"a": 2, "b": 3}, ("b", "a"), 1, "one_device"),
    ((13,), {"a": 2, "b": 3}, (("b", "a"),), 0, "one_device"),
]


def test_sharded_axes_are_exchanged_or_sorted_on_one_device(run, values):
    cases = []
    for shape, mesh, spec, axis, strategy in STRATEGIES:
        x, how = np.round(values.normal(shape)), {"mesh": mesh, "in_specs": [spec], "axis": axis}
        resolved = run.resolve(KERNELS["sort"], x, **how)
        assert resolved.strategy.name == strategy
        if axis is not None:
            assert resolved.problem.out_specs == resolved.problem.in_specs
        unsharded = [[None] * (1 if axis is None else x.ndim)]
        cases += [(run.call(KERNELS["sort"], x, **how, out_specs=specs), np.sort(x, axis)) for specs in ((), unsharded)]
        cases.append((run.call(KERNELS["argsort"], x, **how), np.argsort(x, axis, stable=True)))
    run.check_together(cases, padding=-np.inf)


def test_small_arrays_are_gathered_by_shorter_programs(run, values, monkeypatch):
    how = {"mesh": {"x": 8}, "in_specs": [("x", None)]}
    x, rows, cases = np.round(values.normal((29, 6))), np.array([3, -29, 3]), []
    monkeypatch.setattr(kernel, "SMALL", 1 << 14)
    for name, operands, axis, expected in (
        ("sort", (x,), 0, np.sort(x, 0)),
        ("argsort", (x,), None, np.argsort(x, None, stable=True)),
        ("take", (x, rows), 0, x[rows]),
        ("concatenate", (x, x), 0, np.concatenate([x, x])),
    ):
        large = ArrayType((1 << 20, 6), x.dtype)
        specs = [*how["in_specs"], *[None] * (len(operands) - 1)]
        case = run.call(KERNELS[name], *operands, mesh=how["mesh"], in_specs=specs, axis=axis)
        assert case[0].resolve().strategy.name == "gathered"
        others = [large if operand.ndim == 2 else operand for operand in operands]
        resolved = run.resolve(KERNELS[name], *others, mesh=how["mesh"], in_specs=specs, axis=axis)
        assert resolved.strategy.name in {"exchange", "all_to_all", "one_device"}
        cases.append((case, expected))
    run.check_together(cases, padding=-np.inf)
