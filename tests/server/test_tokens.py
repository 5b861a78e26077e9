"""Callers: principals of tokens, tokens in the settings, refusals, and what ends with its token."""

import errno
import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import grpc
import pytest
import structlog
from end_to_end.processes import wait_for
from server.conftest import refused
from server.fake_calls import CountingBudget

from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc
from shardcall_core.call_error import CallError, Reason
from shardcall_core.wire import token_file
from shardcall_core.wire.token_fields import PrincipalLimits, TokenFields, parse_time
from shardcall_core.wire.token_file import Entry
from shardcall_server.frontend.access import token_watch, tokens
from shardcall_server.frontend.access.floods import FloodGuard
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.principals import Principal, Scope
from shardcall_server.frontend.access.token_watch import ABSENT_S, RecentPrincipals, TokenWatch
from shardcall_server.frontend.access.tokens import FileTokens, Tokens, open_tokens
from shardcall_server.frontend.inference.model_table import Model, ModelTable
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.observability.call_recorder import CallRecorder
from shardcall_server.frontend.observability.metrics import Metrics
from shardcall_server.frontend.rpc.admission import Admission
from shardcall_server.frontend.rpc.call_threads import CallThreads
from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.frontend.rpc.processor_shares import ProcessorShares
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.server import FrontEnd
from shardcall_server.frontend.services.call_streams import CallStreams
from shardcall_server.frontend.services.interceptor import CallInterceptor, Charges, TimeLimits
from shardcall_server.frontend.services.request_streams import RequestStreams
from shardcall_server.settings import SettingsError
from shardcall_server.settings_sources import load_settings

ALICE, BOB = Entry.make("alice", ["run"]), Entry.make("bob", ["run", "admin"])
EXECUTE = "/shardcall.v1.KernelService/Execute"


def bearing(token: str) -> tuple[str, str]:
    return "authorization", f"Bearer {token}"


def admit(tokens: Tokens | None, *metadata: tuple[str, str | bytes]):
    return Gate(tokens).admit(EXECUTE, metadata)


def test_a_token_is_its_principals_and_a_server_keeps_its_digest_alone():
    tokens = Tokens([ALICE, BOB])
    assert tokens.find(ALICE.token).name == "alice"
    assert tokens.find(BOB.token).scopes == {Scope.RUN, Scope.ADMIN}
    for other in ("", ALICE.token[:-1], ALICE.token + "x", ALICE.token.lower(), "\udcff", "alice"):
        assert tokens.find(other) is None
    assert hashlib.sha256(ALICE.token.encode()).digest() in tokens._principals
    assert ALICE.token not in repr(vars(tokens))


def test_a_scope_of_a_newer_version_is_ignored_and_reported_once():
    entries = [Entry.make("alice", ["run", "fly"]), Entry.make("bob", ["fly"])]
    with structlog.testing.capture_logs() as lines:
        tokens = Tokens(entries)
        tokens.replace(entries)
    assert [tokens.find(entry.token).scopes for entry in entries] == [{Scope.RUN}, set()]
    assert [(line["log_level"], line["scopes"]) for line in lines] == [("warning", ["fly"])]


def test_a_session_token_is_as_good_as_its_token_to_one_process_alone():
    first, second = Tokens([ALICE, BOB]), Tokens([ALICE, BOB])
    session = first.session_of(ALICE.token)
    assert token_file.is_token(session)
    assert session == first.session_of(ALICE.token)
    assert first.find(session) == first.find(ALICE.token)
    assert len({session, first.session_of(BOB.token), second.session_of(ALICE.token), ALICE.token, BOB.token}) == 5
    assert second.find(session) is None
    assert [first.session_of(unknown) for unknown in ("", "x" * 43, session)] == [""] * 3


