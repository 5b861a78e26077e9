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
    from shardcall._src.calls.result import Result
    from shardcall._src.device_arrays.bucketed_array import BucketedArray
    from shardcall._src.device_arrays.plan import Plan
    from shardcall._src.device_arrays.plan_steps import PlanStep
    from shardcall._src.device_arrays.remote_array import RemoteArray
    from shardcall._src.display.drawing import Drawing
    from shardcall._src.display.progress import Progress
    from shardcall._src.traced.traced_function import TracedFunction
    from shardcall._src.types.arrays import Array
    from shardcall._src.types.blocks import BlockGrid
    from shardcall._src.types.errors import (
        AccessDeniedError,
        ArrayLostError,
        AxisError,
        CallCancelledError,
        ClientClosedError,
        CompileFailedError,
        DeadlineExceededError,
        IndexOutOfRangeError,
        InternalServerError,
        InvalidOperandError,
        InvalidParameterError,
        InvalidRequestError,
        KernelNotFoundError,
        LinAlgError,
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
        TracingError,
        UnknownParameterError,
        ViewWarning,
    )
    from shardcall._src.types.kernels import KernelDescription, KernelTable
    from shardcall._src.types.mesh import Mesh
    from shardcall._src.types.server_info import ServerInfo
    from shardcall._src.types.specs import P, PartitionSpec
    from shardcall._src.types.timing import Timing
    from shardcall._src.types.usage import MeshState, Usage
    from shardcall.client import Client
    from shardcall.compiled import CompiledKernel
    from shardcall.connection import connect
    from shardcall.local_server import local

__version__ = "0.1.0"

_HOMES = {
    "AccessDeniedError": "_src.types.errors",
    "Array": "_src.types.arrays",
    "ArrayLostError": "_src.types.errors",
    "AxisError": "_src.types.errors",
    "BlockGrid": "_src.types.blocks",
    "BucketedArray": "_src.device_arrays.bucketed_array",
    "CallCancelledError": "_src.types.errors",
    "Client": "client",
    "ClientClosedError": "_src.types.errors",
    "CompileFailedError": "_src.types.errors",
    "CompiledKernel": "compiled",
    "DeadlineExceededError": "_src.types.errors",
    "Drawing": "_src.display.drawing",
    "IndexOutOfRangeError": "_src.types.errors",
    "InternalServerError": "_src.types.errors",
    "InvalidOperandError": "_src.types.errors",
    "InvalidParameterError": "_src.types.errors",
    "InvalidRequestError": "_src.types.errors",
    "KernelDescription": "_src.types.kernels",
    "KernelNotFoundError": "_src.types.errors",
    "KernelTable": "_src.types.kernels",
    "LinAlgError": "_src.types.errors",
    "Mesh": "_src.types.mesh",
    "MeshRestartedError": "_src.types.errors",
    "MeshState": "_src.types.usage",
    "MiscompiledKernelError": "_src.types.errors",
    "NotSupportedError": "_src.types.errors",
    "OperandCountError": "_src.types.errors",
    "OperandOverflowError": "_src.types.errors",
    "OperandTypeError": "_src.types.errors",
    "OutOfDeviceMemoryError": "_src.types.errors",
    "OutOfHostMemoryError": "_src.types.errors",
    "P": "_src.types.specs",
    "ParameterTypeError": "_src.types.errors",
    "PartitionSpec": "_src.types.specs",
    "Plan": "_src.device_arrays.plan",
    "PlanStep": "_src.device_arrays.plan_steps",
    "ProgramRefusedError": "_src.types.errors",
    "Progress": "_src.display.progress",
    "ProtocolError": "_src.types.errors",
    "RemoteArray": "_src.device_arrays.remote_array",
    "ResourceExhaustedError": "_src.types.errors",
    "Result": "_src.calls.result",
    "ServerInfo": "_src.types.server_info",
    "ServerUnavailableError": "_src.types.errors",
    "ShardcallError": "_src.types.errors",
    "ShardingError": "_src.types.errors",
    "Timing": "_src.types.timing",
    "TracedFunction": "_src.traced.traced_function",
    "TracingError": "_src.types.errors",
    "UnknownParameterError": "_src.types.errors",
    "Usage": "_src.types.usage",
    "ViewWarning": "_src.types.errors",
    "connect": "connection",
    "local": "local_server",
}

__all__ = [
    "AccessDeniedError",
    "Array",
    "ArrayLostError",
    "AxisError",
    "BlockGrid",
    "BucketedArray",
    "CallCancelledError",
    "Client",
    "ClientClosedError",
    "CompileFailedError",
    "CompiledKernel",
    "DeadlineExceededError",
    "Drawing",
    "IndexOutOfRangeError",
    "InternalServerError",
    "InvalidOperandError",
    "InvalidParameterError",
    "InvalidRequestError",
    "KernelDescription",
    "KernelNotFoundError",
    "KernelTable",
    "LinAlgError",
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
    "PlanStep",
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
    "TracedFunction",
    "TracingError",
    "UnknownParameterError",
    "Usage",
    "ViewWarning",
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
