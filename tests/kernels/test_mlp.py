"""The network's kernels are what NumPy computes, however batch and layers are sharded."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from shardcall_server.errors import Reason
from shardcall_server.kernels.layout import ArrayType
from shardcall_server.kernels.mlp import MlpGradient, MlpLoss, MlpPredict, MlpSgdStep

PREDICT, LOSS, GRADIENT, STEP = MlpPredict(), MlpLoss(), MlpGradient(), MlpSgdStep()
WIDTHS = (7, 16, 12, 3)
MESH = {"batch": 4, "model": 2}
TENSOR = [(), (), (None, "model"), ("model",), ("model", None), ()]  # specs of W and b alternate
LAYOUTS = {
    "one device": ({"batch": 1}, None, [None] * 6),
    "data parallel": ({"batch": 8}, ("batch", None), [()] * 6),
    "data and tensor parallel": (MESH, ("batch", None), TENSOR),
    "left open": (MESH, None, [None] * 6),
}


def network(values, batch, dtype=np.float64):
    layers = []
    for before, after in itertools.pairwise(WIDTHS):
        layers += [
            values.normal((before, after), dtype) / np.sqrt(before).astype(dtype),
            values.normal((after,), dtype),
        ]
    return values.normal((batch, WIDTHS[0]), dtype), values.normal((batch, WIDTHS[-1]), dtype), layers


def forward(x, layers):
    """The outputs, and the inputs of each layer."""
    inputs = []
    for weights, bias in zip(layers[::2], layers[1::2], strict=True):
        inputs.append(x)
        outputs = x @ weights + bias
        x = np.maximum(outputs, 0)
    return outputs, inputs


def loss_and_gradient(x, targets, layers):
    """By the chain rule, written out."""
    outputs, inputs = forward(x, layers)
    error = 2 * (outputs - targets) / len(x)
    gradient = []
    for weights, a in zip(layers[::2][::-1], inputs[::-1], strict=True):
        gradient[:0] = [a.T @ error, error.sum(0)]
        error = (error @ weights.T) * (a > 0)
    return ((outputs - targets) ** 2).sum(-1).mean(), gradient


@pytest.mark.parametrize("batch", [pytest.param(24, marks=pytest.mark.long), 13])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_numpys_results(run, values, name, batch):
    mesh, spec, specs = LAYOUTS[name]
    x, targets, layers = network(values, batch)
    loss, gradient = loss_and_gradient(x, targets, layers)
    rate = np.float64(1e-2)

    def check(kernel, before, expected):
        in_specs = [spec, *[None] * (len(before) - 1), *specs]
        made = run(kernel, *before, *layers, mesh=mesh, in_specs=in_specs, padding=np.nan)
        for array, wanted in zip(made if isinstance(made, tuple) else (made,), expected, strict=True):
            assert array.shape == np.shape(wanted)
            np.testing.assert_allclose(array, wanted, rtol=1e-12, atol=1e-12)

    check(PREDICT, [x], [forward(x, layers)[0]])
    check(STEP, [x, targets, rate], [*(w - rate * g for w, g in zip(layers, gradient, strict=True)), loss])
    if batch == 13:  # the step has computed them
        check(LOSS, [x, targets], [loss])
        check(GRADIENT, [x, targets], gradient)


@pytest.mark.parametrize("dtype_", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_narrow_types_are_computed_in_float32(run, values, dtype_):
    x, targets, layers = network(values, 16, dtype_)
    wide = [a.astype(np.float32) for a in (x, targets, *layers)]
    made = run(LOSS, x, targets, *layers, mesh={"batch": 8})
    assert made.dtype == dtype_
    loss, _ = loss_and_gradient(wide[0], wide[1], wide[2:])
    np.testing.assert_allclose(made.astype(float), loss, rtol=float(ml_dtypes.finfo(dtype_).eps) * 4)


def test_layers_that_are_replicated_are_summed_once_and_predictions_need_nothing(run, values):
    x, targets, layers = network(values, 24)
    how = {"mesh": {"batch": 8}, "in_specs": [("batch", None)]}
    text = run.program(PREDICT, x, *layers, **how).text
    assert not any(word in text for word in ("all-gather", "all-reduce", "all-to-all", "collective-permute"))
    text = run.program(STEP, x, targets, np.float64(1), *layers, mesh={"batch": 8}).text
    assert "all-reduce" in text
    assert not any(word in text for word in ("all-gather", "all-to-all", "collective-permute"))


def test_new_layers_have_the_layout_of_the_old_ones(run):
    kinds = [ArrayType(shape, np.dtype(np.float32)) for shape in ((8, 7), (8, 3), (), (7, 16), (16,), (16, 3), (3,))]
    in_specs = [None, None, None, (None, "model"), ("model",), ("model", None), None]
    problem = run.resolve(STEP, *kinds, mesh=MESH, in_specs=in_specs).problem
    assert problem.in_specs[:3] == ((("batch",), ()), (("batch",), ()), ())
    assert problem.out_specs == (((), ("model",)), (("model",),), (("model",), ()), ((),), ())


def test_refusals(refused):
    def of(*shape, dtype=np.float32):
        return ArrayType(shape, np.dtype(dtype))

    fine = [of(7, 16), of(16), of(16, 3), of(3)]
    cases = [
        (PREDICT, [of(8, 7)], "layers[0]", Reason.OPERAND_COUNT, "was left out"),
        (PREDICT, [of(8, 7), *fine[:3]], "layers", Reason.INVALID_OPERAND, "W and b of each layer alternately"),
        (PREDICT, [of(8), *fine], "x", Reason.INVALID_OPERAND, "[any, any]"),
        (PREDICT, [of(8, 6), *fine], "layers[0]", Reason.INVALID_OPERAND, "[6, any]"),
        (PREDICT, [of(8, 7), fine[0], of(15), *fine[2:]], "layers[1]", Reason.INVALID_OPERAND, "[16]"),
        (PREDICT, [of(8, 7, dtype=np.int32), *fine], "x", Reason.UNSUPPORTED_ELEMENT_TYPE, "float16 to float64"),
        (LOSS, [of(8, 7), of(8, 4), *fine], "targets", Reason.INVALID_OPERAND, "[8, 3]"),
        (LOSS, [of(0, 7), of(0, 3), *fine], "x", Reason.INVALID_OPERAND, "no rows"),
        (STEP, [of(8, 7), of(8, 3), of(1), *fine], "rate", Reason.INVALID_OPERAND, "a scalar"),
    ]
    for kernel, operands, field, reason, text in cases:
        error = refused(kernel, *operands)
        assert (error.field, error.reason) == (field, reason)
        assert text in error.message
