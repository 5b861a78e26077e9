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

from shardcall_core.functions.type_rules import Loop
from shardcall_core.layouts.signature import OperandInfo, ValueCheck
from shardcall_server.kernels.numerics import arithmetic, comparisons, complex_functions, divisors

_X, _Y = OperandInfo("x", "An array or a scalar."), OperandInfo("y", "An array or a scalar that broadcasts with x.")


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
        operands: the descriptions of its operands.
        refusals: the values that it refuses.
        keeps_scalars: True if operands without axes are passed to the body unchanged; others are broadcast first.
    """

    name: str
    body: Callable[..., jax.Array]
    operands: tuple[OperandInfo, ...]
    refusals: tuple[Refusal, ...] = ()
    keeps_scalars: bool = False


def _unary(name: str, body: Callable[..., jax.Array]) -> Ufunc:
    return Ufunc(name, body, (_X,))


def _binary(name: str, body: Callable[..., jax.Array], *refusals: Refusal) -> Ufunc:
    return Ufunc(name, body, (_X, _Y), refusals)


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
    _unary("sin", _real_or_complex(jnp.sin, complex_functions.sin)),
    _unary("cos", _real_or_complex(jnp.cos, complex_functions.cos)),
    _unary("tan", _real_or_complex(jnp.tan, complex_functions.tan)),
    _unary("arcsin", _real_or_complex(arithmetic.arcsin, complex_functions.arcsin)),
    _unary("arccos", _real_or_complex(jnp.arccos, complex_functions.arccos)),
    _unary("arctan", _real_or_complex(jnp.arctan, complex_functions.arctan)),
    _unary("sinh", _real_or_complex(arithmetic.sinh, complex_functions.sinh)),
    _unary("cosh", _real_or_complex(arithmetic.cosh, complex_functions.cosh)),
    _unary("tanh", _real_or_complex(arithmetic.tanh, complex_functions.tanh)),
    _unary("arcsinh", _real_or_complex(jnp.arcsinh, complex_functions.arcsinh)),
    _unary("arccosh", _real_or_complex(jnp.arccosh, complex_functions.arccosh)),
    _unary("arctanh", _real_or_complex(arithmetic.arctanh, complex_functions.arctanh)),
    _unary("degrees", jnp.degrees),
    _unary("radians", jnp.radians),
    _unary("exp", _real_or_complex(jnp.exp, complex_functions.exp)),
    _unary("exp2", _real_or_complex(arithmetic.exp2, complex_functions.exp2)),
    _unary("expm1", _real_or_complex(jnp.expm1, complex_functions.expm1)),
    _unary("log", _real_or_complex(arithmetic.log, complex_functions.log)),
    _unary("log2", _real_or_complex(arithmetic.log2, complex_functions.log2)),
    _unary("log10", _real_or_complex(arithmetic.log10, complex_functions.log10)),
    _unary("log1p", _real_or_complex(arithmetic.log1p, complex_functions.log1p)),
    _unary("sqrt", _real_or_complex(arithmetic.sqrt, complex_functions.sqrt)),
    _unary("cbrt", arithmetic.cbrt),
    _unary("square", _real_or_complex(jnp.square, complex_functions.square)),
    _unary("reciprocal", _real_or_complex(arithmetic.reciprocal, complex_functions.reciprocal)),
    _unary("absolute", _real_or_complex(jnp.abs, complex_functions.absolute)),
    _unary("abs", _real_or_complex(jnp.abs, complex_functions.absolute)),
    _unary("negative", jnp.negative),
    _unary("positive", _identity),
    _unary("sign", _real_or_complex(arithmetic.sign, complex_functions.sign)),
    _unary("floor", arithmetic.on_floats(arithmetic.floor)),
    _unary("ceil", arithmetic.on_floats(arithmetic.ceil)),
    _unary("trunc", arithmetic.on_floats(jnp.trunc)),
    _unary("rint", jnp.rint),
    _unary("conjugate", jnp.conjugate),
    _unary("real", jnp.real),
    _unary("imag", jnp.imag),
    _unary("angle", arithmetic.angle),
    _unary("isnan", jnp.isnan),
    _unary("isinf", jnp.isinf),
    _unary("isfinite", jnp.isfinite),
    _unary("signbit", jnp.signbit),
    _unary("logical_not", comparisons.logical_not),
    _unary("invert", jnp.invert),
)
_BINARY = (
    _binary("add", jnp.add),
    _binary("subtract", jnp.subtract),
    _binary("multiply", jnp.multiply),
    _binary("divide", _real_or_complex(arithmetic.divide, complex_functions.divide)),
    _binary("true_divide", _real_or_complex(arithmetic.divide, complex_functions.divide)),
    _binary("floor_divide", arithmetic.floor_divide),
    _binary("remainder", arithmetic.remainder),
    _binary("mod", arithmetic.remainder),
    _binary("fmod", arithmetic.fmod),
    _binary("power", _real_or_complex(arithmetic.power, complex_functions.power), _NEGATIVE_POWER),
    _binary("float_power", _real_or_complex(arithmetic.power, complex_functions.power)),
    _binary("arctan2", arithmetic.arctan2),
    _binary("hypot", jnp.hypot),
    _binary("logaddexp", jnp.logaddexp),
    _binary("logaddexp2", jnp.logaddexp2),
    _binary("copysign", jnp.copysign),
    _binary("maximum", comparisons.maximum),
    _binary("minimum", comparisons.minimum),
    _binary("fmax", comparisons.fmax),
    _binary("fmin", comparisons.fmin),
    _binary("equal", comparisons.equal),
    _binary("not_equal", comparisons.not_equal),
    _binary("less", comparisons.less),
    _binary("less_equal", comparisons.less_equal),
    _binary("greater", comparisons.greater),
    _binary("greater_equal", comparisons.greater_equal),
    _binary("logical_and", comparisons.logical_and),
    _binary("logical_or", comparisons.logical_or),
    _binary("logical_xor", comparisons.logical_xor),
    _binary("bitwise_and", jnp.bitwise_and),
    _binary("bitwise_or", jnp.bitwise_or),
    _binary("bitwise_xor", jnp.bitwise_xor),
    _binary("left_shift", arithmetic.left_shift),
    _binary("right_shift", arithmetic.right_shift),
    _binary("gcd", divisors.gcd),
    _binary("lcm", divisors.lcm),
)
_OTHERS = (
    Ufunc(
        "where",
        jnp.where,
        (
            OperandInfo("condition", "Where it is true or not zero, the result is x, elsewhere y."),
            OperandInfo("x", "An array or a scalar that broadcasts with condition."),
            OperandInfo("y", "Likewise."),
        ),
    ),
    Ufunc(
        "clip",
        comparisons.clip,
        (
            _X,
            OperandInfo("min", "The least value of the result, an array or a scalar; left out, there is none.", True),
            OperandInfo("max", "The greatest value, likewise; where min is greater than max, the result is max.", True),
        ),
        keeps_scalars=True,
    ),
)

FUNCTIONS: Mapping[str, Ufunc] = MappingProxyType({row.name: row for row in (*_UNARY, *_BINARY, *_OTHERS)})
"""All functions, by name."""
