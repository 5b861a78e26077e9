"""Access to the operands and results of a command of any kind."""

from __future__ import annotations

from collections.abc import Sequence

from shardcall_worker.v1 import link_pb2


def operands_of(message: link_pb2.FrontEndMessage) -> Sequence[link_pb2.TensorData]:
    """Returns the operands of a command."""
    match message.WhichOneof("command"):
        case "execute":
            return message.execute.operands
        case "put_array":
            return [message.put_array.data]
    return []


def results_of(message: link_pb2.FrontEndMessage) -> Sequence[link_pb2.ResultDestination]:
    """Returns the destinations of the results of a command."""
    match message.WhichOneof("command"):
        case "execute":
            return message.execute.results
        case "get_array":
            return [message.get_array.result]
    return []
