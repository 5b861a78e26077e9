"""The routes of the HTTP server: metrics, probes and the live page; imports Starlette."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from urllib.parse import urlsplit

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from shardcall_core.access.addresses import is_loopback
from shardcall_server.frontend.web.connections import Client, Connections
from shardcall_server.frontend.web.page_access import SESSION_S
from shardcall_server.frontend.web.site import LivePage, Site
from shardcall_server.frontend.web.viewers import Viewers

METRICS, HEALTH, READY = "/metrics", "/healthz", "/readyz"
_OPEN = frozenset({METRICS, HEALTH, READY})
_STATIC = {"/page.css": "text/css", "/page.js": "text/javascript", "/icon.svg": "image/svg+xml"}
_MAX_BODY_BYTES = 4096
_METRICS_PERIOD_S = 0.5
_EVENTS = "text/event-stream"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Application:
    """Answers requests for the site.

    On loopback it requires an IP address or the name localhost in the Host header: otherwise a web page in a browser on
    this machine could read the answers through DNS rebinding. Elsewhere only the live page does, and accepts the name
    of this machine, too.

    Args:
        site: what it serves.
        host: the address at which it is served.
        port: the port.
        pool: threads for what takes long.
        connections: the open connections.
    """

    def __init__(self, site: Site, host: str, port: int, pool: Executor, connections: Connections) -> None:
        self._is_loopback = is_loopback(host)
        self._names = {host.lower(), "localhost"} | (set() if self._is_loopback else {socket.gethostname().lower()})
        routes = [
            Route(METRICS, _Metrics(site.registry, pool).answer),
            Route(HEALTH, _health),
            Route(READY, partial(_ready, site)),
        ]
        if site.page is not None:
            routes += _PageRoutes(site.page, port, pool, connections).routes()
        self._routes = Starlette(routes=routes, exception_handlers={HTTPException: _refuse})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, and ends its connection."""
        request = Request(scope)
        if not self._is_host_allowed(request):
            response = PlainTextResponse("Use an IP address or the name localhost.\n", HTTPStatus.MISDIRECTED_REQUEST)
            await response(scope, receive, _closing(send))
            return
        try:
            await self._routes(scope, receive, _closing(send))
        except (ClientDisconnect, OSError):
            pass
        except Exception:  # uvicorn would answer, too, and write a log of its own
            structlog.get_logger().exception("an HTTP request failed unexpectedly", path=scope["path"])
            raise

    def _is_host_allowed(self, request: Request) -> bool:
        host = request.headers.get("host")
        if host is None or (request.scope["path"] in _OPEN and not self._is_loopback):  # browsers always send it
            return True
        name = ""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return True


