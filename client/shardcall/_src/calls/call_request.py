"""Builds the messages of calls from the arguments of their callers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from shardcall._src.calls.call_memo import CallMemo, call_key
from shardcall._src.device_arrays.array_version import ArrayVersion
from shardcall._src.device_arrays.operands import as_operand
from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall._src.rpc.status import refusal
from shardcall.v1 import array_pb2, kernel_pb2
from shardcall_core.call_error import MAX_KERNEL_NAME, kernel_name_refusal
from shardcall_core.placements.placement import MeshPlacement
from shardcall_core.types import arrays, mesh, parameters, specs
from shardcall_core.types.arguments import bind, caller_name, operand_name
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.blocks import device_label
from shardcall_core.types.element_types import NATIVE_DTYPES
from shardcall_core.types.errors import InvalidOperandError, InvalidRequestError, ShardcallError, ShardingError
from shardcall_core.types.mesh import Mesh, MeshLike, as_mesh
from shardcall_core.types.specs import PartitionSpec, SpecLike, as_specs, axis_names

AUTO = "auto"


class CallOptions(NamedTuple):
    """The options of a call, as of `shardcall.Client.call`."""

    mesh: MeshLike | None = None
    in_specs: Sequence[SpecLike | None] | None = None
    out_specs: Sequence[SpecLike | None] | None = None
    strategy: str = AUTO

    @property
    def are_plain(self) -> bool:
        """True if none differs from its default."""
        return self.mesh is None and self.in_specs is None and self.out_specs is None and self.strategy == AUTO


PLAIN = CallOptions()


@dataclass(frozen=True)
class CallRequest:
    """A call that can be sent.

    Attributes:
        message: the call without its arrays.
        operands: NumPy arrays and arrays on the mesh; an `Array` for a type without values, None for one left out.
        commits: whether its results are committed.
    """

    message: kernel_pb2.KernelCall
    operands: tuple[NDArray | ArrayVersion | Array | None, ...]
    commits: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The caller's names of the operands."""
        return tuple(operand_name(self.message.kernel, i) for i in range(len(self.operands)))

    @property
    def values(self) -> tuple[NDArray | ArrayVersion | None, ...]:
        """The operands, all with values.

        Raises:
            InvalidOperandError: if one is a type without values.
        """
        for index, operand in enumerate(self.operands):
            if type(operand) is Array:
                name = operand_name(self.message.kernel, index)
                raise InvalidOperandError(
                    f"{name} is {operand!r}, a type without values; give an array, or use plan or compile",
                    field=name,
                )
        return self.operands  # type: ignore[return-value]  # a copy, or a cast, would take longer than the check

    @cached_property
    def types(self) -> tuple[Array | None, ...]:
        """The operands' types."""
        return tuple(_type(item) for item in self.operands)

    @property
    def handles(self) -> list[bytes]:
        """The handles of the operands that are on the mesh, at their indices; empty for the others."""
        handles = [item.handle if isinstance(item, ArrayVersion) else b"" for item in self.operands]
        return handles if any(handles) else []

    def type_messages(self) -> list[array_pb2.ArrayType]:
        """Returns the operands' types as messages."""
        return [arrays.to_proto(operand_type) for operand_type in self.types]


def prepare(
    kernel: str,
    operands: Sequence[Any],
    keywords: Mapping[str, Any],
    options: CallOptions = PLAIN,
    *,
    memo: CallMemo[kernel_pb2.KernelCall] | None = None,
) -> CallRequest:
    """Returns the call of a caller's arguments; its message may be one of the memo's, and must not be changed.

    Raises:
        ShardcallError: of the class that fits, if the arguments are invalid.
    """
    # Not `CallMemo[...]()`, which imports a module from Python 3.12 on: an error while Python exits.
    memo = CallMemo() if memo is None else memo
    if not isinstance(kernel, str):
        raise InvalidRequestError(f"kernel is {kernel!r}; give its name", field="kernel")
    if not isinstance(options.strategy, str):
        raise InvalidRequestError(f"strategy is {options.strategy!r}; give its name, or leave it out", field="strategy")
    if len(kernel) > MAX_KERNEL_NAME:
        raise refusal(kernel_name_refusal(kernel), "")
    bound = bind(kernel, operands, keywords, in_specs=options.in_specs, out_specs=options.out_specs)
    values = tuple([_operand(item, kernel, i) for i, item in enumerate(bound.operands)])
    call_mesh = None if options.mesh is None else as_mesh(options.mesh)
    in_specs = out_specs = None
    names_devices = call_mesh is not None
    if bound.in_specs is not None or bound.out_specs is not None:
        named = partial(caller_name, kernel)
        in_specs = as_specs(bound.in_specs, "in_specs", named)
        out_specs = as_specs(bound.out_specs, "out_specs", named)
        names_devices = names_devices or any(spec is not None for spec in (*(in_specs or ()), *(out_specs or ())))
    placements, commits = placements_of(values)
    key = call_key(kernel, bound.parameters, call_mesh, in_specs, out_specs, options.strategy, placements)
    if (message := memo.find(key)) is None:
        placing = placed(kernel, values, call_mesh, in_specs)
        message = _message(kernel, bound.parameters, *placing, out_specs, options.strategy)
        message.uncommitted.extend(i for i, x in enumerate(values) if isinstance(x, ArrayVersion) and not x.committed)
        if placements == placements_of(values)[0]:  # else another thread has settled one, which the message may name
            memo.add(key, message)
    return CallRequest(message, values, commits or names_devices)


