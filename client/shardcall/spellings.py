"""The names of the kernels' operands and specs.

Kernels that are not here take operands by position and specs by ``in_specs`` and ``out_specs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Spelling:
    """How a kernel's operands and specs are called.

    Attributes:
        operands: the operands' names, in order.
        in_specs: the keyword of each operand's spec; None for an operand whose spec is left to the server.
        out_specs: the keyword of each result's spec.
    """

    operands: tuple[str, ...]
    in_specs: tuple[str | None, ...]
    out_specs: tuple[str, ...] = ("out_spec",)


_PRODUCT = Spelling(operands=("lhs", "rhs"), in_specs=("lhs_spec", "rhs_spec"))

SPELLINGS: Mapping[str, Spelling] = MappingProxyType(
    {
        "diff": Spelling(operands=("x", "prepend", "append"), in_specs=("spec", None, None)),
        "matmul": _PRODUCT,
        "collective_matmul": _PRODUCT,
    }
)
