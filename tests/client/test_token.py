"""Choice of the token that a client sends, and the errors when it is refused."""

import contextlib
import os
import socket
import tempfile
import threading
import traceback

import grpc
import numpy as np
import pytest
from client.conftest import echo
from client.stream_server import in_threads
from client_parts import transport_of
from rows import rows

import shardcall
from shardcall_core.access.addresses import parse_address
from shardcall_core.access.session import LONGEST_NAME, UNKNOWN, socket_name
from shardcall_core.access.token import Token, find_token
from shardcall_core.wire import token_file
from shardcall_core.wire.token_file import Entry

EXPLICIT, VARIABLE = "explicit-" + "e" * 20, "variable-" + "v" * 20
LOCAL, REMOTE = parse_address("localhost:8470"), parse_address("gpu.example.org:8470")


@pytest.fixture
def user_token(tmp_path, monkeypatch):
    """The token of this user's own file, without any other source of tokens."""
    entry = Entry.make(token_file.user_name(), ["run"])
    path = tmp_path / "token"
    token_file.create(str(path), [Entry.make("other", ["run"]), entry])
    monkeypatch.setenv("SHARDCALL_TOKEN_FILE", str(path))
    monkeypatch.delenv("SHARDCALL_TOKEN", raising=False)
    return entry.token


class Exchange:
    """The private socket of a server of this user: gives out session tokens that a test chooses.

    Attributes:
        session: what it gives next; empty for no answer but that the token is unknown.
        shown: the tokens that it was shown.
    """

    def __init__(self, folder, address):
        self.session, self.shown = "session-" + "s" * 20, []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(os.path.join(folder, socket_name(parse_address(address))))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                with self._listener.accept()[0] as visitor:
                    self.shown.append(visitor.recv(512).decode())
                    visitor.send(self.session.encode() or UNKNOWN)

    def close(self):
        """Ends it as a kill does: the socket's file stays."""
        if self._thread.is_alive():
            self._listener.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._listener.close()


@pytest.fixture
def exchange(monkeypatch):
    """Makes the private socket of a server at an address."""
    with tempfile.TemporaryDirectory() as parent, contextlib.ExitStack() as stack:
        monkeypatch.setenv("XDG_RUNTIME_DIR", parent)

        def make(address, mode=0o700):
            folder = tempfile.mkdtemp(prefix="shardcall-", dir=parent)
            os.chmod(folder, mode)
            return stack.enter_context(contextlib.closing(Exchange(folder, address)))

        yield make


def refusing_all_but(server, abort, good, refused=lambda: None):
    """Has a server refuse calls that do not bring this token."""

    def check(context):
        if dict(context.invocation_metadata()).get("authorization") != f"Bearer {good}":
            refused()
            abort(context, grpc.StatusCode.UNAUTHENTICATED, "TOKEN_REQUIRED")

    server.before_calls(check)


def shown(server):
    return server.metadata[-1].get("authorization")


def test_an_explicit_token_precedes_that_of_the_environment_and_the_file(server, user_token, monkeypatch):
    monkeypatch.setenv("SHARDCALL_TOKEN", VARIABLE)
    with shardcall.connect(server.address, token=EXPLICIT) as client:
        client.call("echo", 1.0)
        client.call("echo", np.zeros(2**18))
        client.plan("echo", 1.0)
    with shardcall.connect(server.address) as client:
        client.call("echo", 1.0)
    assert server.requests[1] == "stream"
    tokens = [metadata["authorization"] for metadata in server.metadata]
    assert tokens == [f"Bearer {token}" for token in (EXPLICIT, EXPLICIT, EXPLICIT, VARIABLE)]


def test_then_that_of_this_users_file_which_only_the_private_socket_is_shown(server, user_token, exchange):
    private = exchange(server.address)
    with shardcall.connect(server.address) as client:
        client.call("echo", 1.0)
        client.call("echo", np.zeros(2**18))
    assert private.shown == [user_token]
    assert [brought["authorization"] for brought in server.metadata] == [f"Bearer {private.session}"] * 2


