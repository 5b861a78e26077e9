"""The errors of this package.

Each is also the builtin, or NumPy's own class, that a programmer would catch::

    ShardcallError
    ├── InvalidRequestError(ValueError)           an inconsistent request
    ├── InvalidOperandError(ValueError)           number, rank, shape or content of operands
    │   ├── AxisError(numpy.exceptions.AxisError) an axis that the operand does not have
    │   ├── IndexOutOfRangeError(IndexError)      an index on the mesh that the axis does not have
    │   ├── LinAlgError(numpy.linalg.LinAlgError) a matrix without a result, such as a singular one
    │   ├── OperandTypeError(TypeError)           an element type that cannot be taken
    │   ├── OperandCountError(TypeError)          too many operands, or too few
    │   └── OperandOverflowError(OverflowError)   an integer that the other operand's element type does not hold
    ├── InvalidParameterError(ValueError)         a parameter that is missing or out of range
    │   ├── ParameterTypeError(TypeError)         … of the wrong type
    │   └── UnknownParameterError(TypeError)      … that the kernel does not have
    ├── ShardingError(ValueError)                 mesh, spec or strategy
    ├── KernelNotFoundError(LookupError)          no kernel has this name
    ├── ArrayLostError(LookupError)               an array that is no longer on the mesh
    ├── ResourceExhaustedError(RuntimeError)      too large, or too much at once
    │   ├── OutOfDeviceMemoryError(MemoryError)   no memory on the devices
    │   └── OutOfHostMemoryError(MemoryError)     no memory on the server's host
    ├── DeadlineExceededError(TimeoutError)       not done in time
    ├── CallCancelledError(CancelledError)        cancelled, e.g. by `Client.close`
    ├── ServerUnavailableError(ConnectionError)   no server, or none that can serve now
    │   └── MeshRestartedError                    the mesh restarted under this call
    ├── AccessDeniedError(PermissionError)        the server refuses this caller
    ├── NotSupportedError(NotImplementedError)    in the contract, not served yet
    ├── CompileFailedError(RuntimeError)          the program could not be built or compiled
    ├── ProgramRefusedError(RuntimeError)         a program that ended the mesh before
    ├── MiscompiledKernelError(RuntimeError)      a kernel that the server's compiler miscompiles
    ├── TracingError(TypeError)                   a function that cannot be traced
    ├── ClientClosedError(ValueError)             a call after `Client.close`, or while Python exits
    └── InternalServerError(RuntimeError)         a fault of the server's own
        └── ProtocolError                         an answer that breaks the contract
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    import grpc

    from shardcall_core.types.timing import Timing


_PAGE = "docs/errors.md"
_NO_REASON = "errors-without-a-reason"


class ShardcallError(Exception):
    """The base class of all errors of this package.

    Attributes:
        message: the problem, what is allowed and what to do.
        reason: the name of a `shardcall.v1.ErrorReason` without its prefix, also of a wrong argument that the client
            detects before the server would; empty for other errors of the client itself and of gRPC.
        field: the part of the call at fault, such as ``x``, ``out_spec`` or ``axis``; empty if none is.
        metadata: further values for programs.
        timing: the timing of the call until the failure; None if the server did not report it.
        status: the gRPC status; None for errors of the client itself.
        retry_after_s: seconds after which a repeated call may succeed; None if waiting does not help.
        request_id: the request id in the server's log and traces; empty for a call that was not sent.
        help: the section of the documentation with the causes and the remedies.
    """

    __module__ = "shardcall"  # what tracebacks show and pickles contain
    _CLIENT_REASON: ClassVar[str] = ""  # of an argument that the client refuses

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__module__ = ShardcallError.__module__

    def __init__(
        self,
        message: str = "",
        *,
        reason: str = "",
        field: str = "",
        metadata: Mapping[str, str] | None = None,
        timing: Timing | None = None,
        status: grpc.StatusCode | None = None,
        retry_after_s: float | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason: str = reason or (self._CLIENT_REASON if status is None else "")
        self.field = field
        self.metadata: dict[str, str] = dict(metadata or {})
        self.timing = timing
        self.status = status
        self.retry_after_s = retry_after_s
        self.request_id = request_id

    @property
    def help(self) -> str:
        """The section of the documentation about this error: a page and an anchor."""
        return f"{_PAGE}#{self.reason.lower() or _NO_REASON}"

    def __str__(self) -> str:
        return self.message


class InvalidRequestError(ShardcallError, ValueError):
    """An inconsistent request."""

    _CLIENT_REASON = "MALFORMED_REQUEST"


class InvalidOperandError(ShardcallError, ValueError):
    """The number, rank, shape or content of operands."""

    _CLIENT_REASON = "INVALID_OPERAND"


class AxisError(InvalidOperandError, np.exceptions.AxisError):
    """An array axis that the operand does not have.

    Attributes:
        axis: the requested axis; None if the server did not report it.
        ndim: the operand's number of axes; None if the server did not report it.
    """

    _CLIENT_REASON = "AXIS_OUT_OF_RANGE"

    def __init__(self, message: str = "", *, metadata: Mapping[str, str] | None = None, **rest: object) -> None:
        super().__init__(message, metadata=metadata, **rest)  # type: ignore[arg-type]
        self.axis: int | None = _integer(self.metadata.get("axis"))
        self.ndim: int | None = _integer(self.metadata.get("ndim"))


class IndexOutOfRangeError(InvalidOperandError, IndexError):
    """An index on the mesh that the axis does not have; raised when the result is read."""

    _CLIENT_REASON = "INDEX_OUT_OF_RANGE"


class LinAlgError(InvalidOperandError, np.linalg.LinAlgError):
    """A matrix for which a function has no result, such as a singular one; raised when the result is read."""

    _CLIENT_REASON = "INVALID_MATRIX"


class OperandTypeError(InvalidOperandError, TypeError):
    """An unsupported element type, or one that does not combine with another operand's."""

    _CLIENT_REASON = "UNSUPPORTED_ELEMENT_TYPE"


