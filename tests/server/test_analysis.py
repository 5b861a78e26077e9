"""Collectives and arithmetic in the text of a compiled program."""

import jax
import jax.numpy as jnp
import numpy as np
from rows import rows

from shardcall_server.authoring.runner import use_virtual_devices
from shardcall_server.compilation.analysis import CollectiveUse, collectives, flops


@rows(
    ("line", "name", "nbytes"),
    [
        ("%cp = f64[1,4096]{1,0} collective-permute(%p), channel_id=1", "collective-permute", 32768),
        ("ROOT %ag = bf16[8,2]{1,0} all-gather(%p), dimensions={0}", "all-gather", 32),
        ("%a = (f32[512,512]{1,0}, f32[512,512]{1,0}) all-to-all(%x, %y)", "all-to-all", 2 * 512 * 512 * 4),
        ("%r = pred[7]{0} all-reduce(%x), to_apply=%or", "all-reduce", 7),
        ("%s = f64[] reduce-scatter(%x)", "reduce-scatter", 8),
        ("%b = (f32[4]{0}, f32[4]{0}, u32[], u32[]) collective-permute-start(%x)", "collective-permute", 16),
        ("%g = (f32[4]{0}, f32[32]{0}) all-gather-start(%x)", "all-gather", 128),
        ("%h = f32[8]{0} all-reduce-start(%x)", "all-reduce", 32),
        ("%i = s4[16]{0} all-gather(%x)", "all-gather", 16),
        ("%c = c128[4]{0} all-gather(%x)", "all-gather", 64),
        ("%f = f8e4m3fn[4]{0} all-gather(%x)", "all-gather", 4),
    ],
)
def test_a_collective_is_read_with_its_bytes(line, name, nbytes):
    assert collectives(f"  {line}\n") == [CollectiveUse(name, 1, nbytes)]


def test_uses_of_one_collective_are_added_up_and_what_is_none_is_not_read():
    text = """
      %a = f32[2]{0} all-gather(%x)
      %b = f32[3]{0} all-gather(%y)
      %all-gather.1 = f32[8]{0} add(%x, %y)
      %done = f32[32]{0} all-gather-done(%g)
      %fusion = f64[512,4096]{1,0} fusion(%p, %collective-permute.2), kind=kLoop
    """
    assert collectives(text) == [CollectiveUse("all-gather", 2, 20)]


N = 60
ROUTINES = [
    (jnp.linalg.svd, (3, N, N), 3 * 26 * N**3),
    (jnp.linalg.cholesky, (N, N), N**3 / 3),
    (jnp.linalg.eigh, (N, N), 9 * N**3),
    (jnp.linalg.inv, (N, N), (2 / 3 + 2) * N**3),
    (jnp.linalg.qr, (2 * N, N), 4 * (2 - 1 / 3) * N**3),
]


@rows(
    ("function", "shape", "min_count", "dtype"),
    [*((*routine, np.float32) for routine in ROUTINES), (*ROUTINES[0], np.complex64)],
)
def test_routines_of_lapack_count(function, shape, min_count, dtype):
    use_virtual_devices()
    factor = 4 if dtype is np.complex64 else 1
    compiled = jax.jit(function).lower(jax.ShapeDtypeStruct(shape, dtype)).compile()
    assert min_count * factor <= flops(compiled, compiled.as_text()) <= 1.5 * min_count * factor