def test_no_token_goes_where_no_private_socket_is(server, user_token, exchange):
    exchange("localhost:1")
    exchange(server.address).close()
    with shardcall.connect(server.address) as client:
        client.call("echo", 1.0)
        assert shown(server) is None
        advice = f"no server of this user on this machine that reads token files listens at {server.address}"
        assert advice in transport_of(client).servers.token.advice
    token = find_token(REMOTE, None, encrypted=True)
    assert token.show(60) == ""
    assert "only for servers on this machine" in token.advice


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_no_token_goes_to_a_socket_in_a_folder_that_others_may_enter(server, user_token, exchange, mode):
    private = exchange(server.address, mode)
    with shardcall.connect(server.address) as client:
        client.call("echo", 1.0)
    assert shown(server) is None
    assert private.shown == []


@pytest.mark.parametrize("operand", [1.0, np.zeros(2**18)])
def test_a_server_that_was_started_again_is_asked_for_another_session(server, user_token, exchange, abort, operand):
    private = exchange(server.address)
    with shardcall.connect(server.address, retries=False) as client:
        private.session = "another-" + "a" * 20
        refusing_all_but(server, abort, private.session)
        client.call("echo", operand)
        assert (len(server.requests), private.shown) == (2, [user_token, user_token])


def test_threads_that_are_refused_together_all_go_on_with_the_next_session(server, user_token, exchange, abort):
    private, refused = exchange(server.address), threading.Barrier(4)
    with shardcall.connect(server.address, retries=False) as client:
        private.session = "another-" + "a" * 20
        refusing_all_but(server, abort, private.session, lambda: refused.wait(60))
        assert in_threads(4, lambda i: client.call("echo", float(i)).array.item()) == [0.0, 1.0, 2.0, 3.0]


def test_a_session_that_starts_later_is_discovered(server, user_token, exchange, abort):
    with shardcall.connect(server.address) as client:
        private = exchange(server.address)
        refusing_all_but(server, abort, private.session)
        client.call("echo", 1.0)
    assert shown(server) == f"Bearer {private.session}"


def test_a_server_that_refuses_the_session_that_it_gave_is_not_asked_repeatedly(server, user_token, exchange, abort):
    private = exchange(server.address)
    with shardcall.connect(server.address) as client:
        refusing_all_but(server, abort, "")
        with pytest.raises(shardcall.AccessDeniedError, match="this client showed a session token"):
            client.call("echo", 1.0)
    assert (len(server.requests), private.shown) == (1, [user_token, user_token])


def test_after_a_lost_connection_the_session_is_asked_for_anew(server, user_token, exchange):
    private = exchange(server.address)

    def gone(request, context):
        server.execute, private.session = echo, "another-" + "a" * 20
        context.abort(grpc.StatusCode.UNAVAILABLE, "")

    with shardcall.connect(server.address) as client:
        server.execute = gone
        client.call("echo", 1.0)
    assert shown(server) == f"Bearer {private.session}"


def test_an_unknown_token_is_reported(user_token, exchange):
    exchange("localhost:8470").session = ""
    token = find_token(LOCAL, None, encrypted=True)
    assert token.show(60) == ""
    assert f"does not know the one in the token file {os.environ['SHARDCALL_TOKEN_FILE']}" in token.advice


def test_commands_of_all_scopes_show_the_other_token(user_token, exchange):
    path, private = os.environ["SHARDCALL_TOKEN_FILE"], exchange("localhost:8470")
    find_token(LOCAL, None, encrypted=True, admin=True).show(60)
    token_file.create_missing(path)
    for admin in (True, False):
        find_token(LOCAL, None, encrypted=True, admin=admin).show(60)
    assert private.shown == [user_token, token_file.read(token_file.admin_path(path))[0].token, user_token]


def test_a_socket_has_the_name_of_the_address_that_it_is_for(tmp_path):
    def name(address):
        return socket_name(parse_address(address))

    assert name("LocalHost:8470") == "localhost:8470"
    assert name("[0:0::1]:8470") == name("[::1]:8470") == "::1:8470"
    assert name("[::ffff:127.0.0.1]:8470") == "127.0.0.1:8470"
    (tmp_path / "link").symlink_to(tmp_path)
    assert name(f"unix:{tmp_path}/s") == name(f"unix://{tmp_path}/link/s") != name(f"unix:{tmp_path}/t")
    assert max(map(len, (name("localhost:65535"), name(f"unix:{tmp_path}/s")))) <= LONGEST_NAME