class OperandCountError(InvalidOperandError, TypeError):
    """A number of operands that the kernel does not take."""

    _CLIENT_REASON = "OPERAND_COUNT"


class OperandOverflowError(InvalidOperandError, OverflowError):
    """A Python integer that the element type of the operand beside it does not hold."""

    _CLIENT_REASON = "INVALID_VALUE"


class InvalidParameterError(ShardcallError, ValueError):
    """A parameter that is missing or out of range."""

    _CLIENT_REASON = "INVALID_PARAMETER"


class ParameterTypeError(InvalidParameterError, TypeError):
    """A parameter of the wrong type."""

    _CLIENT_REASON = "PARAMETER_TYPE"


class UnknownParameterError(InvalidParameterError, TypeError):
    """A parameter that the kernel does not have."""

    _CLIENT_REASON = "UNKNOWN_PARAMETER"


class ShardingError(ShardcallError, ValueError):
    """An invalid mesh, spec or strategy, or a combination of them."""


class KernelNotFoundError(ShardcallError, LookupError):
    """No kernel has this name."""

    _CLIENT_REASON = "KERNEL_NOT_FOUND"


class ArrayLostError(ShardcallError, LookupError):
    """An array that is no longer on the mesh."""

    _CLIENT_REASON = "ARRAY_LOST"


class ResourceExhaustedError(ShardcallError, RuntimeError):
    """A call over the server's limits, or too much at once."""


class OutOfDeviceMemoryError(ResourceExhaustedError, MemoryError):
    """The devices could not give the memory for the kernel."""


class OutOfHostMemoryError(ResourceExhaustedError, MemoryError):
    """The server's host could not give the memory for the arrays."""


class DeadlineExceededError(ShardcallError, TimeoutError):
    """The call was not done in time."""


class CallCancelledError(ShardcallError, concurrent.futures.CancelledError):
    """The call was cancelled."""


class ServerUnavailableError(ShardcallError, ConnectionError):
    """No server answers, or none that can serve now."""


class MeshRestartedError(ServerUnavailableError):
    """The mesh restarted while it worked on this call; the call may be repeated.

    The client has repeated it once, unless an operand was on the mesh or the call is suspect. ``metadata["ended"]``
    is the mesh's exit reason, if known: ``killed``, ``out_of_memory``, ``crashed``, ``unresponsive``
    or ``overtime``.
    """

    @property
    def is_suspect(self) -> bool:
        """True if this call may have caused the restart: ``metadata["suspect"]`` is set."""
        return "suspect" in self.metadata


class AccessDeniedError(ShardcallError, PermissionError):
    """The server refuses this caller."""


class NotSupportedError(ShardcallError, NotImplementedError):
    """A feature of the protocol that the server does not have."""

    _CLIENT_REASON = "NOT_SUPPORTED"


class CompileFailedError(ShardcallError, RuntimeError):
    """The kernel's own code failed, or the compiler refused the program; the server's log has the reason."""


class ProgramRefusedError(ShardcallError, RuntimeError):
    """A program that ended the mesh three times; the server does not run it again."""


class MiscompiledKernelError(ShardcallError, RuntimeError):
    """A kernel that failed a known-answer test: the server's compiler miscompiles it, and it is not run.

    ``metadata["known_answer"]`` names the test, ``metadata["detail"]`` the failure and ``metadata["jaxlib"]`` the
    version of the compiler.
    """


class TracingError(ShardcallError, TypeError):
    """A function that cannot be traced, such as one that needs the values of its arguments."""


class ClientClosedError(ShardcallError, ValueError):
    """A call after `Client.close`."""


class InternalServerError(ShardcallError, RuntimeError):
    """A fault of the server's own; the error id is in its log."""


class ProtocolError(InternalServerError):
    """An answer that violates the protocol."""


class FailedCallWarning(UserWarning):
    """A call failed whose results were dropped, so that nobody reads its error; `Client.synchronize` raises it."""

    __module__ = "shardcall"


class ElementReadWarning(UserWarning):
    """Many elements of an array on the mesh were read one by one; `RemoteArray.get` copies all in one round trip."""

    __module__ = "shardcall"


class RecompilationWarning(UserWarning):
    """A kernel is compiled for each of several sizes; `Client.bucket` makes arrays of many lengths share programs."""

    __module__ = "shardcall"


def with_message(error: ShardcallError, message: str) -> ShardcallError:
    """Returns an error like another, with its class and details, and another message."""
    return type(error)(
        message,
        reason=error.reason,
        field=error.field,
        metadata=error.metadata,
        timing=error.timing,
        status=error.status,
        retry_after_s=error.retry_after_s,
        request_id=error.request_id,
    )


def _integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
