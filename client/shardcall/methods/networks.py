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

    All take ``layers``, pairs of W [Nᵢ, Nᵢ₊₁] and b [Nᵢ₊₁], and ``layer_specs``, a pair of specs for each; left out,
    layers are as they lie on the mesh, else replicated. ``spec`` is that of ``x`` and ``targets``: left out, their rows
    are split over the first mesh axis. Kept on the mesh, new layers are the operands of the next step.
    """

    def mlp_predict(
        self, x: OperandLike, layers: Layers, *, layer_specs: LayerSpecs | None = None, **options: Unpack[ArrayOptions]
    ) -> Outcome:
        """The outputs for a batch, [B, N_L].

        Args:
            x: [B, N₀] the batch.
            layers: the pairs of W and b.
            layer_specs: how they are split.
            options: as of `shardcall.methods.calling.ArrayOptions`.
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
        """The mean over a batch of the summed squares of errors, a scalar.

        Args:
            x: [B, N₀] the batch.
            targets: [B, N_L] what is to be predicted.
            layers: the pairs of W and b.
            layer_specs: how they are split.
            options: as of `shardcall.methods.calling.ArrayOptions`.
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
        """The gradient of `mlp_loss`: its ``arrays`` are those of W and b by turns, split as these are.

        Args:
            x: [B, N₀] the batch.
            targets: [B, N_L] what is to be predicted.
            layers: the pairs of W and b.
            layer_specs: how they are split.
            options: as of `shardcall.methods.calling.ArrayOptions`.
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
        """A step of gradient descent: its ``arrays`` are the new W and b by turns, then the loss before the step.

        Args:
            x: [B, N₀] the batch.
            targets: [B, N_L] what is to be predicted.
            rate: the size of the step; of the layers' element type, or the result takes its.
            layers: the pairs of W and b.
            layer_specs: how they are split.
            options: as of `shardcall.methods.calling.ArrayOptions`.
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
        given: dict[str, Any] = dict(options)
        specs = [given.pop("spec", None), *[None] * (len(before) - 1)]
        specs += [spec for pair in layer_specs for spec in pair]
        return self._named(kernel, *before, *arrays, in_specs=specs, options=cast(ArrayOptions, given))
