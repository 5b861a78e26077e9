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

from shardcall._version import __version__

if TYPE_CHECKING:
    from shardcall._src.calls.result import Result
    from shardcall._src.device_arrays.bucketed_array import BucketedArray
    from shardcall._src.device_arrays.plan import Plan
    from shardcall._src.device_arrays.plan_steps import PlanStep
    from shardcall._src.device_arrays.remote_array import RemoteArray
    from shardcall._src.display.drawing import Drawing
    from shardcall._src.display.progress import Progress
    from shardcall._src.traced.traced_function import TracedFunction
    from shardcall.client import Client
    from shardcall.compiled import CompiledKernel
    from shardcall.connection import connect
    from shardcall.local_server import local
    from shardcall_core.types.arrays import Array
    from shardcall_core.types.blocks import BlockGrid
    from shardcall_core.types.errors import (
        AccessDeniedError,
        ArrayLostError,
        AxisError,
        CallCancelledError,
        ClientClosedError,
        CompileFailedError,
        DeadlineExceededError,
        ElementReadWarning,
        FailedCallWarning,
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
        RecompilationWarning,
        ResourceExhaustedError,
        ServerUnavailableError,
        ShardcallError,
        ShardingError,
        TracingError,
        UnknownParameterError,
    )
    from shardcall_core.types.kernels import KernelDescription, KernelTable
    from shardcall_core.types.mesh import Mesh
    from shardcall_core.types.server_info import ServerInfo
    from shardcall_core.types.specs import P, PartitionSpec
    from shardcall_core.types.timing import Timing
    from shardcall_core.types.usage import MeshState, Usage

_HOMES = {
    "AccessDeniedError": "shardcall_core.types.errors",
    "Array": "shardcall_core.types.arrays",
    "ArrayLostError": "shardcall_core.types.errors",
    "AxisError": "shardcall_core.types.errors",
    "BlockGrid": "shardcall_core.types.blocks",
    "BucketedArray": "shardcall._src.device_arrays.bucketed_array",
    "CallCancelledError": "shardcall_core.types.errors",
    "Client": "shardcall.client",
    "ClientClosedError": "shardcall_core.types.errors",
    "CompileFailedError": "shardcall_core.types.errors",
    "CompiledKernel": "shardcall.compiled",
    "DeadlineExceededError": "shardcall_core.types.errors",
    "Drawing": "shardcall._src.display.drawing",
    "ElementReadWarning": "shardcall_core.types.errors",
    "FailedCallWarning": "shardcall_core.types.errors",
    "IndexOutOfRangeError": "shardcall_core.types.errors",
    "InternalServerError": "shardcall_core.types.errors",
    "InvalidOperandError": "shardcall_core.types.errors",
    "InvalidParameterError": "shardcall_core.types.errors",
    "InvalidRequestError": "shardcall_core.types.errors",
    "KernelDescription": "shardcall_core.types.kernels",
    "KernelNotFoundError": "shardcall_core.types.errors",
    "KernelTable": "shardcall_core.types.kernels",
    "LinAlgError": "shardcall_core.types.errors",
    "Mesh": "shardcall_core.types.mesh",
    "MeshRestartedError": "shardcall_core.types.errors",
    "MeshState": "shardcall_core.types.usage",
    "MiscompiledKernelError": "shardcall_core.types.errors",
    "NotSupportedError": "shardcall_core.types.errors",
    "OperandCountError": "shardcall_core.types.errors",
    "OperandOverflowError": "shardcall_core.types.errors",
    "OperandTypeError": "shardcall_core.types.errors",
    "OutOfDeviceMemoryError": "shardcall_core.types.errors",
    "OutOfHostMemoryError": "shardcall_core.types.errors",
    "P": "shardcall_core.types.specs",
    "ParameterTypeError": "shardcall_core.types.errors",
    "PartitionSpec": "shardcall_core.types.specs",
    "Plan": "shardcall._src.device_arrays.plan",
    "PlanStep": "shardcall._src.device_arrays.plan_steps",
    "ProgramRefusedError": "shardcall_core.types.errors",
    "Progress": "shardcall._src.display.progress",
    "ProtocolError": "shardcall_core.types.errors",
    "RecompilationWarning": "shardcall_core.types.errors",
    "RemoteArray": "shardcall._src.device_arrays.remote_array",
    "ResourceExhaustedError": "shardcall_core.types.errors",
    "Result": "shardcall._src.calls.result",
    "ServerInfo": "shardcall_core.types.server_info",
    "ServerUnavailableError": "shardcall_core.types.errors",
    "ShardcallError": "shardcall_core.types.errors",
    "ShardingError": "shardcall_core.types.errors",
    "Timing": "shardcall_core.types.timing",
    "TracedFunction": "shardcall._src.traced.traced_function",
    "TracingError": "shardcall_core.types.errors",
    "UnknownParameterError": "shardcall_core.types.errors",
    "Usage": "shardcall_core.types.usage",
    "connect": "shardcall.connection",
    "local": "shardcall.local_server",
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
    "ElementReadWarning",
    "FailedCallWarning",
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
    "RecompilationWarning",
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
    "__version__",
    "connect",
    "local",
]


if not TYPE_CHECKING:  # a type checker that saw it would take every misspelt name for one

    def __getattr__(name):
        if name in _HOMES:
            value = globals()[name] = getattr(import_module(_HOMES[name]), name)
            return value
        if (module := f"{__name__}.{name}") in _HOMES.values():
            return import_module(module)
        message = f"module {__name__!r} has no attribute {name!r}"
        if not name.startswith("_") and hasattr(import_module(f"{__name__}.client").Client, name):
            message += f"; it is a method of a client: client = {__name__}.connect(), and client.{name}(…)"
        raise AttributeError(message)

    def __dir__():
        return __all__
