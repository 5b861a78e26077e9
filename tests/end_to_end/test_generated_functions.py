"""Random functions have the values, gradients, second derivatives and batches that JAX computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from end_to_end.generated_functions import generated_function
from jax import lax


def results(f, x, d, xs, grad, value_and_grad, jvp, vmap, *, is_forward):
    def gradient(x):
        return grad(f)(x, d)

    def along(v):
        if is_forward:
            return jvp(gradient, (x,), (v,))[1]
        return grad(lambda x: (gradient(x) * v).sum())(x)

    value, (by_x, by_d) = value_and_grad(f, argnums=(0, 1))(x, d)
    directions = np.eye(x.size).reshape((x.size, *x.shape))
    return value, by_x, by_d, vmap(along)(directions), vmap(gradient)(xs)


NAMES = ("value", "gradient of x", "gradient of d", "second derivatives", "batch of gradients")


def check(client, seed):
    generated = generated_function(seed)
    space = {"np": np, "scan": client.xp.scan, "fori_loop": client.xp.fori_loop, "cond": client.xp.cond}
    space["while_loop"] = client.xp.while_loop
    space["repeat"] = lambda f, x, n: client.jit(f).repeat(x, times=n)
    exec(generated.ours, space)
    theirs = {"np": jnp, "scan": lax.scan, "fori_loop": lax.fori_loop, "cond": lax.cond, "while_loop": lax.while_loop}
    theirs["repeat"] = lambda f, x, n: lax.fori_loop(0, n, lambda _, x: f(x), x)
    exec(generated.jax, theirs)
    x, is_forward = generated.x, seed % 2 == 0
    arguments = (x, generated.d, np.stack([x, -x, x + 0.5]))
    with jax.enable_x64(True):
        expected = jax.jit(
            lambda *args: results(
                theirs["f"], *args, jax.grad, jax.value_and_grad, jax.jvp, jax.vmap, is_forward=is_forward
            ),
            compiler_options={"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True},
        )(*arguments)
    x = client.put(generated.x, mesh={"x": 4}) if seed % 4 == 0 else generated.x
    actual = client.jit(
        lambda *args: results(
            space["f"], *args, client.grad, client.value_and_grad, client.jvp, client.vmap, is_forward=is_forward
        )
    )(x, *arguments[1:])
    for name, ours, other in zip(NAMES, actual, expected, strict=True):
        other = np.asarray(other)
        scale = np.abs(other[np.isfinite(other)]).max(initial=1)
        np.testing.assert_allclose(
            ours.get(),
            other,
            rtol=1e-7,
            atol=1e-9 * scale,
            err_msg=f"seed {seed}: {name}\n{generated.ours}\n{generated.jax}",
        )


@pytest.mark.parametrize("seed", range(20))
def test_functions_have_the_derivatives_of_jax(client, seed):
    check(client, seed)
