"""The rules of each method: the token that it needs and whether it needs a call slot."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from google.protobuf.descriptor import MethodDescriptor

from shardcall.v1 import (
    array_service_pb2,
    file_service_pb2,
    kernel_service_pb2,
    method_options_pb2,
    model_service_pb2,
    profile_service_pb2,
    segment_service_pb2,
    server_info_service_pb2,
)
from shardcall_core.call_error import CallError, Reason
from shardcall_inference.v1 import inference_service_pb2
from shardcall_server.frontend.access.principals import Principal, Scope
from shardcall_worker.v1 import host_service_pb2

_CONTRACT = (
    array_service_pb2,
    file_service_pb2,
    kernel_service_pb2,
    model_service_pb2,
    profile_service_pb2,
    segment_service_pb2,
    server_info_service_pb2,
    host_service_pb2,
    inference_service_pb2,
)
INFERENCE_SERVICE = "inference.GRPCInferenceService"
"""The name under which the Open Inference Protocol is served, which is not that of its descriptor."""


def rules_of(method: MethodDescriptor) -> method_options_pb2.MethodRules:
    """Returns the option `rules` of a method.

    Raises:
        ValueError: the option is missing or incomplete.
    """
    rules = method.GetOptions().Extensions[method_options_pb2.rules]
    if not (rules.scope and rules.availability):
        raise ValueError(f"the option rules of {method.full_name} lacks the scope or the availability")
    return rules


def _served_name(service: str) -> str:
    return INFERENCE_SERVICE if service.startswith("shardcall_inference.") else service


RULES: Mapping[str, method_options_pb2.MethodRules] = MappingProxyType(
    {
        f"/{_served_name(service.full_name)}/{method.name}": rules_of(method)
        for file in _CONTRACT
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
)
"""The option `rules` of every method of the contract, by the method's full name."""


class Access(enum.Enum):
    """The requirement of a method that needs no scope."""

    PUBLIC = enum.auto()
    """No token: a health check reveals only that the server exists."""
    ANY_TOKEN = enum.auto()
    """A token with any scopes."""


def _requirement(rules: method_options_pb2.MethodRules) -> Scope | Access:
    name = method_options_pb2.Scope.Name(rules.scope).removeprefix("SCOPE_")
    return Access.ANY_TOKEN if name == "ANY_TOKEN" else Scope[name]


METHODS: Mapping[str, Scope | Access] = MappingProxyType(
    {
        "/grpc.health.v1.Health/Check": Access.PUBLIC,
        "/grpc.health.v1.Health/List": Access.ANY_TOKEN,
        "/grpc.health.v1.Health/Watch": Access.ANY_TOKEN,  # a call without end, of which there is a limited number
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": Access.ANY_TOKEN,
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Access.ANY_TOKEN,
        **{name: _requirement(rules) for name, rules in RULES.items()},
    }
)
"""The requirement of every method, by the method's full name. Other methods are refused."""


def service_of(method: str) -> str:
    """Returns the name of the service of a method's full name."""
    return method.removeprefix("/").rpartition("/")[0]


SERVICES = frozenset(
    service for method in METHODS if not (service := service_of(method)).startswith("shardcall_worker.")
)
"""The services for clients. That of hosts is at an address of its own."""
SERVED = ", ".join(sorted(service for service in SERVICES if not service.startswith("grpc.reflection.")))
"""The names of the services that every server has."""


def check_scope(principal: Principal | None, scope: Scope, doing: str = "this method") -> None:
    """Refuses a caller without a scope.

    Args:
        principal: the caller; None, without authentication, is never refused.
        scope: the required scope.
        doing: the subject of the error message.

    Raises:
        CallError: SCOPE_MISSING.
    """
    if principal is None or scope in principal.scopes:
        return
    has = ", ".join(sorted(principal.scopes))
    # Suggest a token with the scope "host" alone for hosts, and without it for users.
    suggested = {scope} if scope == "host" else {*principal.scopes, scope} - {"host"}
    raise CallError(
        Reason.SCOPE_MISSING,
        f"{doing} needs the scope {scope}, and this token of {principal.name} has {has}; use another token: the "
        "server's own user connects with connect(admin=True), or sets SHARDCALL_TOKEN_FILE to the file admin-token "
        "beside the token file, others ask the "
        f"administrator for one, made with: shardcall token add NAME --scopes {','.join(sorted(suggested))}",
        metadata={"scope": scope, "scopes": has},
    )
