"""What each method asks of its caller; what is not said here is refused."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.access.principals import Principal, Scope


class Access(enum.Enum):
    """What a method asks that asks for no scope."""

    PUBLIC = enum.auto()
    """Nothing: a health check tells nobody anything but that the server is there."""
    KNOWN = enum.auto()
    """A token, whatever its scopes."""


METHODS: Mapping[str, Scope | Access] = MappingProxyType(
    {
        "/grpc.health.v1.Health/Check": Access.PUBLIC,
        "/grpc.health.v1.Health/List": Access.KNOWN,
        "/grpc.health.v1.Health/Watch": Access.KNOWN,  # each is a call that never ends, and there may be so many only
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": Access.KNOWN,
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Access.KNOWN,
        "/shardcall.v1.ServerInfoService/GetServerInfo": Access.KNOWN,
        "/shardcall.v1.ServerInfoService/GetUsage": Scope.ADMIN,
        "/shardcall.v1.KernelService/ListKernels": Access.KNOWN,
        "/shardcall.v1.KernelService/DescribeKernel": Access.KNOWN,
        "/shardcall.v1.KernelService/Plan": Scope.RUN,
        "/shardcall.v1.KernelService/Compile": Scope.RUN,
        "/shardcall.v1.KernelService/Execute": Scope.RUN,
        "/shardcall.v1.KernelService/ExecuteStream": Scope.RUN,
        "/shardcall.v1.SegmentService/OpenSegment": Scope.RUN,
        "/shardcall.v1.ArrayService/PutArray": Scope.ARRAYS,
        "/shardcall.v1.ArrayService/GetArray": Scope.ARRAYS,
        "/shardcall.v1.ArrayService/DescribeArray": Scope.ARRAYS,
        "/shardcall.v1.ArrayService/ListArrays": Scope.ARRAYS,
        "/shardcall.v1.ArrayService/DeleteArrays": Scope.ARRAYS,
        "/shardcall.v1.ArrayService/RenewLease": Scope.ARRAYS,
        "/shardcall.v1.ProfileService/StartProfile": Scope.ADMIN,
        "/shardcall.v1.ProfileService/StopProfile": Scope.ADMIN,
        "/shardcall_worker.v1.HostService/Join": Scope.HOST,
    }
)
"""By the method's full name."""


def check_scope(principal: Principal | None, scope: Scope, doing: str = "this method") -> None:
    """Refuses who may not do something; nobody where nobody is asked who they are.

    Args:
        principal: who calls.
        scope: what that takes.
        doing: what it is, for the error message.

    Raises:
        CallError: SCOPE_MISSING.
    """
    if principal is None or scope in principal.scopes:
        return
    has = ", ".join(sorted(principal.scopes))
    # A host's token need open nothing else, and what people are given opens no place in the mesh.
    wanted = {scope} if scope == "host" else {*principal.scopes, scope} - {"host"}
    raise CallError(
        Reason.SCOPE_MISSING,
        f"{doing} needs the scope {scope} and this token of {principal.name} has {has}; use another token: the "
        "server's own user sets SHARDCALL_TOKEN_FILE to the file admin-token beside the token file, others ask the "
        f"server's keeper for one by: shardcall token add NAME --scopes {','.join(sorted(wanted))}",
        metadata={"scope": scope, "scopes": has},
    )