def test_an_expired_token_is_refused_with_its_date_to_its_holder_alone():
    ada = Entry.make("ada", ["run"], TokenFields(expires=datetime(2027, 1, 1, tzinfo=UTC)))
    tokens, now = Tokens([ada, BOB]), [datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()]
    gate = Gate(tokens, lambda: now[0])
    shown = [(bearing(token),) for token in (ada.token, tokens.session_of(ada.token))]
    assert [gate.admit(EXECUTE, metadata).name for metadata in shown] == ["ada"] * 2
    now[0] += 1
    for metadata in shown:
        with refused(Reason.TOKEN_REQUIRED, r"ada, expired at 2027-01-01T00:00:00Z; .* rotate ada --expires") as caught:
            gate.admit(EXECUTE, metadata)
        assert caught.value.metadata == {"token": "expired", "expired_at": "2027-01-01T00:00:00Z"}
        assert gate.admit(EXECUTE, metadata, is_open=True).name == "ada"
    for other in ("", ada.token[:-1], ada.token + "x"):
        with pytest.raises(CallError, match="not valid on this server") as caught:
            gate.admit(EXECUTE, (bearing(other),))
        assert "expired" not in caught.value.message
    assert gate.admit(EXECUTE, (bearing(BOB.token),)).name == "bob"


def test_a_previous_token_is_valid_before_its_expiry():
    now = datetime(2026, 11, 27, tzinfo=UTC)
    old = Entry.make("ada", ["run"])
    new = old.rotate(now, timedelta(hours=1))
    tokens, seconds = Tokens([new]), [now.timestamp()]
    gate = Gate(tokens, lambda: seconds[0])
    for token in (old.token, new.token, tokens.session_of(old.token), tokens.session_of(new.token)):
        assert gate.admit(EXECUTE, (bearing(token),)).name == "ada"
    seconds[0] += 3600
    with pytest.raises(CallError, match="expired at 2026-11-27T01:00:00Z"):
        gate.admit(EXECUTE, (bearing(old.token),))
    assert gate.admit(EXECUTE, (bearing(new.token),)).name == "ada"
    with pytest.raises(CallError, match="not valid on this server"):
        Gate(Tokens([old.rotate(now, timedelta())])).admit(EXECUTE, (bearing(old.token),))


def test_the_first_line_of_a_principal_has_its_limits():
    limits = PrincipalLimits(max_bytes=1, weight=3)
    first, other = Entry.make("ada", ["run"], TokenFields(limits=limits)), Entry.make("ada", ["run", "admin"])
    tokens = Tokens([first, other, BOB])
    assert tokens.limits == {"ada": limits, "bob": PrincipalLimits()}
    assert [tokens.find(entry.token).weight for entry in (first, other, BOB)] == [3, 3, 1]


def test_a_line_that_is_invalid_leaves_the_tokens_as_they_were(tmp_path):
    path = tmp_path / "token"
    token_file.create(str(path), [ALICE])
    with closing(FileTokens(str(path))) as tokens, structlog.testing.capture_logs() as lines:
        version = tokens.version
        path.write_text(f"{BOB.line().strip()} weight=many\n")
        wait_for(lambda: lines)
        assert (tokens.find(ALICE.token).name, tokens.version) == ("alice", version)
        path.write_text(f"{BOB.line().strip()} weight=7\n")
        wait_for(lambda: tokens.version > version)
        assert tokens.find(BOB.token).weight == tokens.limits["bob"].weight == 7
    assert "line 1 of the token file" in lines[0]["error"]
    assert "weight is 'many'; give a whole number from 1 to 100" in lines[0]["error"]