def placements_of(operands: Sequence[NDArray | ArrayVersion | Array | None]) -> tuple[Hashable, bool]:
    """Returns what a message takes from its operands, another for one that is lost; and whether one is committed."""
    placements: list[Hashable] = []
    commits = False
    for operand in operands:
        if not isinstance(operand, ArrayVersion):
            placements.append(None)
            continue
        placed, committed = operand.placed, operand.committed
        commits = commits or committed
        size = None if committed else operand.nbytes  # of those that are not committed the largest decides
        placements.append((committed, size, operand.lost, placed and placed.mesh, placed and placed.placement.spec))
    return (tuple(placements) if any(placements) else ()), commits


def placed(
    kernel: str,
    operands: Sequence[NDArray | ArrayVersion | Array | None],
    call_mesh: Mesh | None,
    in_specs: Sequence[PartitionSpec | None] | None,
) -> tuple[Mesh | None, Sequence[PartitionSpec | None] | None]:
    """Returns mesh and specs of a call; those that are unset follow the operands on the mesh.

    If submitted calls make one of these, both are returned as they are, and the server does the same.

    Args:
        kernel: the name of the kernel.
        call_mesh: the caller's mesh; None for that of the first committed operand, else of the largest on the mesh.
        in_specs: the caller's specs; None for the spec of a committed operand, if the mesh has its axes. Those that
            are not committed keep theirs if there is no other and ``call_mesh`` is None.

    Raises:
        ShardingError: if the mesh is unset and two committed operands are on different devices, or in another order on
            the same.
    """
    on_mesh = {i: operand for i, operand in enumerate(operands) if isinstance(operand, ArrayVersion)}
    if not on_mesh or any(operand.placed is None for operand in on_mesh.values()):
        return call_mesh, in_specs  # the server applies the same rule
    kept = {i: operand for i, operand in on_mesh.items() if operand.committed}
    if call_mesh is None:
        largest = max(on_mesh.values(), key=lambda array: array.nbytes)  # the first of equals, as on the server
        call_mesh = _common_mesh(kernel, kept) if kept else largest.settled().mesh
        kept = kept or on_mesh
    specs = list(in_specs or ())
    for i, operand in kept.items():
        specs += [None] * (i + 1 - len(specs))
        spec = operand.settled().placement.spec
        names = {name for entry in spec for name in axis_names(entry)}
        if specs[i] is None and names <= set(call_mesh.axis_names):
            specs[i] = spec
    return call_mesh, specs


def _common_mesh(kernel: str, on_mesh: Mapping[int, ArrayVersion]) -> Mesh:
    """Returns the mesh of the first operand; those of the others may differ in the names of axes only."""
    (first, array), *others = ((i, operand.settled()) for i, operand in on_mesh.items())
    for i, operand in others:
        if operand.mesh.device_ids == array.mesh.device_ids:
            continue
        same = set(operand.mesh.device_ids or ()) == set(array.mesh.device_ids or ())
        raise ShardingError(
            f"{operand_name(kernel, first)} is on {_where(array)} and {operand_name(kernel, i)} on "
            f"{_where(operand)}{', the same devices in another order' if same else ''}; set the mesh of the call, "
            "mesh=…, or move one of them with Client.reshard(array, mesh=…, keep=True)",
            reason="INVALID_MESH",
            field="mesh",
        )
    return array.mesh


def _where(placed: MeshPlacement) -> str:
    devices = f" of devices {device_label(placed.mesh.device_ids)}" if placed.mesh.device_ids else ""
    return f"{Mesh(placed.mesh.shape)}{devices} as {placed.placement.spec}"


def _message(
    kernel: str,
    values: Mapping[str, Any],
    call_mesh: Mesh | None,
    in_specs: Sequence[PartitionSpec | None] | None,
    out_specs: Sequence[PartitionSpec | None] | None,
    strategy: str,
) -> kernel_pb2.KernelCall:
    try:
        return kernel_pb2.KernelCall(
            kernel=kernel,
            parameters=parameters.to_protos(values),
            mesh=None if call_mesh is None else mesh.to_proto(call_mesh),
            in_specs=map(specs.to_proto, in_specs or ()),
            out_specs=map(specs.to_proto, out_specs or ()),
            strategy=strategy,
        )
    except ShardcallError:
        raise
    except (TypeError, ValueError) as error:  # from protobuf, e.g. a lone surrogate in a name
        raise InvalidRequestError(f"the call cannot be sent: {error}") from None


def _type(operand: NDArray | ArrayVersion | Array | None) -> Array | None:
    if isinstance(operand, ArrayVersion):
        return operand.type
    return None if operand is None else arrays.type_of(operand)


def _operand(value: Any, kernel: str, index: int) -> NDArray | ArrayVersion | Array | None:
    if value is None or isinstance(value, Array) or (type(value) is np.ndarray and value.dtype in NATIVE_DTYPES):
        return value
    array = value if isinstance(value, ArrayVersion) else find_remote_array(value)
    field = operand_name(kernel, index)
    if array is not None:
        version = array if isinstance(array, ArrayVersion) else array._version
        version.check_there(field)
        return version
    if hasattr(value, "shape") and hasattr(value, "dtype") and not _has_values(value):
        return Array(value.shape, value.dtype)  # such as jax.ShapeDtypeStruct
    return as_operand(value, field)


def _has_values(value: Any) -> bool:
    return hasattr(value, "__array__") or hasattr(value, "__dlpack__")
