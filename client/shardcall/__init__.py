"""Call sharded JAX kernels on another machine's device mesh as if they were NumPy functions.

    import shardcall as sc

    with sc.connect("localhost:8470") as client:
        result = client.diff(x, axis=0, mesh=sc.Mesh(x=8), spec=sc.P("x", None))
        print(result.timing)

`connect` and `local` give a `Client`; its methods take arrays and give a `Result`. Every error is a
`ShardcallError`, and the builtin that one would catch besides.

Modules are imported when a name of theirs is first asked for: the server, its workers and the command use a few each.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardcall.arrays import Array
    from shardcall.blocks import BlockGrid
    from shardcall.client import Client
    from shardcall.compiled import CompiledKernel
    from shardcall.connection import connect
    from shardcall.display.drawing import Drawing
    from shardcall.display.progress import Progress
    from shardcall.errors import (
        AccessDeniedError,
        ArrayLostError,
        AxisError,
        CallCancelledError,
        ClientClosedError,
        CompileFailedError,
        DeadlineExceededError,
        InternalServerError,
        InvalidOperandError,
        InvalidParameterError,
        InvalidRequestError,
        KernelNotFoundError,
        MeshRestartedError,
        MiscompiledKernelError,
        NotSupportedError,
        OperandCountError,
        OperandOverflowError,
        OperandTypeError,
        OutOfDeviceMemoryError,
        OutOfHostMemoryError,
        ParameterTypeError,
        ProgramRefusedError,
        ProtocolError,
        ResourceExhaustedError,
        ServerUnavailableError,
        ShardcallError,
        ShardingError,
        UnknownParameterError,
    )
    from shardcall.kernels import KernelDescription, KernelTable
    from shardcall.local_server import local
    from shardcall.mesh import Mesh
    from shardcall.plan import Plan
    from shardcall.remote_array import RemoteArray
    from shardcall.result import Result
    from shardcall.server_info import ServerInfo
    from shardcall.specs import P, PartitionSpec
    from shardcall.timing import Timing
    from shardcall.usage import MeshState, Usage

__version__ = "0.1.0"

_HOMES = {
    "AccessDeniedError": "errors",
    "Array": "arrays",
    "ArrayLostError": "errors",
    "AxisError": "errors",
    "BlockGrid": "blocks",
    "CallCancelledError": "errors",
    "Client": "client",
    "ClientClosedError": "errors",
    "CompileFailedError": "errors",
    "CompiledKernel": "compiled",
    "DeadlineExceededError": "errors",
    "Drawing": "display.drawing",
    "InternalServerError": "errors",
    "InvalidOperandError": "errors",
    "InvalidParameterError": "errors",
    "InvalidRequestError": "errors",
    "KernelDescription": "kernels",
    "KernelNotFoundError": "errors",
    "KernelTable": "kernels",
    "Mesh": "mesh",
    "MeshRestartedError": "errors",
    "MeshState": "usage",
    "MiscompiledKernelError": "errors",
    "NotSupportedError": "errors",
    "OperandCountError": "errors",
    "OperandOverflowError": "errors",
    "OperandTypeError": "errors",
    "OutOfDeviceMemoryError": "errors",
    "OutOfHostMemoryError": "errors",
    "P": "specs",
    "ParameterTypeError": "errors",
    "PartitionSpec": "specs",
    "Plan": "plan",
    "ProgramRefusedError": "errors",
    "Progress": "display.progress",
    "ProtocolError": "errors",
    "RemoteArray": "remote_array",
    "ResourceExhaustedError": "errors",
    "Result": "result",
    "ServerInfo": "server_info",
    "ServerUnavailableError": "errors",
    "ShardcallError": "errors",
    "ShardingError": "errors",
    "Timing": "timing",
    "UnknownParameterError": "errors",
    "Usage": "usage",
    "connect": "connection",
    "local": "local_server",
}

__all__ = [
    "AccessDeniedError",
    "Array",
    "ArrayLostError",
    "AxisError",
    "BlockGrid",
    "CallCancelledError",
    "Client",
    "ClientClosedError",
    "CompileFailedError",
    "CompiledKernel",
    "DeadlineExceededError",
    "Drawing",
    "InternalServerError",
    "InvalidOperandError",
    "InvalidParameterError",
    "InvalidRequestError",
    "KernelDescription",
    "KernelNotFoundError",
    "KernelTable",
    "Mesh",
    "MeshRestartedError",
    "MeshState",
    "MiscompiledKernelError",
    "NotSupportedError",
    "OperandCountError",
    "OperandOverflowError",
    "OperandTypeError",
    "OutOfDeviceMemoryError",
    "OutOfHostMemoryError",
    "P",
    "ParameterTypeError",
    "PartitionSpec",
    "Plan",
    "ProgramRefusedError",
    "Progress",
    "ProtocolError",
    "RemoteArray",
    "ResourceExhaustedError",
    "Result",
    "ServerInfo",
    "ServerUnavailableError",
    "ShardcallError",
    "ShardingError",
    "Timing",
    "UnknownParameterError",
    "Usage",
    "__version__",
    "connect",
    "local",
]


if not TYPE_CHECKING:  # a type checker that saw it would take every misspelt name for one

    def __getattr__(name):
        if name in _HOMES:
            value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
            return value
        if name in _HOMES.values():
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return __all__