class _Metrics:
    """The route of the metrics: a text is made at most twice a second, and all who have asked before share it."""

    def __init__(self, registry: CollectorRegistry, pool: Executor) -> None:
        self._registry = registry
        self._pool = pool
        self._making = asyncio.Lock()
        self._next: asyncio.Task[bytes] | None = None
        self._begun = -_METRICS_PERIOD_S

    async def answer(self, _: Request) -> Response:
        """Returns the metrics."""
        if self._next is None:
            self._next = asyncio.create_task(self._make())
        body = await asyncio.shield(self._next)
        return Response(body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _make(self) -> bytes:
        loop = asyncio.get_running_loop()
        async with self._making:
            await asyncio.sleep(self._begun + _METRICS_PERIOD_S - loop.time())
            self._begun = loop.time()
            self._next = None  # whoever asks from now on must see what happens from now on
            return await loop.run_in_executor(self._pool, generate_latest, self._registry)


class _PageRoutes:
    """The routes of the live page."""

    def __init__(self, page: LivePage, port: int, pool: Executor, connections: Connections) -> None:
        self._access = page.access
        self._max_viewers = page.max_viewers
        self._viewers = Viewers(page, pool)
        self._connections = connections
        self._port = port
        folder = files("shardcall_server.frontend.web") / "static"
        self._files = {name: (folder / name).read_bytes() for name in ("page.html", "sign_in.html")}
        self._static = {path: (folder / path.removeprefix("/")).read_bytes() for path in _STATIC}

    def routes(self) -> list[Route]:
        """Returns the routes."""
        events = Route("/events", self._events)
        events.methods = {"GET"}  # HEAD, which Starlette adds, would watch
        return [
            Route("/", self._page),
            *(Route(path, self._asset) for path in _STATIC),
            Route("/session", self._open_session, methods=["POST"]),
            events,
        ]

    async def _page(self, request: Request) -> Response:
        is_allowed = self._is_allowed(request)
        name, status = ("page.html", HTTPStatus.OK) if is_allowed else ("sign_in.html", HTTPStatus.UNAUTHORIZED)
        return Response(self._files[name], status, _HEADERS, "text/html")

    async def _asset(self, request: Request) -> Response:
        path = request.scope["path"]
        return Response(self._static[path], HTTPStatus.OK, _HEADERS, _STATIC[path])

    async def _open_session(self, request: Request) -> Response:
        """Exchanges the key of the link, or an admin token, for a cookie."""
        if not _is_of_this_site(request):
            raise HTTPException(HTTPStatus.FORBIDDEN, _OTHER_SITE)
        sent = await _json_object(request)
        key, token = sent.get("key"), sent.get("token")
        cookie = None
        if isinstance(key, str):
            cookie = self._access.exchange_key(key)
        elif isinstance(token, str):
            cookie = self._access.exchange_token(token)
        if cookie is None:
            raise HTTPException(HTTPStatus.UNAUTHORIZED, _NO_KEY if isinstance(key, str) else _NO_ADMIN)
        response = Response(status_code=HTTPStatus.NO_CONTENT, headers=_HEADERS)
        response.set_cookie(
            self._cookie_name(request), cookie, max_age=int(SESSION_S), httponly=True, samesite="strict"
        )
        return response

    async def _events(self, request: Request) -> Response:
        if not _is_of_this_site(request):
            raise HTTPException(HTTPStatus.FORBIDDEN, _OTHER_SITE)
        if not self._is_allowed(request):
            raise HTTPException(HTTPStatus.UNAUTHORIZED, _SIGN_IN)
        if self._viewers.are_full:
            raise HTTPException(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{self._max_viewers} browsers watch this page, the maximum; close one, or start the server with a "
                "larger --max-page-viewers.",
            )
        client = request.client
        assert client is not None, "TCP has an address"
        return StreamingResponse(self._stream(request, (client.host, client.port)), HTTPStatus.OK, _HEADERS, _EVENTS)

    async def _stream(self, request: Request, address: Client) -> AsyncIterator[bytes]:
        events = self._viewers.events(partial(self._is_allowed, request), partial(self._connections.abort, address))
        self._connections.lift_limits(address)
        try:
            async with aclosing(events):
                async for event in events:
                    yield event
        finally:
            self._connections.restore_limits(address)  # what waits to be sent may wait for ever

    def _is_allowed(self, request: Request) -> bool:
        return self._access.allows(
            request.cookies.get(self._cookie_name(request), ""), request.headers.get("authorization", "")
        )

    def _cookie_name(self, request: Request) -> str:
        """Returns a name with the port that the browser uses, since it sends a host's cookies to all of its ports."""
        try:
            port = urlsplit(f"//{request.headers.get('host', '')}").port
        except ValueError:
            port = None
        return f"shardcall-page-{port or self._port}"


_SIGN_IN = "Open the link that the server printed, or sign in with the admin token (shardcall token show --admin)."
_NO_KEY = "This link was used, has expired, or is of another start of the server; sign in with the admin token."
_OTHER_SITE = (
    "Send this request from the page itself, at an address with http:// (a proxy with HTTPS is refused); from another "
    "machine, use ssh -L."
)
_NO_ADMIN = "This is no token with the scope admin; shardcall token show --admin prints it."


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _ready(site: Site, _: Request) -> Response:
    if reason := site.not_ready_reason():
        return PlainTextResponse(f"not ready: {reason}\n", HTTPStatus.SERVICE_UNAVAILABLE)
    return PlainTextResponse("ready\n")


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND:
        text = f"Not Found: the metrics are at {METRICS}."
    return PlainTextResponse(f"{text}\n", error.status_code, {**_HEADERS, **(error.headers or {})})


async def _json_object(request: Request) -> dict[str, object]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY_BYTES:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"Send at most {_MAX_BODY_BYTES} bytes.")
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError):
        sent = None
    if not isinstance(sent, dict):
        raise HTTPException(HTTPStatus.BAD_REQUEST, 'Send a JSON object with "key" or "token".')
    return sent


def _is_of_this_site(request: Request) -> bool:
    """Returns whether a request can be of the page itself, or of a program that is no browser."""
    origin, host = request.headers.get("origin"), request.headers.get("host")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    return origin is None or origin == f"http://{host}"


def _closing(send: Send) -> Send:
    """Returns a function that sends an answer and has its connection closed afterwards."""

    async def send_closing(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
        await send(message)

    return send_closing
