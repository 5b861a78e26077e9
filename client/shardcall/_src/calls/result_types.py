"""The types of the results of calls, before the calls are made."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence

from shardcall._src.calls.call_request import CallRequest
from shardcall._src.rpc.status import refusal
from shardcall_core.call_error import CallError
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.types import parameters
from shardcall_core.types.arrays import Array
from shardcall_core.wire.forks import begin_anew_in_children

_MAX = 256


class ResultTypes:
    """The types of results, by the table of functions or as the server reported them.

    Safe to use from several threads at once.
    """

    def __init__(self) -> None:
        self._types: dict[Hashable, tuple[Array, ...]] = {}
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Replaces the lock in a forked child."""
        self._lock = threading.Lock()  # guards `_types`, which are read without it

    def find(self, call: CallRequest) -> tuple[Array, ...] | None:
        """Returns the type of each result of a call.

        Returns:
            The types; None if only the server can determine them.

        Raises:
            ShardcallError: for a call that the function does not accept.
        """
        key = _key(call)
        types = self._types.get(key)
        if types is None and (types := types_by_table(call)) is not None:
            self._add(key, types)
        return types

    def add(self, call: CallRequest, types: Sequence[Array]) -> None:
        """Stores the types that the server reported."""
        self._add(_key(call), tuple(types))

    def _add(self, key: Hashable, types: tuple[Array, ...]) -> None:
        with self._lock:
            self._types[key] = types
            while len(self._types) > _MAX:
                del self._types[next(iter(self._types))]


def _key(call: CallRequest) -> Hashable:
    operands = [
        None if operand_type is None else (operand_type.shape, operand_type.dtype) for operand_type in call.types
    ]
    return call.message.SerializeToString(deterministic=True), *operands


def types_by_table(call: CallRequest) -> tuple[Array, ...] | None:
    """Returns the type of each result of a call by the table of functions; None for a kernel of another package.

    Raises:
        ShardcallError: for a call that the function does not accept.
    """
    function = FUNCTIONS.get(call.message.kernel)
    if function is None:
        return None
    operands = [None if item is None else ArrayType(item.shape, item.dtype) for item in call.types]
    values = {name: parameters.from_proto(value) for name, value in call.message.parameters.items()}
    try:
        results = function.results(operands, values)
    except CallError as error:
        raise refusal(error, function.name) from None
    return tuple(Array(result.shape, result.dtype) for result in results)
