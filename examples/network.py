"""A network trained on the mesh: data parallel, then data and tensor parallel; its layers never leave the devices.

    python examples/network.py            starts a private server of 8 virtual devices
    python examples/network.py HOST:PORT  asks a server that runs already

JAX's tutorial on distributed arrays trains layers of 784, 8192, 8192, 8192 and 10 on a batch of 8192, all normal, in
steps of 1e-5; --width 8192 --batch 8192 is that. The layouts are its own: the batch over 8 devices; and, on a mesh of
4 × 2, the batch over 4, the second layer sharded by columns over 2 and the third by rows. The network and its loss are
functions of this file, of which the server takes the gradient; a step is one program.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from typing import Any

import numpy as np

import shardcall as sc
from shardcall import P

RATE = 1e-5
REPLICATED = (P(), P())
LAYOUTS = {
    "one device": (sc.Mesh(batch=1), [REPLICATED] * 4),
    "data parallel": (sc.Mesh(batch=8), [REPLICATED] * 4),
    "data and tensor parallel": (
        sc.Mesh(batch=4, model=2),
        [REPLICATED, (P(None, "model"), P("model")), (P("model", None), P()), REPLICATED],
    ),
}
Pairs = list[tuple[Any, Any]]


def make(batch: int, width: int) -> tuple[np.ndarray, np.ndarray, Pairs]:
    """A batch, its targets, and layers whose weights are scaled by 1 / √n_in."""
    random = np.random.default_rng(0)
    widths = [784, width, width, width, 10]

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32)

    layers: Pairs = [(normal(n, m) / np.float32(np.sqrt(n)), normal(m)) for n, m in itertools.pairwise(widths)]
    return normal(batch, widths[0]), normal(batch, widths[-1]), layers


def predict(layers: Pairs, x: Any) -> Any:
    """The network's outputs, of arrays on the mesh or of NumPy."""
    for weights, bias in layers[:-1]:
        x = np.maximum(x @ weights + bias, 0)
    weights, bias = layers[-1]
    return x @ weights + bias


def loss_of(layers: Pairs, x: Any, targets: Any) -> Any:
    """The mean of summed squares."""
    return np.mean(((predict(layers, x) - targets) ** 2).sum(axis=-1))


def train(client: sc.Client, name: str, batch: int, width: int, steps: int) -> tuple[dict[str, bool], list[float]]:
    """Trains in one layout; returns what was checked, and the losses."""

    def new_layers(layers: Pairs, x: Any, targets: Any) -> tuple[Pairs, Any]:
        loss, slopes = client.value_and_grad(loss_of)(layers, x, targets)
        pairs = zip(layers, slopes, strict=True)
        return [
            (weights - RATE * of_weights, bias - RATE * of_bias) for (weights, bias), (of_weights, of_bias) in pairs
        ], loss

    step = client.jit(new_layers, donate="layers")
    mesh, layer_specs = LAYOUTS[name]
    x, targets, layers = make(batch, width)
    here, there = (client.put(a, mesh=mesh, spec=P("batch", None)) for a in (x, targets))
    stay: Pairs = [
        (client.put(weights, mesh=mesh, spec=columns), client.put(bias, mesh=mesh, spec=entries))
        for (weights, bias), (columns, entries) in zip(layers, layer_specs, strict=True)
    ]
    specs = [array.spec for pair in stay for array in pair]
    plan = step.plan(stay, here, there)
    losses, seconds = [], []
    for _ in range(steps):
        start = time.perf_counter()
        stay, loss = step(stay, here, there)
        losses.append(float(loss))
        seconds.append(time.perf_counter() - start)
    moved = ", ".join(f"{c.count} {c.opcode}" for c in plan.collectives) or "nothing moves"
    print(f"{name}: loss {losses[0]:.4f} → {losses[-1]:.4f}; step {statistics.median(seconds) * 1e3:.1f} ms; {moved}")
    print(f"{plan.visualize('result 2')}\n")  # the second layer's weights
    predicted = client.jit(predict)(stay, here).get()
    checks = {
        f"{name}: the loss falls with every step": all(b < a for a, b in itertools.pairwise(losses)),
        f"{name}: the first loss is NumPy's": bool(np.isclose(losses[0], loss_of(layers, x, targets), rtol=1e-4)),
        f"{name}: new layers are sharded as the old ones": [array.spec for pair in stay for array in pair] == specs,
        f"{name}: predictions are NumPy's": np.allclose(
            predicted, predict([(w.get(), b.get()) for w, b in stay], x), rtol=1e-3, atol=1e-3
        ),
    }
    return checks, losses


def compare(client: sc.Client, batch: int, width: int, steps: int) -> dict[str, bool]:
    """Trains in every layout; returns what was checked."""
    checks: dict[str, bool] = {}
    losses = {}
    for name in LAYOUTS:
        passed, losses[name] = train(client, name, batch, width, steps)
        checks |= passed
    alone = losses["one device"]
    checks["all layouts have the same losses"] = all(np.allclose(other, alone, rtol=1e-4) for other in losses.values())
    return checks


def main() -> int:
    """Runs the example; returns 0 if every check holds."""
    parser = argparse.ArgumentParser(description="Trains a network on a mesh, in three layouts.")
    parser.add_argument("address", nargs="?", help="a server, host:port; without it a private one is started")
    parser.add_argument("--batch", type=int, default=512, help="rows of the batch (512)")
    parser.add_argument("--width", type=int, default=512, help="width of the hidden layers (512)")
    parser.add_argument("--steps", type=int, default=30, help="steps of gradient descent (30)")
    arguments = parser.parse_args()
    with sc.connect(arguments.address) if arguments.address else sc.local(devices=8) as client:
        checks = compare(client, arguments.batch, arguments.width, arguments.steps)
    for what, holds in checks.items():
        print(f"{'yes' if holds else 'NO ':<4}{what}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