def test_an_unusable_file_is_reported_only_after_the_server_refuses(server, user_token, abort):
    path = os.environ["SHARDCALL_TOKEN_FILE"]
    os.chmod(path, 0o644)
    with shardcall.connect(server.address) as client:
        client.call("echo", 1.0)
        assert shown(server) is None
        server.execute = lambda _, context: abort(context, grpc.StatusCode.UNAUTHENTICATED, "TOKEN_REQUIRED")
        with pytest.raises(shardcall.AccessDeniedError, match=f"this client found none: .*chmod 600 {path}"):
            client.call("echo", 1.0)


def test_a_refusal_says_what_was_shown_and_never_the_token(server, user_token, exchange, monkeypatch, abort):
    exchange(server.address)
    server.info = lambda _, context: abort(context, grpc.StatusCode.UNAUTHENTICATED, "TOKEN_REQUIRED")
    for token, file, says in (
        (EXPLICIT, None, "showed the token that it was given"),
        (None, None, f"showed a session token, for the one of {token_file.user_name()} in the token file"),
        (None, "/nonexistent", "SHARDCALL_TOKEN is not set, and there is no token file /nonexistent"),
    ):
        if file:
            monkeypatch.setenv("SHARDCALL_TOKEN_FILE", file)
        with pytest.raises(shardcall.AccessDeniedError, match=says) as caught:
            shardcall.connect(server.address, token=token)
        text = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
        assert EXPLICIT not in text
        assert user_token not in text


@rows(
    ("wrong", "why"),
    [
        ("", "it is empty"),
        ("short", "it is too short, 5 characters"),
        ("l" * 513, "it is too long, 513 characters"),
        ("white space in the token", "character 6 of 24, white space, is not allowed"),
        ("line\nbreak-0123456789", "character 5 of 21, white space, is not allowed"),
        ("0123456789abcdef\u00e9", "character 17 of 17 is not allowed"),
        (7, "it is of type int, and no string"),
        (b"0" * 32, "it is of type bytes, and no string"),
    ],
)
def test_an_invalid_token_is_refused_and_not_shown(wrong, why, monkeypatch):
    with pytest.raises(shardcall.InvalidRequestError, match=rf"token is no token: {why}; give 16 to 512") as caught:
        shardcall.connect("localhost:1", token=wrong)
    assert wrong in ("", "short", 7) or str(wrong) not in str(caught.value)
    monkeypatch.setenv("SHARDCALL_TOKEN", "to short")
    with pytest.raises(shardcall.InvalidRequestError, match=r"SHARDCALL_TOKEN is no token"):
        shardcall.connect("localhost:1")


def test_no_repr_of_a_client_contains_the_token(server):
    with shardcall.connect(server.address, token=EXPLICIT) as client:
        things = [client, transport_of(client), transport_of(client).servers.token, Token(EXPLICIT, "x")]
        assert not any(EXPLICIT in repr(thing) + str(thing) for thing in things)


@pytest.mark.parametrize("by_environment", [True, False])
def test_a_token_goes_unencrypted_to_another_machine_only_where_that_was_asked_for(by_environment, monkeypatch):
    if by_environment:
        monkeypatch.setenv("SHARDCALL_TOKEN", EXPLICIT)
    passed = None if by_environment else EXPLICIT
    advice = r"go unencrypted to .*ca_certificate=.*tls=False"
    with pytest.raises(shardcall.InvalidParameterError, match=advice) as caught:
        find_token(REMOTE, passed, encrypted=False)
    assert EXPLICIT not in str(caught.value)
    assert find_token(LOCAL, passed, encrypted=False).show(60) == EXPLICIT
    with pytest.raises(shardcall.InvalidParameterError, match="unencrypted"):
        shardcall.connect("gpu1.example.org:8470", token=passed)
