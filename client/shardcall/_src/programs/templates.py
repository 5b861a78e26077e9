"""Templates of calls: the common part of those of one kernel with operands of the same types."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shardcall._src.calls.call_memo import CallMemo, are_plain
from shardcall._src.calls.call_request import AUTO, CallRequest, placements_of, prepare
from shardcall._src.rpc.status import refusal
from shardcall.v1 import mesh_pb2
from shardcall.v1.kernel_pb2 import KernelCall
from shardcall_core.call_error import CallError
from shardcall_core.functions.elementwise import BINARY, UNARY
from shardcall_core.functions.reductions import WITH_WHERE
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.graphs.graph import Node, NodeSpec, Value, parameters_of
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.types import parameters, specs
from shardcall_core.types.arrays import Array, HasType
from shardcall_core.types.specs import axis_names

FUSABLE = frozenset(
    (
        *UNARY,
        *BINARY,
        *WITH_WHERE,
        *("where", "clip", "roll", "shift", "diff", "getitem", "transpose", "expand_dims", "squeeze", "broadcast_to"),
        *("astype", "argmax", "argmin", "setitem", "copy", "flip", "sort", "argsort", "take"),
    )
)
"""The functions whose calls are recorded: they have one result, whose layout is decided without the compiler."""

_BY_COMPONENTS = frozenset(
    (
        *("add", "subtract", "negative", "positive", "conjugate", "real", "imag", "equal", "not_equal", "where"),
        *("astype", "roll", "shift", "diff", "getitem", "setitem", "copy", "flip", "transpose", "expand_dims"),
        *("squeeze", "broadcast_to", "sort", "argsort", "take"),
    )
)
"""The functions of complex numbers that compute no product: how one is rounded depends on the program."""

_SAME = {"abs": "absolute", "true_divide": "divide", "mod": "remainder"}
_AXES_OF_OTHERS = ("stack", "expand_dims", "lexsort")  # their axes count from the last of the result, or of a key


@dataclass(frozen=True, eq=False)
class Template:
    """The common part of calls of one kernel with the same parameters and operands of the same types.

    Attributes:
        number: another one for each template.
        kernel: the name of the kernel, as the caller wrote it.
        parameters: the static parameters by name.
        types: the types of the operands; None for one left out.
        results: the types of the results.
        node: such a call as a node of a program, without operands.
    """

    number: int
    kernel: str
    parameters: Mapping[str, Any]
    types: tuple[Array | None, ...]
    results: tuple[Array, ...]
    node: Node

    def request(self, operands: Sequence[Any], memo: CallMemo[KernelCall]) -> CallRequest:
        """Returns a call with operands, as `prepare` with less work where the memo has the message of such a call.

        Raises:
            ShardcallError: of the class that fits, if an operand is lost, or they are on different devices.
        """
        placements, commits = placements_of(operands)
        key = self.number, placements
        if (message := memo.find(key)) is not None:
            return CallRequest(message, tuple(operands), commits)
        call = prepare(self.kernel, operands, self.parameters, memo=memo)
        if placements == placements_of(operands)[0]:  # as in `prepare`
            memo.add(key, call.message)
        return call

    def node_of(self, operands: tuple[Value | None, ...]) -> Node:
        """Returns such a call as a node of a program.

        Args:
            operands: its operands.
        """
        node = self.node
        return Node(node.kernel, operands, node.parameters, node.strategy, node.in_specs, node.out_specs)

    @cached_property
    def is_fusable(self) -> bool:
        """True if such calls are recorded, to run as part of a program: their values do not depend on the others."""
        first, complex_types = self.types[0], [one for one in self.types if one is not None and one.dtype.kind == "c"]
        if self.kernel not in FUSABLE or (complex_types and self.kernel not in _BY_COMPONENTS):
            return False
        if self.kernel == "power" and (exponent := self.types[-1]) is not None and exponent.dtype.kind == "i":
            return False  # whose values may be refused
        ndim = 0 if first is None else first.ndim
        return not (self.kernel == "roll" and self.parameters.get("axis") is None and ndim > 1)

    def may_be_refused(self, operands: Sequence[object]) -> bool:
        """Returns True if the values of operands may be refused: indices of `take` on the mesh or out of range."""
        if self.kernel != "take" or self.types[0] is None:
            return False
        axis, shape, indices = self.parameters.get("axis"), self.types[0].shape, operands[1]
        count = math.prod(shape) if axis is None else shape[axis]
        return not (isinstance(indices, np.ndarray) and bool(np.all((-count <= indices) & (indices < count))))


class Templates:
    """The templates of a client's calls, and the types of results; safe to use from several threads at once.

    Attributes:
        messages: the messages of the calls.
    """

    def __init__(self) -> None:
        self.messages = CallMemo[KernelCall]()
        self._templates = CallMemo[Template]()
        self._types = CallMemo[tuple[Array, ...]]()
        self._numbers = itertools.count()

    def find(self, name: str, operands: Sequence[HasType | None], keywords: Mapping[str, Any]) -> Template | None:
        """Returns the template of a call without a mesh and specs; None for another kernel than one of the table.

        Args:
            name: the name of the kernel.
            operands: the operands, of which the types count.
            keywords: the parameters; with others than those of the function, and values that may change, there is none.

        Raises:
            ShardcallError: for a call that the function does not accept.
        """
        parts: list[Hashable] = [name, *[None if item is None else (item.shape, item.dtype) for item in operands]]
        if keywords:
            if not are_plain(keywords.values()):
                return None
            parts += [(key, type(item), item) for key, item in keywords.items()]
        key = tuple(parts)
        if (template := self._templates.find(key)) is not None:
            return template
        function = FUNCTIONS.get(name)
        if function is None or not keywords.keys() <= function.defaults.keys():
            return None
        call = prepare(name, [None if item is None else Array(item.shape, item.dtype) for item in operands], keywords)
        results = types_by_table(call) or ()
        return self._templates.add(
            key, Template(next(self._numbers), name, dict(keywords), call.types, results, node_of(call))
        )

    def types(self, call: CallRequest) -> tuple[Array, ...] | None:
        """Returns the type of each result of any call; None if only the server can determine them.

        Raises:
            ShardcallError: for a call that the function does not accept.
        """
        key = _key(call)
        types = self._types.find(key)
        if types is None and (types := types_by_table(call)) is not None:
            self._types.add(key, types)
        return types

    def add_types(self, call: CallRequest, types: Sequence[Array]) -> None:
        """Stores the types of results, such as the server reported them."""
        self._types.add(_key(call), tuple(types))


def types_by_table(call: CallRequest) -> tuple[Array, ...] | None:
    """Returns the type of each result of a call by the table of functions; None for a kernel of another package.

    Raises:
        ShardcallError: for a call that the function does not accept.
    """
    function = FUNCTIONS.get(call.message.kernel)
    if function is None:
        return None
    operands = [None if item is None else ArrayType(item.shape, item.dtype) for item in call.types]
    try:
        results = function.results(operands, _parameters(call))
    except CallError as error:
        raise refusal(error, function.name) from None
    return tuple(Array(result.shape, result.dtype) for result in results)


def node_of(call: CallRequest) -> Node:
    """Returns a call as a node without operands; calls that compute the same are equal where that is plain."""
    message, name = call.message, _SAME.get(call.message.kernel, call.message.kernel)
    values = _parameters(call)
    defaults = FUNCTIONS[name].defaults if name in FUNCTIONS else {}
    axis, operand_type = values.get("axis"), call.types[0] if call.types else None
    if type(axis) is int and axis < 0 and operand_type is not None and name not in _AXES_OF_OTHERS:
        values["axis"] = axis + operand_type.ndim
    kept = [(key, value) for key, value in values.items() if key not in defaults or not _is_same(value, defaults[key])]
    strategy = "" if message.strategy == AUTO else message.strategy
    node_specs = (_node_specs(message.in_specs), _node_specs(message.out_specs))
    return Node(name, (), parameters_of(kept), strategy, *node_specs)


def spec_of(message: mesh_pb2.OptionalPartitionSpec) -> specs.PartitionSpec | None:
    """Returns the spec of a message; None for an unset one."""
    return specs.from_proto(message.spec) if message.HasField("spec") else None


def _key(call: CallRequest) -> Hashable:
    types = [None if one is None else (one.shape, one.dtype) for one in call.types]
    return call.message.SerializeToString(deterministic=True), *types


def _parameters(call: CallRequest) -> dict[str, Any]:
    return {name: parameters.from_proto(value) for name, value in call.message.parameters.items()}


def _is_same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and repr(value) == repr(default)


def _node_specs(messages: Sequence[mesh_pb2.OptionalPartitionSpec]) -> tuple[NodeSpec | None, ...]:
    return tuple(None if spec is None else tuple(map(axis_names, spec)) for spec in map(spec_of, messages))
