"""Random functions with loops, masks and writes have the values, derivatives and batches that JAX computes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from end_to_end.generated_functions import generated_function
from jax import lax

NAMES = ("value", "gradient of x", "gradient of d", "second derivatives", "batch of gradients")
LOOPS = ("scan", "fori_loop", "while_loop", "cond")
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def results(of, function, is_forward, x, d, xs):
    """The value and the derivatives of a function, by a client or by JAX."""

    def gradient(x):
        return of.grad(function)(x, d)

    def along(direction):
        if is_forward:
            return of.jvp(gradient, (x,), (direction,))[1]
        return of.grad(lambda x: (gradient(x) * direction).sum())(x)

    value, gradients = of.value_and_grad(function, argnums=(0, 1))(x, d)
    return value, *gradients, of.vmap(along)(np.eye(x.size).reshape(-1, *x.shape)), of.vmap(gradient)(xs)


def check(client, seed, max_statements):
    """Compares what the client computes with what JAX computes of a generated function."""
    generated = generated_function(seed, max_statements)
    ours = {"np": np, **{name: getattr(client.xp, name) for name in LOOPS}}
    ours["repeat"] = lambda f, x, times: client.jit(f).repeat(x, times=times)
    theirs = {"np": jnp, **{name: getattr(lax, name) for name in LOOPS}}
    theirs["repeat"] = lambda f, x, times: lax.fori_loop(0, times, lambda _, x: f(x), x)
    exec(generated.ours, ours)  # of generated_functions.py
    exec(generated.jax, theirs)
    x, d = generated.x, generated.d
    rest = d, np.stack([x, -x, x + 0.5])
    with jax.enable_x64(True):
        expected = jax.jit(partial(results, jax, theirs["f"], seed % 2), compiler_options=FAST)(x, *rest)
    placed = client.put(x, mesh={"x": 4}) if seed % 8 == 0 else x
    actual = client.jit(lambda *args: results(client, ours["f"], seed % 2, *args))(placed, *rest)
    for name, array, reference in zip(NAMES, actual, map(np.asarray, expected), strict=True):
        scale = np.abs(reference[np.isfinite(reference)]).max(initial=1)
        message = f"{name} of seed {seed}\n{generated.ours}\n{generated.jax}"
        np.testing.assert_allclose(array, reference, rtol=1e-7, atol=1e-9 * scale, err_msg=message)


@pytest.mark.parametrize("seed", [1, 6, 7])
def test_functions_have_the_derivatives_of_jax(client, seed):
    check(client, seed, 3)
