"""Call sharded JAX kernels on another machine's device mesh as if they were NumPy functions.

    import shardcall as sc

    with sc.connect("localhost:8470") as client:
        result = client.diff(x, axis=0, mesh=sc.Mesh(x=8), spec=sc.P("x", None))
        print(result.timing)

`connect` and `local` give a `Client`; its methods take arrays and give a `Result`. Every error is a
`ShardcallError`, and the builtin that one would catch besides.
"""

from shardcall.arrays import Array
from shardcall.blocks import BlockGrid
from shardcall.client import Client
from shardcall.compiled import CompiledKernel
from shardcall.connection import connect
from shardcall.drawing import Drawing
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
    NotSupportedError,
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
from shardcall.progress import Progress
from shardcall.remote_array import RemoteArray
from shardcall.result import Result
from shardcall.server_info import ServerInfo
from shardcall.specs import P, PartitionSpec
from shardcall.timing import Timing
from shardcall.usage import MeshState, Usage

__version__ = "0.1.0"

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
    "NotSupportedError",
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
