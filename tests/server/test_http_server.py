"""The HTTP server's port: every client that reaches it is served, slow ones hold nothing, and the page is guarded."""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest
from end_to_end.processes import wait_for
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from rows import rows

from shardcall_core.wire import token_file
from shardcall_core.wire.token_file import Entry
from shardcall_server.frontend.access.tokens import Tokens
from shardcall_server.frontend.server import FrontEnd
from shardcall_server.frontend.web.connections import Connections
from shardcall_server.frontend.web.http_server import HttpServer
from shardcall_server.frontend.web.page_access import KEY_S, SESSION_S, PageAccess
from shardcall_server.frontend.web.site import LivePage, Site
from shardcall_server.frontend.web.viewers import Viewers

_CONNECTIONS = 20  # more than are served at once
ADMIN, RUNNER = "a" * 32, "r" * 32
AS_ADMIN = {"Authorization": f"Bearer {ADMIN}"}


class State:
    """The sources of the page and the probes.

    Attributes:
        reason: why the server is not ready.
        snapshots: the number of snapshots so far.
        tokens: the tokens of the server.
        access: the access to the page.
        key: the key of its link.
    """

    reason = ""
    snapshots = 0
    text: object = "<b>&"
    now = 1000.0

    def __init__(self) -> None:
        self.tokens = Tokens([Entry("root", token_file.SCOPES, ADMIN), Entry("ada", ("run", "arrays"), RUNNER)])
        self.access = PageAccess(self.tokens, lambda: self.now)
        self.key = self.access.issue_key()

    def snapshot(self) -> dict[str, object]:
        self.snapshots += 1
        return {"number": self.snapshots, "name": self.text}


def site(state: State | None = None, registry: CollectorRegistry | None = None, viewers: int = 2) -> Site:
    page = LivePage(state.access, state.snapshot, viewers, interval_s=0.02) if state else None
    return Site(registry or CollectorRegistry(), lambda: state.reason if state else "", page)


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def page(state):
    """The address of a server with the page."""
    with closing(HttpServer("127.0.0.1", 0, site(state))) as server:
        yield server.address


class Answer(NamedTuple):
    status: int
    text: str
    headers: Mapping[str, str]


