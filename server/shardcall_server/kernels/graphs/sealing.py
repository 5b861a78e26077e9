"""Results of a program's steps, protected from rewriting that would change their values.

XLA simplifies what it sees in one program: ``log(exp(x))`` becomes ``x``, ``a / b / c`` becomes ``a / (b * c)``, and a
product that is added to something is not rounded (LLVM contracts both to one instruction, through barriers too). The
result of a step must be equal to that of a separate program. Sealing costs a third of the time: a step of the heat
equation of eleven calls at 1024² takes 0.54 times as long as the jitted `jax.numpy` function, and 0.38 without sealing.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_server.kernels.core.element_types import is_narrow_float

_EXACT = frozenset(
    (
        *("negative", "positive", "abs", "absolute", "sign", "floor", "ceil", "trunc", "rint", "conjugate", "real"),
        *("imag", "copysign", "maximum", "minimum", "fmax", "fmin", "where", "clip", "max", "min"),
        *("shift", "roll", "reshard", "copy", "transpose", "getitem", "reshape", "expand_dims", "squeeze", "flip"),
        *("broadcast_to", "concatenate", "stack", "tile", "repeat", "tril", "triu", "diagonal", "pad", "sort", "take"),
        *("take_along_axis", "permutation", "complex"),
    )
)
"""The kernels whose results are elements of their operands, or as exact as those."""

_SUMS = frozenset(("add", "subtract", "diff", "sum", "trace"))
"""The kernels whose results are sums, which the compiler does not rewrite unless they are complex or narrow."""


def is_sealed(kernel: str, dtype: np.dtype) -> bool:
    """Returns True if results of a kernel have to be sealed."""
    if not (dtype.kind == "c" or jnp.issubdtype(dtype, jnp.floating)) or kernel in _EXACT:
        return False
    # XLA:CPU replaces ``x + (y - x)`` by ``y`` where these are complex, also where x is infinite.
    return kernel not in _SUMS or is_narrow_float(dtype) or dtype.kind == "c"


def sealed(array: jax.Array) -> jax.Array:
    """Returns an array of floating-point or complex numbers in a form that the compiler cannot see through."""
    if array.dtype.kind == "c":
        return lax.complex(_sealed(lax.real(array)), _sealed(lax.imag(array)))
    return _sealed(array)


@jax.custom_jvp
def _sealed(array: jax.Array) -> jax.Array:
    # Replaces one NaN by another one; neither XLA nor LLVM has a rule that simplifies this.
    bits = 8 * array.dtype.itemsize
    dtype = np.dtype(f"uint{bits}")
    # Arithmetic does not return this NaN: all its bits are set, except the sign bit if the type has NaN without it.
    nan, flipped = ((1 << bits) - 1, 128) if bits == 8 else ((1 << (bits - 1)) - 1, 1)
    other = lax.bitcast_convert_type(jnp.asarray(nan ^ flipped, dtype), array.dtype)
    return jnp.where(lax.bitcast_convert_type(array, dtype) == dtype.type(nan), other, array)


@_sealed.defjvp
def _sealed_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return _sealed(*primals), tangents[0]
