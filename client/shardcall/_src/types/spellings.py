"""The names of the kernels' operands and specs.

Kernels that are not here take operands by position and specs by ``in_specs`` and ``out_specs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from shardcall._src.types.functions import BEGUN, BINARY, MASKED, UNARY


@dataclass(frozen=True)
class Spelling:
    """How a kernel's operands and specs are called.

    Attributes:
        operands: the operands' names, in order.
        in_specs: the keyword of each operand's spec; None for an operand whose spec is left to the server.
        out_specs: the keyword of each result's spec.
        optional: the operands that may be left out.
    """

    operands: tuple[str, ...]
    in_specs: tuple[str | None, ...]
    out_specs: tuple[str, ...] = ("out_spec",)
    optional: tuple[str, ...] = ()


_ARRAY = Spelling(operands=("x",), in_specs=("spec",))
_MASKED = Spelling(operands=("x", "where"), in_specs=("spec", None), optional=("where",))
_BEGUN = Spelling(operands=("x", "where", "initial"), in_specs=("spec", None, None), optional=("where", "initial"))
_PAIR = Spelling(operands=("x", "y"), in_specs=("spec", "y_spec"))
_PRODUCT = Spelling(operands=("lhs", "rhs"), in_specs=("lhs_spec", "rhs_spec"))

SPELLINGS: Mapping[str, Spelling] = MappingProxyType(
    {
        "diff": Spelling(("x", "prepend", "append"), ("spec", None, None), optional=("prepend", "append")),
        "shift": Spelling(operands=("x", "fill"), in_specs=("spec", None), optional=("fill",)),
        "gradient": Spelling(operands=("x",), in_specs=("spec",), out_specs=()),
        "laplacian": Spelling(operands=("x",), in_specs=("spec",)),
        "cumsum": Spelling(operands=("x",), in_specs=("spec",)),
        "convolve": Spelling(operands=("x", "v"), in_specs=("spec", None)),
        "matmul": _PRODUCT,
        "einsum": replace(_PRODUCT, optional=("rhs",)),
        "collective_matmul": _PRODUCT,
        "mlp_predict": Spelling(operands=("x",), in_specs=("spec",)),
        "mlp_loss": Spelling(operands=("x", "targets"), in_specs=("spec", None)),
        "mlp_gradient": Spelling(operands=("x", "targets"), in_specs=("spec", None), out_specs=()),
        "mlp_sgd_step": Spelling(operands=("x", "targets", "rate"), in_specs=("spec", None, None), out_specs=()),
        "uniform": Spelling(operands=("seed", "low", "high"), in_specs=(), optional=("low", "high")),
        "normal": Spelling(operands=("seed", "loc", "scale"), in_specs=(), optional=("loc", "scale")),
        "randint": Spelling(operands=("seed", "low", "high"), in_specs=()),
        "permutation": Spelling(operands=("seed", "x"), in_specs=(None, "spec")),
        **dict.fromkeys((*UNARY, "argmax", "argmin", "reshard", "copy", "transpose", "roll"), _ARRAY),
        **dict.fromkeys(MASKED, _MASKED),
        **dict.fromkeys(BEGUN, _BEGUN),
        **dict.fromkeys(BINARY, _PAIR),
        "where": Spelling(operands=("condition", "x", "y"), in_specs=("spec", "x_spec", "y_spec")),
        "clip": Spelling(("x", "min", "max"), ("spec", "min_spec", "max_spec"), optional=("min", "max")),
    }
)
