"""Which token a client shows, to whom, and what it says where that does not do."""

import os
import socket
import traceback

import grpc
import numpy as np
import pytest

import shardcall
from shardcall.access import listeners, token_file
from shardcall.access.addresses import parse_address
from shardcall.access.token import Token, find_token
from shardcall.access.token_file import Entry

GIVEN, VARIABLE = "given-" + "g" * 20, "variable-" + "v" * 20
LOCAL, REMOTE = parse_address("localhost:8470"), parse_address("gpu.example.org:8470")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The token of this user's own file, and no other place for one."""
    entry = Entry.make(token_file.own_name(), ["run"])
    path = tmp_path / "token"
    token_file.create(str(path), [Entry.make("other", ["run"]), entry])
    monkeypatch.setenv("SHARDCALL_TOKEN_FILE", str(path))
    monkeypatch.delenv("SHARDCALL_TOKEN", raising=False)
    return entry.token


@pytest.fixture
def listening(monkeypatch):
    """Says whether this user's programs listen at an address; they do."""
    answers = {"own": True, "asked": 0}

    def is_own(address):
        answers["asked"] += 1
        return answers["own"]

    monkeypatch.setattr(listeners, "is_own", is_own)
    return answers


def shown(server):
    return server.metadata[-1].get("authorization")


def test_the_token_that_is_given_comes_first(server, own, monkeypatch):
    monkeypatch.setenv("SHARDCALL_TOKEN", VARIABLE)
    with shardcall.connect(server.address, token=GIVEN) as client:
        client.call("echo", 1.0)
        assert shown(server) == f"Bearer {GIVEN}"
        client.call("echo", np.zeros(2**18))
        assert server.requests[-1] == "stream"
        assert shown(server) == f"Bearer {GIVEN}"
        client.plan("echo", 1.0)
        assert shown(server) == f"Bearer {GIVEN}"


def test_then_that_of_the_environment(server, own, monkeypatch):
    monkeypatch.setenv("SHARDCALL_TOKEN", VARIABLE)
    with shardcall.connect(server.address) as client:
        client.call("echo", 1.0)
    assert shown(server) == f"Bearer {VARIABLE}"


def test_then_that_of_this_users_file(server, own):
    with shardcall.connect(server.address) as client:
        client.call("echo", 1.0)
    assert shown(server) == f"Bearer {own}"


def test_the_files_token_stays_on_this_machine(own, listening):
    assert find_token(LOCAL, None, encrypted=True).show() == own
    assert find_token(REMOTE, None, encrypted=True).show() == ""
    assert find_token(REMOTE, GIVEN, encrypted=True).show() == GIVEN


def test_the_files_token_is_shown_to_this_users_programs_alone(own, listening):
    listening["own"] = False
    token = find_token(LOCAL, None, encrypted=True)
    assert token.show() == ""
    assert "not this user's program" in token.told
    assert find_token(LOCAL, GIVEN, encrypted=True).show() == GIVEN


def test_who_listens_is_asked_anew_after_a_while(own, listening, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("shardcall.access.token.time.monotonic", lambda: now[0])
    token = find_token(LOCAL, None, encrypted=True)
    for _ in range(100):
        assert token.show() == own
    assert listening["asked"] == 1
    listening["own"] = False
    now[0] += 1.1
    assert token.show() == ""
    listening["own"] = True
    assert token.show() == own


def test_an_unusable_file_is_told_only_where_the_server_refuses(server, own, abort):
    path = os.environ["SHARDCALL_TOKEN_FILE"]
    os.chmod(path, 0o644)
    with shardcall.connect(server.address) as client:
        client.call("echo", 1.0)
        assert shown(server) is None
        server.execute = lambda _, context: abort(context, grpc.StatusCode.UNAUTHENTICATED, "TOKEN_REQUIRED")
        with pytest.raises(shardcall.AccessDeniedError, match=f"this client found none: .*chmod 600 {path}"):
            client.call("echo", 1.0)


def test_a_refusal_says_what_was_shown_and_never_the_token(server, own, monkeypatch, abort):
    def refuse(*_):
        server.info = lambda _, context: abort(context, grpc.StatusCode.UNAUTHENTICATED, "TOKEN_REQUIRED")

    refuse()
    said = {}
    for way, token in (("given", GIVEN), ("file", None)):
        with pytest.raises(shardcall.AccessDeniedError) as caught:
            shardcall.connect(server.address, token=token)
        said[way] = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    monkeypatch.setenv("SHARDCALL_TOKEN_FILE", "/nonexistent/token")
    with pytest.raises(shardcall.AccessDeniedError) as caught:
        shardcall.connect(server.address)
    said["nothing"] = str(caught.value)
    assert "showed the token that it was given" in said["given"]
    assert f"showed the one of {token_file.own_name()} in the token file" in said["file"]
    assert "SHARDCALL_TOKEN is not set, and there is no token file /nonexistent/token" in said["nothing"]
    assert not any(token in text for token in (GIVEN, own) for text in said.values())


@pytest.mark.parametrize(
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
def test_what_is_no_token_is_refused_and_not_told(wrong, why):
    with pytest.raises(shardcall.InvalidRequestError, match=rf"token is no token: {why}; give 16 to 512") as caught:
        shardcall.connect("localhost:1", token=wrong)
    assert wrong in ("", "short", 7) or str(wrong) not in str(caught.value)


def test_a_variable_that_is_no_token_is_named(monkeypatch):
    monkeypatch.setenv("SHARDCALL_TOKEN", "to short")
    with pytest.raises(shardcall.InvalidRequestError, match=r"SHARDCALL_TOKEN is no token"):
        shardcall.connect("localhost:1")


def test_no_repr_of_a_client_tells_the_token(server):
    with shardcall.connect(server.address, token=GIVEN) as client:
        things = [client, client._transport, client._transport._token, Token(GIVEN, "x")]
        assert not any(GIVEN in repr(thing) + str(thing) for thing in things)


@pytest.mark.parametrize(
    ("family", "host"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::")],
)
def test_a_listener_of_this_user_is_its_own(family, host):
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind((host, 0))
        port = listener.getsockname()[1]
        assert not listeners.is_own(parse_address(f"localhost:{port}"))
        listener.listen()
        assert listeners.is_own(parse_address(f"localhost:{port}"))
        assert not listeners.is_own(parse_address(f"example.org:{port}"))


def test_a_socket_file_is_its_owners(tmp_path):
    path = tmp_path / "socket"
    assert not listeners.is_own(parse_address(f"unix:{path}"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert listeners.is_own(parse_address(f"unix:{path}"))
        assert listeners.is_own(parse_address(f"unix://{path}"))
        if os.geteuid() == 0:
            os.chown(path, 65534, -1)
            assert not listeners.is_own(parse_address(f"unix:{path}"))


@pytest.mark.parametrize("by_environment", [True, False])
def test_a_token_goes_unencrypted_to_another_machine_only_where_that_was_asked_for(by_environment, monkeypatch):
    if by_environment:
        monkeypatch.setenv("SHARDCALL_TOKEN", GIVEN)
    given = None if by_environment else GIVEN
    with pytest.raises(
        shardcall.InvalidParameterError, match=r"go unencrypted to .*ca_certificate=.*tls=False"
    ) as caught:
        find_token(REMOTE, given, encrypted=False)
    assert GIVEN not in str(caught.value)
    assert find_token(LOCAL, given, encrypted=False).show() == GIVEN
    with pytest.raises(shardcall.InvalidParameterError, match="unencrypted"):
        shardcall.connect("gpu1.example.org:8470", token=given)