def test_a_token_that_was_removed_ends_although_the_file_could_not_be_read_at_first(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens, "_POLL_S", 0.001)
    path, failures, read = tmp_path / "token", iter(range(2)), token_file.read_both

    def read_both(name: str) -> list[Entry]:
        if next(failures, None) is None:
            return read(name)
        raise OSError(errno.EMFILE, "Too many open files")

    token_file.create(str(path), [ALICE, BOB])
    token_file.create(str(tmp_path / "other"), [BOB])
    with closing(FileTokens(str(path))) as file_tokens, structlog.testing.capture_logs() as lines:
        monkeypatch.setattr(token_file, "read_both", read_both)
        (tmp_path / "other").replace(path)  # at once: of a half-written file there would be a warning, too
        wait_for(lambda: file_tokens.find(ALICE.token) is None)
        assert file_tokens.find(BOB.token).name == "bob"
    assert [line["log_level"] for line in lines if "error" in line] == ["warning"]


def test_no_token_is_required_where_authentication_is_off_and_there_is_none_without_a_file(tmp_path):
    assert open_tokens(load_settings({"auth": False, "token_file": str(tmp_path / "token")})) is None
    assert not (tmp_path / "token").exists()
    assert admit(None) is None
    with pytest.raises(SettingsError, match=r"--token-file, .* SHARDCALL_TOKEN"):
        open_tokens(load_settings({"token_file": ""}))


def test_the_token_of_the_environment_comes_before_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("SHARDCALL_TOKEN", BOB.token)
    settings = load_settings({"token_file": str(tmp_path / "token")})
    tokens = open_tokens(settings)
    assert (tokens.find(BOB.token).name, tokens.find(BOB.token).scopes) == (token_file.user_name(), set(Scope))
    assert not (tmp_path / "token").exists()
    assert BOB.token not in f"{settings!r}{settings}{settings.model_dump()}"


def test_a_settings_file_holds_no_token(tmp_path):
    config = tmp_path / "server.toml"
    config.write_text(f'token = "{BOB.token}"')
    with pytest.raises(SettingsError, match="can only be set in the environment, as SHARDCALL_TOKEN") as caught:
        load_settings({}, config)
    assert BOB.token not in str(caught.value)


def test_a_file_is_created_once_and_only_its_creator_reports_it(tmp_path):
    path = str(tmp_path / "state" / "token")
    with closing(FileTokens(path)) as first, closing(FileTokens(path)) as second:
        assert first.is_created
        assert not second.is_created
        default, admin = token_file.read_both(path)
        assert first.find(default.token) == second.find(default.token)
        assert first.find(default.token).scopes == set(map(Scope, token_file.DEFAULT_SCOPES))
        assert first.find(admin.token).scopes == set(Scope)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_generated_token_is_shown_to_a_person_alone(tmp_path, monkeypatch, capsys, terminal):
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    path = str(tmp_path / "token")
    settings = load_settings({"token_file": path})
    for first in (True, False):
        with closing(FileTokens(path)) as tokens:
            FrontEnd.introduce(SimpleNamespace(_tokens=tokens, _settings=settings), '"localhost:8470"')
        default, admin = (entry.token for entry in token_file.read_both(path))
        said = capsys.readouterr().out
        assert (path in said) is first
        assert (default in said) is (first and terminal)
        assert admin not in said


def test_a_call_without_a_token_to_a_draining_server_is_refused_as_draining():
    """The next server at the address may accept the caller, who is to retry the call."""
    unused: Any = None
    threads: Any = SimpleNamespace(refusing=lambda make: make)
    recorder: Any = SimpleNamespace(refused=lambda *_: None)
    gate = Gate(Tokens([ALICE]))
    interceptor = CallInterceptor(
        TimeLimits(60.0, 60.0), gate, unused, threads, recorder, FloodGuard(), unused, unused, Drain(), unused
    )
    call: Any = SimpleNamespace(method=EXECUTE, invocation_metadata=())
    refuse: Any = interceptor.intercept_service(lambda _: None, call)
    assert refuse("ipv4:127.0.0.1:1").code is grpc.StatusCode.UNAUTHENTICATED
    interceptor.drain.begin()
    refuse = interceptor.intercept_service(lambda _: None, call)
    assert refuse("ipv4:127.0.0.1:1").code is grpc.StatusCode.UNAVAILABLE


