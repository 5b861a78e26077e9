"""Where Prometheus asks: plain HTTP, by default for programs of this machine alone."""

from __future__ import annotations

import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from shardcall_server.settings import SettingsError

PATH = "/metrics"
_STALLED_S = 10.0
_MOST_AT_ONCE = 16  # each has a thread and a descriptor, and nobody is asked who they are


class MetricsServer:
    """Answers with the metrics until it is closed, a few at a time; whoever comes beside them is hung up on.

    Args:
        host: the address to listen on.
        port: the port; 0 lets the system choose.
        registry: what is exposed.

    Attributes:
        address: where it listens, "host:port".

    Raises:
        SettingsError: the address cannot be had.
    """

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        class Handler(_Handler):
            exposed = registry

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True
            places = threading.BoundedSemaphore(_MOST_AT_ONCE)

            def process_request(self, request: Any, client_address: Any) -> None:
                if self.places.acquire(blocking=False):
                    super().process_request(request, client_address)
                else:
                    self.shutdown_request(request)

            def process_request_thread(self, request: Any, client_address: Any) -> None:
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    self.places.release()

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
        """Listens no longer."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection; somebody who says nothing for a while is hung up on."""

    exposed: CollectorRegistry
    timeout = _STALLED_S
    server_version, sys_version = "shardcall", ""

    def do_GET(self) -> None:
        """Answers with the metrics, and nothing else."""
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
        """Logs nothing: the questions come every few seconds."""
