"""The policy has an entry for every method that the server registers, and no others."""

from unittest.mock import MagicMock

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from rows import rows
from server.conftest import refused

from shardcall.v1 import method_options_pb2, profile_service_pb2
from shardcall_core.call_error import Reason
from shardcall_server.frontend import server as front_end
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.policy import INFERENCE_SERVICE, METHODS, Access, check_scope, rules_of
from shardcall_server.frontend.access.principals import Principal, Scope
from shardcall_server.frontend.hosts import host_server
from shardcall_server.settings_sources import load_settings


@pytest.fixture
def servers(monkeypatch) -> list[set[str]]:
    """The services of the two gRPC servers of a front end with hosts: for clients and for agents."""
    registered: list[set[str]] = []

    def make(*_: object, **__: object) -> MagicMock:
        registered.append(services := set())
        return MagicMock(add_generic_rpc_handlers=lambda handlers: services.update(h.service_name() for h in handlers))

    monkeypatch.setattr(front_end.grpc, "server", make)
    monkeypatch.setattr(front_end, "listen", lambda *_: "127.0.0.1:1")
    monkeypatch.setattr(host_server, "listen_for_hosts", lambda *_: "127.0.0.1:2")
    monkeypatch.setattr(front_end, "MeshSupervisor", MagicMock())
    monkeypatch.setattr(front_end, "HostResources", MagicMock())
    front_end.FrontEnd(load_settings({"strategy": "fixed", "hosts": 2}))._tokens.close()
    return registered


def test_the_policy_is_total_and_what_agents_may_do_no_client_reaches(servers):
    clients, agents = servers
    assert agents == {host_server.SERVICE}
    assert host_server.SERVICE not in clients
    pool, names = descriptor_pool.Default(), {INFERENCE_SERVICE: "shardcall_inference.v1.GRPCInferenceService"}
    registered = {
        f"/{service}/{method.name}"
        for service in clients | agents
        for method in pool.FindServiceByName(names.get(service, service)).methods
    }
    planned = {
        f"/{service.full_name}/{method.name}"
        for service in profile_service_pb2.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert len(registered) > 15
    assert registered <= set(METHODS)
    assert set(METHODS) <= registered | planned


@rows("options", [{}, {"availability": 1}, {"scope": 1}])
def test_a_method_without_complete_rules_is_no_method_of_the_policy(options):
    file = descriptor_pb2.FileDescriptorProto(name="t", package="t", dependency=[method_options_pb2.DESCRIPTOR.name])
    file.message_type.add(name="M")
    method = file.service.add(name="S").method.add(name="New", input_type=".t.M", output_type=".t.M")
    method.options.Extensions[method_options_pb2.rules].CopyFrom(method_options_pb2.MethodRules(**options))
    pool = descriptor_pool.DescriptorPool()
    for needed in (descriptor_pb2.DESCRIPTOR, method_options_pb2.DESCRIPTOR):
        pool.AddSerializedFile(needed.serialized_pb)
    pool.Add(file)
    with pytest.raises(ValueError, match=r"t\.S\.New lacks the scope or the availability"):
        rules_of(pool.FindMethodByName("t.S.New"))


def test_only_a_health_check_is_public_and_without_authentication_every_method_of_the_policy_is():
    assert [method for method, need in METHODS.items() if need is Access.PUBLIC] == ["/grpc.health.v1.Health/Check"]
    assert {Gate(None).admit(method, ()) for method in METHODS} == {None}
    with refused(Reason.NOT_SUPPORTED):
        Gate(None).admit("/shardcall.v1.KernelService/New", ())


def test_a_method_of_another_service_is_refused_with_the_services_there_are():
    """Before the token is looked at, which the client of another service does not have."""
    with refused(Reason.NOT_SUPPORTED) as caught:
        Gate(MagicMock()).admit("/tensorflow.serving.PredictionService/Predict", ())
    assert "no service 'tensorflow.serving.PredictionService'" in caught.value.message
    assert "serves grpc.health.v1.Health, " in caught.value.message
    assert "shardcall.v1.KernelService" in caught.value.message
    assert "shardcall_worker" not in caught.value.message


@rows("scope", Scope)
def test_a_scope_is_asked_for_by_name(scope):
    check_scope(None, scope)
    check_scope(Principal("alice", frozenset({scope})), scope)
    with refused(Reason.SCOPE_MISSING, f"needs the scope {scope}, and this token of alice") as caught:
        check_scope(Principal("alice", frozenset(Scope) - {scope}), scope)
    assert "connects with connect(admin=True), or sets SHARDCALL_TOKEN_FILE" in caught.value.message
    asked = caught.value.message.partition("--scopes ")[2]
    assert asked == ("host" if scope == "host" else ",".join(sorted(set(Scope) - {"host"})))
