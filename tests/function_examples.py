"""The examples of the table of functions, as calls."""

from typing import Any

import numpy as np

from shardcall.methods import KernelMethods
from shardcall_core.functions.table import FUNCTIONS


class _Recorder(KernelMethods[Any]):
    def call(self, name: str, /, *operands: Any, **arguments: Any) -> Any:
        return operands, arguments


def run_example(client: Any, name: str, **options: Any) -> Any:
    """Returns what a client's method, or else its `call`, returns for the example of a function."""
    function = FUNCTIONS[name]
    text = f"client.{name}(" if function.method else f"client.call({name!r}, "
    return eval(f"{text}{function.example}, **options)", {"np": np, "client": client, "options": options})


def example_call(name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the operands, as arrays or None, and the parameters of the example of a function."""
    operands, parameters = run_example(_Recorder(), name)
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()}
    return tuple(None if operand is None else np.asarray(operand) for operand in operands), plain
