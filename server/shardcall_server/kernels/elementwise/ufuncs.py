"""The elementwise functions, one row for each, by NumPy's name.

A row's body works on arrays of working type (`element_types.working_type`): float32 for narrower floats, int8 and
uint8 for the four-bit integers. The types that a function takes and returns are those of NumPy's function of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import jax
import jax.numpy as jnp

from shardcall_core.functions.signature import ValueCheck
from shardcall_core.functions.type_rules import Loop
from shardcall_server.kernels.numerics import arithmetic, comparisons, complex_functions, divisors


@dataclass(frozen=True)
class Refusal:
    """Values of an operand that a function refuses.

    Attributes:
        check: the operand and the message.
        applies: returns True for a loop in which such values can occur.
        refused: returns, for the operand in its working type, bool, or integers that are negative for refused elements.
    """

    check: ValueCheck
    applies: Callable[[Loop], bool]
    refused: Callable[[jax.Array], jax.Array]


@dataclass(frozen=True)
class Ufunc:
    """One elementwise function.

    Attributes:
        name: the name of NumPy's function.
        body: computes the function of arrays of the loop's working types; None stands for an operand left out.
        refusals: the values that it refuses.
        keeps_scalars: True if operands without axes are passed to the body unchanged; others are broadcast first.
    """

    name: str
    body: Callable[..., jax.Array]
    refusals: tuple[Refusal, ...] = ()
    keeps_scalars: bool = False


def _real_or_complex(
    on_reals: Callable[..., jax.Array], on_complex: Callable[..., jax.Array]
) -> Callable[..., jax.Array]:
    def on_numbers(x: jax.Array, *others: jax.Array) -> jax.Array:
        return on_complex(x, *others) if x.dtype.kind == "c" else on_reals(x, *others)

    return on_numbers


def _identity(x: jax.Array) -> jax.Array:
    return x


def _to_signed_power(loop: Loop) -> bool:
    return loop.operands[1] is not None and jnp.issubdtype(loop.operands[1], jnp.signedinteger)


_NEGATIVE_POWER = Refusal(
    ValueCheck(
        "y",
        "y holds a negative integer, and NumPy refuses integers to negative integer powers; convert x or y to a "
        "floating-point type, or call float_power",
    ),
    _to_signed_power,
    lambda y: y.astype(jnp.int8) if y.dtype == jnp.bool_ else y,
)

_UNARY = (
    Ufunc("sin", _real_or_complex(jnp.sin, complex_functions.sin)),
    Ufunc("cos", _real_or_complex(jnp.cos, complex_functions.cos)),
    Ufunc("tan", _real_or_complex(jnp.tan, complex_functions.tan)),
    Ufunc("arcsin", _real_or_complex(arithmetic.arcsin, complex_functions.arcsin)),
    Ufunc("arccos", _real_or_complex(jnp.arccos, complex_functions.arccos)),
    Ufunc("arctan", _real_or_complex(jnp.arctan, complex_functions.arctan)),
    Ufunc("sinh", _real_or_complex(arithmetic.sinh, complex_functions.sinh)),
    Ufunc("cosh", _real_or_complex(arithmetic.cosh, complex_functions.cosh)),
    Ufunc("tanh", _real_or_complex(arithmetic.tanh, complex_functions.tanh)),
    Ufunc("arcsinh", _real_or_complex(jnp.arcsinh, complex_functions.arcsinh)),
    Ufunc("arccosh", _real_or_complex(jnp.arccosh, complex_functions.arccosh)),
    Ufunc("arctanh", _real_or_complex(arithmetic.arctanh, complex_functions.arctanh)),
    Ufunc("degrees", jnp.degrees),
    Ufunc("radians", jnp.radians),
    Ufunc("exp", _real_or_complex(jnp.exp, complex_functions.exp)),
    Ufunc("exp2", _real_or_complex(arithmetic.exp2, complex_functions.exp2)),
    Ufunc("expm1", _real_or_complex(jnp.expm1, complex_functions.expm1)),
    Ufunc("log", _real_or_complex(arithmetic.log, complex_functions.log)),
    Ufunc("log2", _real_or_complex(arithmetic.log2, complex_functions.log2)),
    Ufunc("log10", _real_or_complex(arithmetic.log10, complex_functions.log10)),
    Ufunc("log1p", _real_or_complex(arithmetic.log1p, complex_functions.log1p)),
    Ufunc("sqrt", _real_or_complex(arithmetic.sqrt, complex_functions.sqrt)),
    Ufunc("cbrt", arithmetic.cbrt),
    Ufunc("square", _real_or_complex(jnp.square, complex_functions.square)),
    Ufunc("reciprocal", _real_or_complex(arithmetic.reciprocal, complex_functions.reciprocal)),
    Ufunc("absolute", _real_or_complex(jnp.abs, complex_functions.absolute)),
    Ufunc("abs", _real_or_complex(jnp.abs, complex_functions.absolute)),
    Ufunc("negative", jnp.negative),
    Ufunc("positive", _identity),
    Ufunc("sign", _real_or_complex(arithmetic.sign, complex_functions.sign)),
    Ufunc("floor", arithmetic.on_floats(arithmetic.floor)),
    Ufunc("ceil", arithmetic.on_floats(arithmetic.ceil)),
    Ufunc("trunc", arithmetic.on_floats(jnp.trunc)),
    Ufunc("rint", jnp.rint),
    Ufunc("conjugate", jnp.conjugate),
    Ufunc("real", jnp.real),
    Ufunc("imag", jnp.imag),
    Ufunc("angle", arithmetic.angle),
    Ufunc("isnan", jnp.isnan),
    Ufunc("isinf", jnp.isinf),
    Ufunc("isfinite", jnp.isfinite),
    Ufunc("signbit", jnp.signbit),
    Ufunc("logical_not", comparisons.logical_not),
    Ufunc("invert", jnp.invert),
)
_BINARY = (
    Ufunc("add", jnp.add),
    Ufunc("subtract", jnp.subtract),
    Ufunc("multiply", jnp.multiply),
    Ufunc("divide", _real_or_complex(arithmetic.divide, complex_functions.divide)),
    Ufunc("true_divide", _real_or_complex(arithmetic.divide, complex_functions.divide)),
    Ufunc("floor_divide", arithmetic.floor_divide),
    Ufunc("remainder", arithmetic.remainder),
    Ufunc("mod", arithmetic.remainder),
    Ufunc("fmod", arithmetic.fmod),
    Ufunc("power", _real_or_complex(arithmetic.power, complex_functions.power), (_NEGATIVE_POWER,)),
    Ufunc("float_power", _real_or_complex(arithmetic.power, complex_functions.power)),
    Ufunc("arctan2", arithmetic.arctan2),
    Ufunc("hypot", jnp.hypot),
    Ufunc("logaddexp", jnp.logaddexp),
    Ufunc("logaddexp2", jnp.logaddexp2),
    Ufunc("copysign", jnp.copysign),
    Ufunc("maximum", comparisons.maximum),
    Ufunc("minimum", comparisons.minimum),
    Ufunc("fmax", comparisons.fmax),
    Ufunc("fmin", comparisons.fmin),
    Ufunc("equal", comparisons.equal),
    Ufunc("not_equal", comparisons.not_equal),
    Ufunc("less", comparisons.less),
    Ufunc("less_equal", comparisons.less_equal),
    Ufunc("greater", comparisons.greater),
    Ufunc("greater_equal", comparisons.greater_equal),
    Ufunc("logical_and", comparisons.logical_and),
    Ufunc("logical_or", comparisons.logical_or),
    Ufunc("logical_xor", comparisons.logical_xor),
    Ufunc("bitwise_and", jnp.bitwise_and),
    Ufunc("bitwise_or", jnp.bitwise_or),
    Ufunc("bitwise_xor", jnp.bitwise_xor),
    Ufunc("left_shift", arithmetic.left_shift),
    Ufunc("right_shift", arithmetic.right_shift),
    Ufunc("gcd", divisors.gcd),
    Ufunc("lcm", divisors.lcm),
)
_OTHERS = (Ufunc("where", jnp.where), Ufunc("clip", comparisons.clip, keeps_scalars=True))

UFUNCS: Mapping[str, Ufunc] = MappingProxyType({row.name: row for row in (*_UNARY, *_BINARY, *_OTHERS)})
"""All functions, by name."""
