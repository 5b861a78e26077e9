"""Multilayer perceptrons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack, cast

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.types.errors import InvalidOperandError
from shardcall._src.types.specs import SpecLike
from shardcall.methods.calling import ArrayOptions, Calling, Outcome

Layers = Sequence[tuple[OperandLike, OperandLike]]
LayerSpecs = Sequence[tuple[SpecLike | None, SpecLike | None]]


class Networks(Calling[Outcome]):
    """Multilayer perceptrons: layers ``max(a @ W + b, 0)``, the last one without the maximum.

    ``spec`` is the sharding of ``x`` and ``targets``; by default their rows are sharded over the first mesh axis.
    Layers are by default sharded as they are on the mesh, else replicated; new layers that stay on the mesh are the
    operands of the next step. W and b are [Nᵢ, Nᵢ₊₁] and [Nᵢ₊₁].
    """

    def mlp_predict(
        self, x: OperandLike, layers: Layers, *, layer_specs: LayerSpecs | None = None, **options: Unpack[ArrayOptions]
    ) -> Outcome:
        """Returns the outputs for a batch, [B, N_L].

        Args:
            x: [B, N₀] the batch.
            layers: a pair (W, b) for each layer.
            layer_specs: a pair of specs for each layer.
            options: see `ArrayOptions`.
        """
        return self._network("mlp_predict", (x,), layers, layer_specs, options)

    def mlp_loss(
        self,
        x: OperandLike,
        targets: OperandLike,
        layers: Layers,
        *,
        layer_specs: LayerSpecs | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the mean over a batch of the summed squared errors, a scalar.

        Args:
            x: [B, N₀] the batch.
            targets: [B, N_L] the outputs to be predicted.
            layers: a pair (W, b) for each layer.
            layer_specs: a pair of specs for each layer.
            options: see `ArrayOptions`.
        """
        return self._network("mlp_loss", (x, targets), layers, layer_specs, options)

    def mlp_gradient(
        self,
        x: OperandLike,
        targets: OperandLike,
        layers: Layers,
        *,
        layer_specs: LayerSpecs | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the gradient of `mlp_loss`: an array for the W and the b of each layer, sharded as these are.

        Args:
            x: [B, N₀] the batch.
            targets: [B, N_L] the outputs to be predicted.
            layers: a pair (W, b) for each layer.
            layer_specs: a pair of specs for each layer.
            options: see `ArrayOptions`.
        """
        return self._network("mlp_gradient", (x, targets), layers, layer_specs, options)

    def mlp_sgd_step(
        self,
        x: OperandLike,
        targets: OperandLike,
        rate: OperandLike,
        layers: Layers,
        *,
        layer_specs: LayerSpecs | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Performs a step of gradient descent: returns the new W and b of each layer, then the loss before the step.

        Args:
            x: [B, N₀] the batch.
            targets: [B, N_L] the outputs to be predicted.
            rate: the step size, a scalar; the result has the common element type of rate and layers.
            layers: a pair (W, b) for each layer.
            layer_specs: a pair of specs for each layer.
            options: see `ArrayOptions`.
        """
        return self._network("mlp_sgd_step", (x, targets, rate), layers, layer_specs, options)

    def _network(
        self,
        kernel: str,
        before: tuple[OperandLike, ...],
        layers: Layers,
        layer_specs: LayerSpecs | None,
        options: ArrayOptions,
    ) -> Outcome:
        for name, pairs in (("layers", layers), ("layer_specs", layer_specs or ())):
            if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
                raise InvalidOperandError(f"{name} is not pairs; give a list of (W, b), one for each layer", field=name)
        if layer_specs is not None and len(layer_specs) != len(layers):
            raise InvalidOperandError(
                f"layer_specs has {len(layer_specs)} pairs for {len(layers)} layers; give one for each",
                field="layer_specs",
            )
        arrays = [array for pair in layers for array in pair]
        if layer_specs is None:
            return self._named(kernel, *before, *arrays, options=options)
        others: dict[str, Any] = dict(options)
        specs = [others.pop("spec", None), *[None] * (len(before) - 1)]
        specs += [spec for pair in layer_specs for spec in pair]
        return self._named(kernel, *before, *arrays, in_specs=specs, options=cast(ArrayOptions, others))
