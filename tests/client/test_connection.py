"""Addresses, connections, and what is said where there is no server."""

import contextlib
import socket
import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from client.conftest import default_info
from rows import rows

import shardcall
from shardcall_core.access.addresses import default_address, parse_address
from shardcall_core.access.handshake import explain, no_answer
from shardcall_core.access.tls import Tls
from shardcall_core.versions import build_version
from shardcall_core.wire import variables


@pytest.fixture
def closed_port():
    """A port without a listener: it is taken, and refuses."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_a_client_knows_its_server_and_shows_it_as_a_few_lines(server, client):
    info = client.server_info()
    assert (info.platform, info.epoch, len(info.devices)) == ("cpu", 7, 1)
    assert (info.default_mesh, info.limits.max_call_bytes) == (shardcall.Mesh(x=1, device_ids=[0]), 2**28)
    assert (info.versions.jax, repr(client)) == ("1", f"<Client of {server.address}, 1 cpu devices>")
    lines = str(info).splitlines()
    assert repr(info) == str(info)
    assert lines[0] == "devices        1 × cpu"
    assert "one call       256 MiB (268,435,456 bytes), 600 s, rank 8" in lines
    assert "versions       shardcall 0, jax 1, jaxlib 2" in lines
    assert len(lines) == 12


def test_kernels_print_as_a_table_and_one_as_a_page(client):
    assert repr(client.kernels()) == str(client.kernels()) == "echo()\n    Returns its operands."
    assert str(client.kernel("echo")).splitlines() == ["echo()", "  Returns its operands."]


@rows(
    ("name", "says"),
    [
        ("echo", r"; .*: client.call\('echo', …\)$"),
        ("zeros", "; NumPy's names are those of client.xp: client.xp.zeros$"),
        ("asarray", "; NumPy's names are those of client.xp: client.xp.asarray$"),
        ("run", r"; client.call\(name, …\) runs a kernel by its name, and client.jit\(function\)\(…\) a function$"),
        ("pmap", "; client.jit runs .* and client.vmap maps it over an axis$"),
        *((name, "; client.vmap.* is the Jacobian of f at x$") for name in ("jacfwd", "jacrev")),
        ("device_put", r"; client.put\(x, …\) puts an array on the mesh$"),
    ],
)
def test_an_attribute_that_is_guessed_is_explained(client, name, says):
    with pytest.raises(AttributeError, match=f"'Client' object has no attribute '{name}'{says}"):
        getattr(client, name)


def test_an_attribute_of_a_closed_client_is_explained_without_its_kernels(server):
    with shardcall.connect(server.address) as closed:
        pass
    with pytest.raises(AttributeError, match="no attribute 'dif'; did you mean 'diff'"):
        closed.dif  # noqa: B018
    assert not hasattr(closed, "dif")


@rows(
    ("address", "says"),
    [
        ("unix:/nowhere/no.sock", r"^no server answers at unix:.*shardcall serve"),
        ("no-such.invalid:8470", r"^no machine is known here as 'no-such.invalid', or"),
    ],
)
def test_what_is_not_there_has_a_specific_error(address, says):
    with pytest.raises(shardcall.ServerUnavailableError, match=says):
        shardcall.connect(address, connect_timeout=30)


def test_an_unresolvable_proxy_is_not_mistaken_for_the_server(monkeypatch):
    for variable in ("no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("grpc_proxy", "http://no-proxy.invalid:3128")
    says = r"as 'no-proxy.invalid:3128', the proxy that .*10.0.0.5 to"
    with pytest.raises(shardcall.ServerUnavailableError, match=says):
        shardcall.connect("10.0.0.5:8470", token="a" * 16, tls=False, connect_timeout=30)


@pytest.fixture
def listening():
    """Has something listen that is no server of ours; returns its address."""
    with contextlib.ExitStack() as stack:

        def started(answer):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            stack.callback(listener.shutdown, socket.SHUT_RDWR)

            def serve():
                with contextlib.suppress(OSError), contextlib.ExitStack() as kept:
                    while True:
                        answer(kept.enter_context(listener.accept()[0]))

            threading.Thread(target=serve, daemon=True).start()
            return f"127.0.0.1:{listener.getsockname()[1]}"

        yield started


@pytest.mark.parametrize(
    ("answer", "timeout_s", "says"),
    [
        (lambda it: it.recv(1000) and it.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), 60, "speaks no gRPC"),
        (lambda it: it.sendall(b"SSH-2.0-OpenSSH_9.6\r\n"), 60, "speaks no gRPC"),
        (lambda it: it.close(), 60, "closed the connection at once"),
        (lambda it: None, 0.1, "within 0.1 s"),
    ],
    ids=["HTTP", "a greeting", "nothing", "silence"],
)
def test_another_service_and_an_unresponsive_host_have_specific_errors(listening, answer, timeout_s, says):
    address = listening(answer)
    begins = f"what listens at {address}" if timeout_s == 60 else f"nothing answered from {address}"
    with pytest.raises(shardcall.ServerUnavailableError, match=f"^{begins} {says}; see whether"):
        shardcall.connect(address, connect_timeout=timeout_s)


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_silent_port_is_distinguished_by_the_connect_timeout(listening, encrypted, monkeypatch):
    def quickly(open_channel):
        one_attempt = {"grpc.min_reconnect_backoff_ms": 200}
        return lambda *arguments, options: open_channel(*arguments, options=[*(dict(options) | one_attempt).items()])

    for name in ("insecure_channel", "secure_channel"):
        monkeypatch.setattr(grpc, name, quickly(getattr(grpc, name)))
    address = listening(lambda connection: None)
    with pytest.raises(shardcall.ServerUnavailableError, match=f"^nothing answered from {address} in time; see"):
        shardcall.connect(address, tls=encrypted or None, connect_timeout=60, retries=False)


@rows(
    ("details", "says"),
    [
        ("Cannot check peer: missing selected ALPN property.", "what listens at gpu:8470 speaks no gRPC; see"),
        ("CERTIFICATE_VERIFY_FAILED: self signed", "the certificate of gpu:8470 is not by an authority that this"),
        ("Handshake read failed (Endpoint closing)", "nothing answered from gpu:8470 in time; see"),
    ],
)
def test_what_grpc_says_of_a_connection_is_said_with_what_to_do(details, says):
    assert explain(details, parse_address("gpu:8470"), Tls()).startswith(says)


def test_what_the_system_says_of_an_address_is_passed_on():
    details = "ipv4:10.0.0.5:8470: Failed to connect to remote host: No route to host"
    said = "no server answers at 10.0.0.5:8470: No route to host; start one with: shardcall serve"
    assert no_answer(details, parse_address("10.0.0.5:8470")) == said


def test_a_variable_that_nothing_reads_is_warned_of_once(server, monkeypatch):
    monkeypatch.setattr(variables, "_reported", False)
    for name, value in (("TOKN", "x"), ("SERVICE_HOST", "10.0.0.1"), ("PORT", "tcp://10.0.0.1:8470"), ("MESH", "x=2")):
        monkeypatch.setenv(f"SHARDCALL_{name}", value)
    with pytest.warns(UserWarning, match="variable SHARDCALL_TOKN; did you mean SHARDCALL_TOKEN") as caught:
        shardcall.connect(server.address).close()
    shardcall.connect(server.address).close()  # a warning would be an error here
    assert (len(caught), caught[0].filename) == (1, __file__)


def test_a_grpc_server_without_our_services_has_a_specific_error(server):
    server.info = lambda request, context: context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
    with pytest.raises(shardcall.ServerUnavailableError, match=r"^what answers at .* is a shardcall server \(this"):
        shardcall.connect(server.address)


def test_a_method_that_an_older_server_lacks_is_reported_with_both_versions(server, client):
    """It has no arrays."""
    with pytest.raises(shardcall.NotSupportedError, match=r"does not serve this call \(Method not found!\)") as caught:
        client.put(np.arange(4.0))
    assert f"(the server is shardcall 0, and this client {build_version()}; install the same" in str(caught.value)


@pytest.mark.parametrize("reason", ["MESH_NOT_READY", "SERVER_DRAINING"])
def test_a_server_that_cannot_serve_says_why(server, abort, reason):
    status = grpc.StatusCode.UNAVAILABLE, reason, "its mesh is starting"
    server.info = lambda request, context: abort(context, *status, retry_after_s=2)
    says = r"is up and cannot serve now: its mesh is sta"
    with pytest.raises(shardcall.ServerUnavailableError, match=says) as caught:
        shardcall.connect(server.address)
    assert (caught.value.reason, caught.value.retry_after_s) == (reason, 2)


def test_a_mesh_that_never_was_ready_is_reported_with_the_missing_hosts(server, abort):
    late = "the call's 5 s passed while waiting for the mesh's hosts: 1 that never joined; give it a longer timeout"
    server.info = lambda request, context: abort(context, grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", late)
    up = f"the server at {server.address} is up, but {late.partition(';')[0]}"
    message = rf"^{up}; wait longer \(connect_timeout=\), or see: shardcall status$"
    with pytest.raises(shardcall.ServerUnavailableError, match=message):
        shardcall.connect(server.address)


def test_other_refusals_pass_as_they_are(server, abort):
    server.info = lambda request, context: abort(context, grpc.StatusCode.INTERNAL, "INTERNAL", "error id 17")
    with pytest.raises(shardcall.InternalServerError, match=r"^error id 17 \(request [0-9a-f]+\)$"):
        shardcall.connect(server.address)
    server.info = lambda request, context: context.abort(grpc.StatusCode.PERMISSION_DENIED, "who are you?")
    with pytest.raises(shardcall.AccessDeniedError, match=r"who are you"):
        shardcall.connect(server.address)


def test_a_server_of_longer_messages_is_heard_out(server):
    server.info = lambda request, context: default_info(max_message_bytes=2**40)
    with shardcall.connect(server.address) as client:
        assert client.call("echo", 1.0).array == 1.0


def test_no_proxy_comes_between_neighbours(server, monkeypatch, closed_port):
    for name in ("http_proxy", "HTTP_PROXY", "grpc_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port}")
    with shardcall.connect(server.address) as client:
        assert client.kernels()


@rows("patched", ["socket", "threading", ""])
def test_gevent_without_grpcs_support_for_it_is_refused(patched, server, monkeypatch):
    monkey = SimpleNamespace(is_module_patched=lambda name: name == patched)
    monkeypatch.delitem(sys.modules, "grpc.experimental.gevent", raising=False)
    monkeypatch.setitem(sys.modules, "gevent.monkey", monkey)
    advice = r"call grpc\.experimental\.gevent\.init_gevent\(\) after"
    with pytest.raises(shardcall.NotSupportedError, match=advice) if patched else nullcontext():
        shardcall.connect(server.address).close()
    monkeypatch.setitem(sys.modules, "grpc.experimental.gevent", SimpleNamespace())
    shardcall.connect(server.address).close()


LOCAL = [
    *("localhost:8470", "LOCALHOST:8470", "127.0.0.1:1", "127.9.9.9:65535", "[::1]:8470", "[::ffff:127.0.0.1]:8470"),
    *("unix:/run/shardcall.sock", "unix:///run/shardcall.sock", "unix:relative.sock"),
]
REMOTE = ["[::ffff:10.0.0.1]:8470", "10.0.0.1:8470", "[2001:db8::1]:8470", "gpu-host.example.org:8470", "gpu_host:1"]


@rows("address", LOCAL + REMOTE)
def test_addresses_are_parsed_and_classified_as_local_or_remote(address):
    parsed = parse_address(address)
    assert (parsed.target, parsed.is_local) == (address, address in LOCAL)


@rows(
    ("says", "addresses"),
    [
        ("host:port", ["", "localhost", "localhost:", ":8470", "localhost:port", "local host:8470", "::1:8470"]),
        ("host:port", ["localhost:8470/path"]),
        ("1 to 65535", ["localhost:0", "localhost:65536"]),
        ("leave out the scheme", ["http://localhost:8470"]),
        ("unix:/path", ["unix:", "unix://"]),
        ("no address", [8470, b"localhost:8470", ("localhost", 8470)]),
    ],
)
def test_what_is_no_address_is_refused_with_the_forms_there_are(says, addresses):
    for address in addresses:
        with pytest.raises(shardcall.InvalidRequestError, match=says):
            shardcall.connect(address)


def test_the_default_address_is_the_environments_else_the_usual_one(monkeypatch):
    monkeypatch.delenv("SHARDCALL_ADDRESS", raising=False)
    assert default_address() == "localhost:8470"
    monkeypatch.setenv("SHARDCALL_ADDRESS", "gpu-host.example.org:9000")
    assert default_address() == "gpu-host.example.org:9000"
    monkeypatch.setenv("SHARDCALL_ADDRESS", "http://localhost")
    with pytest.raises(shardcall.InvalidRequestError, match=r"the environment variable SHARDCALL_ADDRESS: .*scheme"):
        shardcall.connect()