ADA = Entry.make("ada", ["run"], TokenFields(expires=parse_time("", "2027-01-01T00:00:00Z")))


class Watch:
    """The access of ada and bob, by a clock that the tests set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.tokens = Tokens([ADA, BOB])
        self.gate = Gate(self.tokens, lambda: self.now)

    def end(self, how: str) -> None:
        """Removes ada's token, or lets it expire."""
        if how == "removed":
            self.tokens.replace([BOB])
        else:
            self.now = 2e9

    def restore(self) -> None:
        """Has ada's token in the file again, without a time at which it expires."""
        self.tokens.replace([Entry("ada", ADA.scopes, ADA.token), BOB])


class Hashable(SimpleNamespace):
    """A part of a stream, by identity."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def test_checks_are_repeated_and_survive_one_that_fails(monkeypatch):
    monkeypatch.setattr(token_watch, "CHECK_S", 0.001)
    watch, checked = TokenWatch(), threading.Event()
    counts = iter(range(3))
    watch.add(lambda: 1 / 0)
    watch.add(lambda: next(counts, None) is None and checked.set())
    with closing(watch):
        assert checked.wait(60)


def test_the_tokens_of_call_streams_are_checked_in_the_time_that_the_contract_promises():
    """The file is read, the stream is asked to end, and is ended if its client does not read."""
    checks: list[Any] = []
    unused: Any = None
    watch: Any = SimpleNamespace(add=checks.append)
    streams: Any = CallStreams(unused, unused, unused, 1, unused, watch)
    streams._streams.add(Hashable(check_token=lambda: checks.append("checked")))
    checks.pop()()
    assert checks == ["checked"]
    assert tokens._POLL_S + 2 * token_watch.CHECK_S <= 1.0, "as call_stream.proto promises"


@pytest.mark.parametrize("how", ["removed", "expired"])
def test_a_stream_that_waits_for_a_request_ends_with_its_token(how):
    watch, cut_off = Watch(), []
    streams = RequestStreams(watch.gate)
    call: Any = Hashable(metadata=(("authorization", f"Bearer {ADA.token}"),), cut_off=cut_off.append)

    def requests():
        yield 1
        streams.check()  # while the stream waits for the second
        assert cut_off == []
        watch.end(how)
        streams.check()
        assert [error.reason for error in cut_off] == ["TOKEN_REQUIRED"]
        yield 2

    admitted = streams.admitted(requests(), call)
    assert next(admitted) == 1
    with pytest.raises(CallError, match="was removed" if how == "removed" else "expired at"):
        next(admitted)
    streams.check()
    assert len(cut_off) == 1, "it waits no longer"


def model(name: str, *, shared: bool) -> Model:
    return Model(name, "ada", [], [], [], cast(Any, None), shared, "ada", 7, b"")


def test_models_of_a_removed_principal_are_removed_and_those_of_an_expired_one_return():
    watch, budget = Watch(), CountingBudget()
    recent = RecentPrincipals(watch.gate.is_principal, lambda: watch.now)
    models = ModelTable(cast(Any, budget), watch.gate.has_valid_token)
    for name, shared in (("a", True), ("b", False)):
        models.put(model(name, shared=shared))

    def visible() -> list[str]:
        models.retain(recent.has)
        assert [bool(models.find(f"ada/{name}", "bob")) for name in ("a", "b")] == [bool(models.visible("bob")), False]
        return [item.name for item in models.visible("bob")]

    assert visible() == ["a"]
    watch.end("expired")
    assert visible() == []
    watch.restore()
    assert visible() == ["a"]
    watch.end("removed")
    for passed_s in (0.0, 0.9 * ABSENT_S):
        watch.now += passed_s
        assert visible() == []
    watch.restore()  # the file was being rewritten
    assert visible() == ["a"]
    watch.end("removed")
    for passed_s in (0.0, ABSENT_S, ABSENT_S):
        watch.now += passed_s
        assert visible() == []
    assert budget.taken == 0
    watch.tokens.replace([Entry.make("ada", ["run"]), BOB])
    assert models.visible("ada") == []


def test_without_authentication_models_stay():
    models = ModelTable(cast(Any, CountingBudget()), Gate(None).has_valid_token)
    models.put(model("a", shared=True))
    models.retain(RecentPrincipals(Gate(None).is_principal).has)
    assert len(models.visible("bob")) == 1


PATIENCE_S = 20.0  # an answer comes at once; a test that waits so long has failed
STREAM = "/shardcall.v1.KernelService/CallStream"


class Kernels:
    """A service whose methods record the names of their principals."""

    def __init__(self) -> None:
        self.principals: list[str] = []
        self.tokens_versions: list[int] = []

    def ListKernels(self, request: Any, call: ServerCall) -> kernel_service_pb2.ListKernelsResponse:
        self.principals.append(call.principal_name)
        return kernel_service_pb2.ListKernelsResponse()

    def ExecuteStream(self, requests: Iterator[Any], call: ServerCall) -> Iterator[Any]:
        self.principals.append(call.principal_name)
        yield from ()

    def CallStream(self, requests: Any, context: Any, principal: Principal, tokens_version: int) -> Iterator[bytes]:
        self.principals.append(principal.name)
        self.tokens_versions.append(tokens_version)
        yield b""

    def __getattr__(self, name: str) -> None:
        """Methods that no test calls."""


@pytest.fixture
def gate() -> Any:
    """A gate that counts the RPCs that come to it."""
    gate: Any = Gate(Tokens([ALICE, BOB]))
    gate.admit = Mock(wraps=gate.admit)
    return gate


@pytest.fixture
def kernels() -> Kernels:
    return Kernels()


@pytest.fixture
def channel(gate: Gate, kernels: Kernels) -> Iterator[grpc.Channel]:
    interceptor = CallInterceptor(
        TimeLimits(PATIENCE_S, PATIENCE_S),
        gate,
        Admission(4, 4, 4),
        CallThreads(4),
        CallRecorder(Metrics()),
        FloodGuard(),
        CountedThreads(2, 1, "stream"),
        cast(Any, None),
        Drain(),
        Charges(ProcessorShares(), MemoryBudget(1 << 30, 1 << 30)),
    )
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, interceptors=[interceptor])
        kernel_service_pb2_grpc.add_KernelServiceServicer_to_server(kernels, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with closing(grpc.insecure_channel(f"127.0.0.1:{port}")) as channel:
            yield channel
        server.stop(None).wait()


def test_an_rpc_is_admitted_once_and_its_method_gets_the_principal(channel, gate, kernels):
    stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
    for count, entry in enumerate((ALICE, BOB, ALICE), 1):
        shown: Any = {"metadata": [bearing(entry.token)], "timeout": PATIENCE_S}
        stub.ListKernels(kernel_service_pb2.ListKernelsRequest(), **shown)
        assert list(stub.ExecuteStream(iter([kernel_service_pb2.ExecuteStreamRequest()]), **shown)) == []
        assert list(channel.stream_stream(STREAM)(iter([]), **shown)) == [b""]
        assert gate.admit.call_count == 3 * count
        assert kernels.principals[-3:] == [entry.name] * 3
    assert kernels.tokens_versions == [gate.version] * 3


def test_a_refused_rpc_does_not_reach_its_method(channel, gate, kernels):
    stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
    shown: Any = {"metadata": [bearing("none")], "timeout": PATIENCE_S}
    for call in (
        lambda: stub.ListKernels(kernel_service_pb2.ListKernelsRequest(), **shown),
        lambda: list(channel.stream_stream(STREAM)(iter([]), timeout=PATIENCE_S)),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            call()
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert (gate.admit.call_count, kernels.principals) == (2, [])
