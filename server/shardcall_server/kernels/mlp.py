"""A multilayer perceptron: its prediction, loss, gradient and a step of gradient descent.

Letters: B rows of a batch, N₀ … N_L the widths of the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.kernels import arithmetic, element_types
from shardcall_server.kernels.blocks import fit
from shardcall_server.kernels.kernel import Kernel, Problem, Program, Strategy, required
from shardcall_server.kernels.layout import ArrayType, MeshAxes, OperandTypes, Specs, sharded
from shardcall_server.kernels.signature import OperandInfo, ParameterValues, Signature

_X = OperandInfo("x", "The inputs, [B, N₀].")
_TARGETS = OperandInfo("targets", "What is to be predicted, [B, N_L].")
_RATE = OperandInfo("rate", "The size of the step, a real scalar.")
_LAYERS = OperandInfo("layers", "W and b of each layer alternately, [Nᵢ, Nᵢ₊₁] and [Nᵢ₊₁].", repeated=True)
_REAL = "bfloat16 or float16 to float64"

_Arrays = Sequence[jax.Array]
_Function = Callable[[_Arrays, _Arrays], tuple[jax.Array, ...]]
"""The results, from the operands before the layers and the layers, all without padding and of working type."""


def _predict(x: jax.Array, layers: _Arrays) -> jax.Array:
    for i in range(0, len(layers), 2):
        outputs = jnp.dot(x, layers[i], precision=lax.Precision.HIGHEST) + layers[i + 1]
        x = jnp.maximum(outputs, 0)
    return outputs


def _loss(layers: _Arrays, x: jax.Array, targets: jax.Array) -> jax.Array:
    squares = jnp.sum((_predict(x, layers) - targets) ** 2, axis=-1)
    return arithmetic.divide(jnp.sum(squares), squares.size)


def _step(before: _Arrays, layers: _Arrays) -> tuple[jax.Array, ...]:
    x, targets, rate = before
    loss, gradient = jax.value_and_grad(_loss)(layers, x, targets)
    return (*(layer - rate * slope for layer, slope in zip(layers, gradient, strict=True)), loss)


def _build(function: _Function, before: int, problem: Problem, mesh: jax.sharding.Mesh) -> Program:
    """Returns the function on arrays without padding: XLA pads and masks the arrays that it partitions."""
    del mesh
    operands = [required(operand) for operand in problem.operands]

    def program(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        dtype = problem.results[0].dtype
        wide = [element_types.widen(fit(a, o.shape), dtype) for a, o in zip(arrays, operands, strict=True)]
        made = function(wide[:before], wide[before:])
        return tuple(
            fit(element_types.narrow(array, result.dtype), problem.padded_result(i))
            for i, (array, result) in enumerate(zip(made, problem.results, strict=True))
        )

    return program


class _Network(Kernel[None]):
    """The checks and default specs that the network kernels share."""

    version = 2

    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[None]:
        """Checks a call and determines the results' types.

        Raises:
            CallError: for operands of other ranks or types, and sizes that do not match.
        """
        infos = self.operand_infos(len(operands))
        named = {info.name: required(o) for info, o in zip(infos, operands, strict=True)}
        layers = [(name, kind) for name, kind in named.items() if name.startswith("layers")]
        if len(layers) % 2:
            raise CallError(
                Reason.INVALID_OPERAND,
                f"{len(layers)} arrays for layers; give W and b of each layer alternately",
                field="layers",
            )
        for name, kind in named.items():
            if not element_types.is_real_float(kind.dtype):
                raise CallError(
                    Reason.UNSUPPORTED_ELEMENT_TYPE,
                    f"{name} has element type {kind.dtype.name}; a network takes {_REAL}",
                    field=name,
                )
        _check("x", named["x"], 2, None)
        batch, width = named["x"].shape
        for (weights_name, weights), (bias_name, bias) in zip(layers[::2], layers[1::2], strict=True):
            _check(weights_name, weights, 2, (width, None))
            width = weights.shape[1]
            _check(bias_name, bias, 1, (width,))
        if "targets" in named:
            _check("targets", named["targets"], 2, (batch, width))
            if not batch:
                raise CallError(Reason.INVALID_OPERAND, "x has no rows; a loss is a mean over one or more", field="x")
        if "rate" in named:
            _check("rate", named["rate"], 0, ())
        dtype = element_types.common_type(list(named), list(named.values()))
        return Signature(None, self.results((batch, width), [kind.shape for _, kind in layers], dtype))

    def results(
        self, prediction: tuple[int, ...], layers: Sequence[tuple[int, ...]], dtype: np.dtype
    ) -> tuple[ArrayType, ...]:
        """Returns the results' types, from the shapes of a prediction and of the layers."""
        raise NotImplementedError

    def default_in_specs(
        self, operands: OperandTypes, parameters: None, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in unset specs: x by rows over the first mesh axis, targets as x, all others replicated."""
        infos = self.operand_infos(len(operands))
        rows = in_specs[0][0] if in_specs[0] is not None else mesh.names[:1]
        batches = {"x", "targets"}
        return tuple(
            spec if spec is not None else sharded(required(o).ndim, 0, rows if info.name in batches else ())
            for info, o, spec in zip(infos, operands, in_specs, strict=True)
        )


def _check(name: str, operand: ArrayType, ndim: int, wanted: tuple[int | None, ...] | None) -> None:
    sizes = wanted or (None,) * ndim
    if operand.ndim == ndim and all(w in (None, n) for n, w in zip(operand.shape, sizes, strict=True)):
        return
    shape = ", ".join("any" if w is None else str(w) for w in sizes)
    raise CallError(
        Reason.INVALID_OPERAND,
        f"{name} has shape {shorten(str(operand.shape))}; give {f'[{shape}]' if ndim else 'a scalar'}, "
        "so that it matches the operands before it",
        field=name,
    )


def _strategies(function: _Function, before: int) -> tuple[Strategy, ...]:
    return (
        Strategy(
            "gspmd",
            "The network, partitioned by the compiler. Serves every layout: batches sharded (data parallel), "
            "layers sharded by columns and then by rows (tensor parallel), or both.",
            lambda _: None,
            partial(_build, function, before),
        ),
    )


class MlpPredict(_Network):
    """The outputs of a multilayer perceptron.

    ``a₀ = x``, ``zᵢ = aᵢ Wᵢ + bᵢ``, ``aᵢ₊₁ = max(zᵢ, 0)``; the result is the last z, [B, N_L], of the operands' common
    type; types of 16 bits are computed in float32.

    Sharding: batches sharded and layers replicated, nothing moves. A layer sharded by columns and the next by rows over
    the same mesh axis of D devices: one sum over them, 2 (D - 1) / D of a device's outputs.

    Source: the JAX tutorial "Distributed arrays and automatic parallelization", its examples of neural networks.
    """

    name = "mlp_predict"
    summary = "The outputs of a multilayer perceptron with relu between its layers."
    operands = (_X, _LAYERS)
    strategies = _strategies(lambda before, layers: (_predict(before[0], layers),), 1)

    def results(
        self, prediction: tuple[int, ...], layers: Sequence[tuple[int, ...]], dtype: np.dtype
    ) -> tuple[ArrayType, ...]:
        """Returns the type of the prediction."""
        return (ArrayType(prediction, dtype),)

    def default_out_specs(self, problem: Problem, strategy: str) -> Specs:
        """Shards the result by rows as x."""
        rows = required(problem.in_specs[0])[0]
        return (sharded(2, 0, rows) if problem.out_specs[0] is None else problem.out_specs[0],)


class MlpLoss(_Network):
    """The mean over a batch of the summed squares of a perceptron's errors.

    ``mean(sum((predict(x) - targets)², axis=-1))``, a scalar; see `MlpPredict`.

    Sharding: as `MlpPredict`, and one sum of a scalar over the devices of the batch.
    """

    name = "mlp_loss"
    summary = "The mean of summed squared errors of a multilayer perceptron."
    operands = (_X, _TARGETS, _LAYERS)
    strategies = _strategies(lambda before, layers: (_loss(layers, *before),), 2)

    def results(
        self, prediction: tuple[int, ...], layers: Sequence[tuple[int, ...]], dtype: np.dtype
    ) -> tuple[ArrayType, ...]:
        """Returns the type of a scalar."""
        return (ArrayType((), dtype),)

    def default_out_specs(self, problem: Problem, strategy: str) -> Specs:
        """Replicates the result."""
        return ((),)


class MlpGradient(_Network):
    """The gradient of `MlpLoss` by the layers: one result for each W and b, of its shape.

    Sharding: as `MlpLoss`; with batches sharded over D devices each gradient of a replicated layer is summed over them,
    2 (D - 1) / D of its bytes.
    """

    name = "mlp_gradient"
    summary = "The gradient of mlp_loss: an array for each W and b."
    operands = (_X, _TARGETS, _LAYERS)
    strategies = _strategies(lambda before, layers: tuple(jax.grad(_loss)(layers, *before)), 2)

    def results(
        self, prediction: tuple[int, ...], layers: Sequence[tuple[int, ...]], dtype: np.dtype
    ) -> tuple[ArrayType, ...]:
        """Returns the type of each W and b."""
        return tuple(ArrayType(shape, dtype) for shape in layers)

    def default_out_specs(self, problem: Problem, strategy: str) -> Specs:
        """Shards each result as its layer."""
        return _as_layers(problem, len(problem.results))


class MlpSgdStep(_Network):
    """A step of gradient descent: new layers, and the loss of the old ones.

    ``Wᵢ - rate · ∂loss/∂Wᵢ`` and likewise b, then ``loss(x, targets)`` before the step, as the last result.

    Sharding: as `MlpGradient`; the layers stay sharded as they are.
    """

    name = "mlp_sgd_step"
    summary = "New layers after a step of gradient descent on mlp_loss, and the loss before it."
    operands = (_X, _TARGETS, _RATE, _LAYERS)
    strategies = _strategies(_step, 3)

    def results(
        self, prediction: tuple[int, ...], layers: Sequence[tuple[int, ...]], dtype: np.dtype
    ) -> tuple[ArrayType, ...]:
        """Returns the type of each W and b, and of a scalar."""
        return (*(ArrayType(shape, dtype) for shape in layers), ArrayType((), dtype))

    def default_out_specs(self, problem: Problem, strategy: str) -> Specs:
        """Shards each result as its layer; the loss is replicated."""
        return (*_as_layers(problem, len(problem.results) - 1), ())


def _as_layers(problem: Problem, count: int) -> Specs:
    layers = problem.in_specs[-count:]
    return tuple(own if spec is None else spec for own, spec in zip(layers, problem.out_specs, strict=False))