def response_to(address: str, path: str, method: str = "GET", body: object = None, **headers: str) -> Answer:
    """Returns an answer, of a stream of events without its text."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(HTTPConnection(address, timeout=30)) as connection:
        connection.request(method, path, data, names)
        with connection.getresponse() as response:
            is_stream = response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            return Answer(response.status, "" if is_stream else response.read().decode(), response.headers)


def cookie_of(address: str, **body: str) -> str:
    response = response_to(address, "/session", "POST", body)
    assert response.status == 204
    return response.headers["Set-Cookie"].partition(";")[0]


@contextmanager
def watching(address: str, **headers: str):
    """A response of the stream of events, which is closed with its connection."""
    with closing(HTTPConnection(address, timeout=30)) as connection:
        connection.request("GET", "/events", headers=headers)
        with connection.getresponse() as response:
            yield response


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def read_all(connection: socket.socket) -> int:
    """Returns the number of bytes until the other end has closed."""
    count = 0
    with suppress(ConnectionResetError):
        while data := connection.recv(1 << 20):
            count += len(data)
    return count


def test_silent_connections_do_not_block_requests():
    registry = CollectorRegistry()
    Counter("asked", "Questions.", registry=registry)
    served = site(registry=registry)
    with closing(HttpServer("127.0.0.1", 0, served, timeout_s=600.0)) as server, ExitStack() as stack:
        silent = [stack.enter_context(connected(server.address)) for _ in range(_CONNECTIONS)]
        assert "asked_total" in response_to(server.address, "/metrics").text
        assert [read_all(one) for one in silent[: _CONNECTIONS - 15]] == [0] * (_CONNECTIONS - 15)  # hung up on
    with closing(HttpServer("127.0.0.1", 0, served)) as server:
        for _ in range(_CONNECTIONS):  # a slot is free again with its connection
            assert "asked_total" in response_to(server.address, "/metrics").text


def test_requests_for_metrics_while_some_are_collected_share_the_next():
    registry, collections, may_end = CollectorRegistry(), [], threading.Event()

    class Slow(Collector):
        def collect(self):
            collections.append(time.monotonic())
            may_end.wait(60)
            return [GaugeMetricFamily("asked", "Times.", value=len(collections))]

        def describe(self):
            return []

    registry.register(Slow())
    with closing(HttpServer("127.0.0.1", 0, site(registry=registry))) as server, ExitStack() as stack:
        asking = [stack.enter_context(connected(server.address)) for _ in range(10)]
        for one in asking:
            one.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        wait_for(lambda: bool(collections))
        assert response_to(server.address, "/healthz")[:2] == (200, "ok\n")  # the requests before it were read
        may_end.set()
        for one in asking:
            with one.makefile("rb") as answer:
                assert answer.readline() == b"HTTP/1.1 200 OK\r\n"
        assert len(collections) <= 2
        response_to(server.address, "/metrics")
    assert collections[-1] - collections[-2] > 0.4  # at most two a second


def test_a_request_that_does_not_come_to_an_end_is_ended():
    with closing(HttpServer("127.0.0.1", 0, site(), timeout_s=0.2)) as server, connected(server.address) as slow:
        slow.sendall(b"GET /metrics HT")
        assert read_all(slow) == 0


@rows(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET /" + b"x" * (64 << 10),
        b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: x\r\n" % i for i in range(9000)),
    ],
)
def test_garbage_is_refused_and_harms_nothing(page, sent):
    with connected(page) as garbage:
        try:
            garbage.sendall(sent)
            answer = garbage.recv(4096)
        except ConnectionError:  # it was closed while more came
            answer = b""
        assert answer[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 404")
    assert response_to(page, "/healthz")[:2] == (200, "ok\n")


@rows(
    ("listens", "asked", "probes", "page_status"),
    [
        ("127.0.0.1", "localhost:9470", 200, 200),
        ("127.0.0.1", "127.0.0.1", 200, 200),
        ("127.0.0.1", "[::1]:9470", 200, 200),
        ("127.0.0.1", "rebound.example.org:9470", 421, 421),
        ("127.0.0.1", "", 421, 421),
        ("127.0.0.1", "[", 421, 421),
        ("0.0.0.0", "localhost:9470", 200, 200),
        ("0.0.0.0", "server.example.org:9470", 200, 421),  # the page is for names of this machine only
    ],
)
def test_on_loopback_answers_are_for_loopbacks_names_only(state, listens, asked, probes, page_status):
    with closing(HttpServer(listens, 0, site(state))) as server:
        address = f"127.0.0.1:{server.address.rpartition(':')[2]}"
        for path in ("/metrics", "/healthz", "/readyz"):
            assert response_to(address, path, Host=asked, **AS_ADMIN).status == probes
        for path in ("/", "/events", "/page.js"):
            assert response_to(address, path, Host=asked, **AS_ADMIN).status == page_status


def test_ready_has_the_reason_and_health_does_not_depend_on_it(page, state):
    assert response_to(page, "/readyz")[:2] == (200, "ready\n")
    state.reason = "the mesh starts again"
    assert response_to(page, "/readyz")[:2] == (503, "not ready: the mesh starts again\n")
    assert response_to(page, "/healthz")[:2] == (200, "ok\n")


NO_ADMIN = [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {RUNNER}"}, {"Cookie": "a=b"}]
OTHER_SITES = [
    *({"Origin": origin} for origin in ("http://evil.example.org", "null")),
    *({"Sec_Fetch_Site": site} for site in ("cross-site", "same-site")),  # the latter is another port of this host
]


@rows(
    ("method", "path", "headers", "body", "status", "says"),
    [
        ("GET", "/nowhere", AS_ADMIN, None, 404, ""),
        ("GET", "/../http_server.py", AS_ADMIN, None, 404, ""),
        ("POST", "/metrics", AS_ADMIN, None, 405, ""),
        ("GET", "/session", AS_ADMIN, None, 405, ""),
        ("HEAD", "/events", AS_ADMIN, None, 405, ""),
        *(("GET", "/", headers, None, 401, "Admin token") for headers in NO_ADMIN),
        *(("GET", "/events", headers, None, 401, "") for headers in NO_ADMIN),
        *(("GET", "/events", {**AS_ADMIN, **headers}, None, 403, "ssh -L") for headers in OTHER_SITES),
        *(("POST", "/session", headers, {"token": ADMIN}, 403, "") for headers in OTHER_SITES),
        ("POST", "/session", {"Sec_Fetch_Site": "same-origin"}, {"token": ADMIN}, 204, ""),
        *(("POST", "/session", {}, body, 400, "JSON object") for body in (b"", b"[]", b"{", b'"key"', b"\xff")),
        ("POST", "/session", {}, b"[" * 4000, 400, "JSON object"),
        ("POST", "/session", {}, b"x" * 5000, 413, ""),
        *(("POST", "/session", {}, body, 401, "") for body in ({"key": 1}, {"key": "ü"}, {"token": RUNNER})),
    ],
)
def test_other_methods_paths_sites_and_bodies_and_callers_without_an_admin_token_are_refused(
    page, state, method, path, headers, body, status, says
):
    answer = response_to(page, path, method, body, **headers)
    assert answer.status == status
    assert says in answer.text
    assert state.snapshots == 0


def test_without_the_page_there_is_none():
    with closing(HttpServer("127.0.0.1", 0, site())) as server:
        for path in ("/", "/events", "/page.js"):
            assert response_to(server.address, path)[:2] == (404, "Not Found: the metrics are at /metrics.\n")


def test_an_admin_token_opens_the_page_and_a_key_in_its_address_does_not(page, state):
    assert response_to(page, f"/?key={state.key}").status == 401
    assert response_to(page, "/", **AS_ADMIN).status == 200
    for more in ({}, {"Sec_Fetch_Site": "same-origin"}):
        with watching(page, Authorization=f"bearer {ADMIN}", **more) as events:
            assert (events.status, events.headers["Connection"]) == (200, "close")


def test_the_link_is_valid_once(page, state):
    assert response_to(page, "/session", "POST", {"key": f"{state.key}x"}).status == 401
    cookie = cookie_of(page, key=state.key)
    status, text = response_to(page, "/session", "POST", {"key": state.key})[:2]
    assert status == 401
    assert "was used" in text
    assert response_to(page, "/", Cookie=cookie).status == 200
    assert response_to(page, "/", Cookie=f"{cookie}x").status == 401
    state.now += SESSION_S
    assert response_to(page, "/", Cookie=cookie).status == 401


def test_the_link_expires_and_there_is_none_that_was_not_issued(page, state):
    state.now += KEY_S
    assert response_to(page, "/session", "POST", {"key": state.key}).status == 401
    earlier, state.key = state.access.issue_key(), state.access.issue_key()
    assert response_to(page, "/session", "POST", {"key": earlier}).status == 401
    assert cookie_of(page, key=state.key)
    assert PageAccess(state.tokens).exchange_key("") is None


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("has_tokens", [False, True])
def test_the_key_of_the_link_is_for_a_person_alone(state, monkeypatch, capsys, terminal, has_tokens):
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setattr(socket, "gethostname", lambda: "server.example.org")
    front_end: Any = SimpleNamespace(
        _page_access=state.access,
        _http_server=SimpleNamespace(address="0.0.0.0:9470"),
        _tokens=state.tokens if has_tokens else None,
    )
    FrontEnd.introduce_page(front_end)
    said = capsys.readouterr().out
    assert "http://server.example.org:9470/" in said
    assert ("/#" in said) is (terminal or not has_tokens)
    assert ("admin" in said) is has_tokens


def test_a_cookie_is_for_this_page_alone_and_ends_with_its_token(page, state):
    cookie, *attributes = response_to(page, "/session", "POST", {"token": ADMIN}).headers["Set-Cookie"].split("; ")
    assert cookie.startswith(f"shardcall-page-{page.rpartition(':')[2]}=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(attributes)
    assert state.tokens.find(cookie.partition("=")[2]) is None
    with watching(page, Cookie=cookie) as events:
        assert events.readline().startswith(b"data: ")
        state.tokens.replace([Entry("root", token_file.SCOPES, "b" * 32)])
        while events.readline():  # until the stream ends
            pass
    assert response_to(page, "/", Cookie=cookie).status == 401


def test_servers_behind_several_ports_of_a_host_have_separate_cookies(page):
    names = set()
    for host in ("localhost:9001", "localhost:9002", "localhost:x", "localhost"):
        response = response_to(page, "/session", "POST", {"token": ADMIN}, Host=host)
        cookie = response.headers["Set-Cookie"].partition(";")[0]
        assert response_to(page, "/", Cookie=cookie, Host=host).status == 200
        names.add(cookie.partition("=")[0])
    assert names == {f"shardcall-page-{number}" for number in ("9001", "9002", page.rpartition(":")[2])}


def test_a_connection_is_limited_again_after_its_stream():
    aborted: list[str] = []

    async def stream() -> list[str]:
        transport = SimpleNamespace(abort=lambda: aborted.append("late"))
        connection = Mock(client=("127.0.0.1", 1), transport=transport, loop=asyncio.get_running_loop())
        connections = Connections(0.05, 1)
        connections.add(connection)
        connections.lift_limits(connection.client)
        await asyncio.sleep(0.2)
        during = list(aborted)
        connections.restore_limits(connection.client)
        await asyncio.sleep(0.2)
        return during

    assert asyncio.run(stream()) == []
    assert aborted == ["late"]


def test_sessions_are_limited_and_the_oldest_ends(page):
    first = cookie_of(page, token=ADMIN)
    for _ in range(32):
        last = cookie_of(page, token=ADMIN)
    assert response_to(page, "/", Cookie=first).status == 401
    assert response_to(page, "/", Cookie=last).status == 200


def test_every_answer_of_the_page_forbids_frames_other_scripts_and_requests(page):
    for path in ("/", "/page.js", "/page.css", "/icon.svg", "/events", "/nowhere"):
        headers = response_to(page, path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        guards = {"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
        assert {name: headers[name] for name in guards} == guards


def test_the_files_of_the_page_ask_no_other_host_and_set_no_html(page):
    files = {path: response_to(page, path, **AS_ADMIN).text for path in ("/", "/page.js", "/page.css")}
    files["sign in"] = response_to(page, "/").text
    for text in files.values():
        assert "//" not in text.replace("// ", "").replace("http://www.w3.org/2000/svg", "")
        unsafe = ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", " onclick", " style=")
        assert not [name for name in unsafe if name in text]


def test_events_are_json_of_one_line_and_nothing_is_computed_while_nobody_watches(page, state):
    assert response_to(page, "/", **AS_ADMIN).status == 200
    assert state.snapshots == 0
    state.text = "</script>\n\ndata: <img src=x onerror=alert(1)>\u2028"
    with watching(page, **AS_ADMIN) as events:
        assert events.headers["Content-Type"].startswith("text/event-stream")
        line = events.readline().decode()
        assert json.loads(line.removeprefix("data: "))["name"] == state.text
        assert events.readline() == b"\n"
        following = json.loads(events.readline().decode().removeprefix("data: "))
    assert following["number"] == 2

    def is_quiet() -> bool:
        before = state.snapshots
        time.sleep(0.1)
        return state.snapshots == before

    wait_for(is_quiet)


def test_viewers_are_limited_share_a_snapshot_and_leave_a_free_slot(page):
    with watching(page, **AS_ADMIN) as one, watching(page, **AS_ADMIN) as other:
        texts = [[stream.readline() for _ in range(9)] for stream in (one, other)]
        status, text = response_to(page, "/events", **AS_ADMIN)[:2]
        assert status == 503
        assert "2 browsers watch this page, the maximum" in text
        assert response_to(page, "/healthz")[:2] == (200, "ok\n")
    wait_for(lambda: response_to(page, "/events", **AS_ADMIN).status == 200)
    numbers = [{json.loads(line[6:])["number"] for line in lines if line != b"\n"} for lines in texts]
    assert len(numbers[0] & numbers[1]) >= 2


def test_a_viewer_that_does_not_read_is_dropped_and_others_are_not(page, state):
    state.text = "x" * (1 << 20)
    host, _, port = page.rpartition(":")
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((host, int(port)))
        slow.settimeout(60)
        slow.sendall(f"GET /events HTTP/1.1\r\nHost: {page}\r\nAuthorization: Bearer {ADMIN}\r\n\r\n".encode())
        with watching(page, **AS_ADMIN) as events:
            assert all(events.readline() for _ in range(60))
        assert read_all(slow) > 0


def test_an_error_of_the_snapshot_ends_the_stream_and_nothing_else(page, state):
    state.text = object()  # no JSON
    with watching(page, **AS_ADMIN) as events:
        assert events.read() == b""
    assert response_to(page, "/healthz")[:2] == (200, "ok\n")


def test_an_error_of_the_snapshot_drops_a_viewer_that_has_not_read_the_earlier_ones(state):
    snapshots: list[dict[str, object]] = [{}] * 4  # the one that is read, and those that may wait

    async def watch() -> None:
        with ThreadPoolExecutor(1) as pool:
            dropped = asyncio.Event()
            page = LivePage(state.access, snapshots.pop, 1, interval_s=0.01)
            events = Viewers(page, pool).events(lambda: True, dropped.set)
            assert await anext(events)
            await asyncio.wait_for(dropped.wait(), 30)
            await events.aclose()

    asyncio.run(watch())
    assert snapshots == []


def threads_left() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("metrics")]


def test_a_server_stops_at_once_although_somebody_watches_and_leaves_no_thread(state):
    HttpServer("127.0.0.1", 0, site(state)).close()
    wait_for(lambda: not threads_left())
    server = HttpServer("127.0.0.1", 0, site(state))
    with watching(server.address, **AS_ADMIN) as events:
        events.readline()
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < 2
        with pytest.raises(http.client.IncompleteRead):
            events.read()
    assert not threads_left()
