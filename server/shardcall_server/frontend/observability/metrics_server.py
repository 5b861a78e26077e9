"""The HTTP endpoint for Prometheus, by default on loopback only."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
from collections import deque
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from shardcall_core.access.addresses import is_loopback
from shardcall_server.frontend.rpc.deadline_timer import DeadlineTimer
from shardcall_server.settings import SettingsError

PATH = "/metrics"
_TIMEOUT_S = 10.0
_MAX_CONNECTIONS = 16  # each has a thread and a descriptor, and clients are not authenticated


class MetricsServer:
    """Serves the metrics on a limited number of connections; beyond the limit it closes the oldest.

    On loopback it requires an IP address or the name localhost in the Host header: otherwise a web page in a browser on
    this machine could read the metrics through DNS rebinding.

    Args:
        host: the address to listen on.
        port: the port; 0 lets the system choose.
        timeout_s: the time limit of one connection.

    Attributes:
        address: the address in use, "host:port".

    Raises:
        SettingsError: the address cannot be bound.
    """

    def __init__(self, host: str, port: int, registry: CollectorRegistry, timeout_s: float = _TIMEOUT_S) -> None:
        class Handler(_Handler):
            exposed = registry
            names = {host.lower(), "localhost"} if is_loopback(host) else None

        deadline_timer = DeadlineTimer()
        connections: deque[socket.socket] = deque()

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

            def process_request(self, request: Any, client_address: Any) -> None:
                connections.append(request)
                if len(connections) > _MAX_CONNECTIONS:
                    _hang_up(connections.popleft())
                super().process_request(request, client_address)

            def process_request_thread(self, request: Any, client_address: Any) -> None:
                with deadline_timer.at(time.monotonic() + timeout_s, lambda: _hang_up(request)):
                    super().process_request_thread(request, client_address)

            def shutdown_request(self, request: Any) -> None:
                with contextlib.suppress(ValueError):
                    connections.remove(request)
                super().shutdown_request(request)

            def handle_error(self, request: object, client_address: object) -> None:
                structlog.get_logger().debug("metrics could not be sent", exc_info=True)

        try:
            self._server = Server((host, port), Handler)
        except OSError as error:
            raise SettingsError(
                f"cannot listen on {host}:{port} for metrics: {error.strerror}; choose another --metrics-port or "
                "--metrics-host"
            ) from None
        bound = self._server.server_address[1]
        self.address = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _hang_up(connection: socket.socket) -> None:
    """Shuts a connection down, which unblocks its thread."""
    with contextlib.suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Handles the requests of one connection.

    Attributes:
        exposed: the metrics.
        names: the names that the Host header may contain, beside IP addresses; None for any.
    """

    exposed: CollectorRegistry
    names: set[str] | None
    server_version, sys_version = "shardcall", ""

    def do_GET(self) -> None:
        """Sends the metrics."""
        if not self._is_host_allowed():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, explain="Use an IP address or the name localhost.")
            return
        if self.path.partition("?")[0] != PATH:
            self.send_error(HTTPStatus.NOT_FOUND, explain=f"The metrics are at {PATH}.")
            return
        body = generate_latest(self.exposed)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE_LATEST)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Logs nothing: requests arrive every few seconds."""

    def _is_host_allowed(self) -> bool:
        host = self.headers.get("Host")
        if host is None or self.names is None:  # browsers always send it
            return True
        name = ""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.names
        return True
