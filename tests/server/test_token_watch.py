"""Ends of call streams, streams of requests, models and regions with their token."""

import threading
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest
from server.fake_calls import CountingBudget

from shardcall_core.call_error import CallError
from shardcall_core.wire.token_fields import TokenFields, parse_time
from shardcall_core.wire.token_file import Entry
from shardcall_server.frontend.access import token_watch, tokens
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.token_watch import ABSENT_S, RecentPrincipals, TokenWatch
from shardcall_server.frontend.access.tokens import Tokens
from shardcall_server.frontend.inference.model_table import Model, ModelTable
from shardcall_server.frontend.services.call_streams import CallStreams
from shardcall_server.frontend.services.request_streams import RequestStreams

MAX_S = 1.0  # as call_stream.proto promises
ADA = Entry.make("ada", ["run"], TokenFields(expires=parse_time("", "2027-01-01T00:00:00Z")))
BOB = Entry.make("bob", ["run"])


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
    assert tokens._POLL_S + 2 * token_watch.CHECK_S <= MAX_S


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
