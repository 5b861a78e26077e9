"""A call as the wire holds it, made from what a caller wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from shardcall import arrays, mesh, parameters, specs
from shardcall.arrays import Array, NDArray, as_operand
from shardcall.errors import InvalidOperandError, InvalidRequestError, ShardcallError
from shardcall.mesh import Mesh
from shardcall.specs import SpecLike
from shardcall.spelling import Spelled, caller_name, spell
from shardcall.v1 import array_pb2, kernel_pb2

AUTO = "auto"


@dataclass(frozen=True)
class Call:
    """A call that is ready to go.

    Attributes:
        message: all of it but the arrays.
        operands: arrays that can travel; an `Array` where there is a type only, None where left out.
    """

    message: kernel_pb2.KernelCall
    operands: tuple[NDArray | Array | None, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What the caller calls each operand."""
        return tuple(_name(self.message.kernel, i) for i in range(len(self.operands)))

    @property
    def values(self) -> tuple[NDArray | None, ...]:
        """The operands, all with values.

        Raises:
            InvalidOperandError: if one has a type only.
        """
        for name, operand in zip(self.names, self.operands, strict=True):
            if isinstance(operand, Array):
                raise InvalidOperandError(
                    f"{name} is {operand!r}, a type without values; give an array, or use plan or compile",
                    field=name,
                )
        return tuple(operand for operand in self.operands if not isinstance(operand, Array))

    @property
    def types(self) -> tuple[Array | None, ...]:
        """The operands' types."""
        return tuple(arrays.type_of(item) if isinstance(item, np.ndarray) else item for item in self.operands)

    def type_messages(self) -> list[array_pb2.ArrayType]:
        """The operands' types as the wire holds them."""
        return [arrays.to_proto(kind) for kind in self.types]


def prepare(
    kernel: str,
    operands: Sequence[Any],
    keywords: Mapping[str, Any],
    *,
    mesh: Mesh | None = None,
    in_specs: Sequence[SpecLike | None] | None = None,
    out_specs: Sequence[SpecLike | None] | None = None,
    strategy: str = AUTO,
) -> Call:
    """Returns the call that a caller means.

    Raises:
        ShardcallError: of the class that fits, if it cannot be sent.
    """
    for name, text in (("kernel", kernel), ("strategy", strategy)):
        if not isinstance(text, str):
            raise InvalidRequestError(f"{name} is {text!r}; give its name", field=name)
    spelled = spell(kernel, operands, keywords, in_specs=in_specs, out_specs=out_specs)
    try:
        message = _message(kernel, spelled, mesh, strategy)
    except ShardcallError:
        raise
    except (TypeError, ValueError) as error:  # from protobuf, e.g. a lone surrogate in a name
        raise InvalidRequestError(f"the call cannot be sent: {error}") from None
    return Call(message, tuple(_operand(item, _name(kernel, i)) for i, item in enumerate(spelled.operands)))


def _name(kernel: str, index: int) -> str:
    return caller_name(kernel, f"operand {index}")


def _message(kernel: str, spelled: Spelled, over: Mesh | None, strategy: str) -> kernel_pb2.KernelCall:
    return kernel_pb2.KernelCall(
        kernel=kernel,
        parameters=parameters.to_protos(spelled.parameters),
        mesh=None if over is None else mesh.to_proto(over),
        in_specs=specs.to_protos(spelled.in_specs, "in_specs", partial(caller_name, kernel)),
        out_specs=specs.to_protos(spelled.out_specs, "out_specs", partial(caller_name, kernel)),
        strategy=strategy,
    )


def _operand(value: Any, field: str) -> NDArray | Array | None:
    if value is None or isinstance(value, Array):
        return value
    if hasattr(value, "shape") and hasattr(value, "dtype") and not _has_values(value):
        return Array(value.shape, value.dtype)  # such as jax.ShapeDtypeStruct
    return as_operand(value, field)


def _has_values(value: Any) -> bool:
    return hasattr(value, "__array__") or hasattr(value, "__dlpack__")
