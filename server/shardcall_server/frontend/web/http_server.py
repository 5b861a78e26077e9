"""The HTTP server: uvicorn on a thread of the front end."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from shardcall_server.frontend.web.site import Site
from shardcall_server.settings import SettingsError

_TIMEOUT_S = 10.0
_MAX_CONNECTIONS = 16  # clients are not authenticated, and each has a descriptor
_BACKLOG = 128
_JOIN_S = 2.0


class HttpServer:
    """Serves a site on a limited number of connections; beyond the limit it closes the oldest.

    Starlette and uvicorn are imported on its thread, so that the start of the front end does not wait for them.

    Args:
        host: the address to listen on.
        port: the port; 0 lets the system choose.
        site: what it serves.
        timeout_s: the time limit of a connection, unless it watches the live page.
        max_connections: the limit of such connections.

    Attributes:
        address: the address in use, "host:port".

    Raises:
        SettingsError: the address cannot be bound.
    """

    def __init__(
        self,
        host: str,
        port: int,
        site: Site,
        timeout_s: float = _TIMEOUT_S,
        max_connections: int = _MAX_CONNECTIONS,
    ) -> None:
        self._listener = _listen(host, port)
        self._host, self._bound = host, self._listener.getsockname()[1]
        self.address = f"[{host}]:{self._bound}" if ":" in host else f"{host}:{self._bound}"
        self._site = site
        self._limits = timeout_s, max_connections
        self._lock = threading.Lock()  # guards the next two
        self._is_closed = False
        self._stop: Callable[[], object] | None = None
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the server, and ends all connections."""
        with self._lock:
            self._is_closed = True
            if self._stop is not None:
                self._stop()
        self._thread.join(_JOIN_S)  # it may be importing still, for which the exit does not wait
        self._listener.close()

    def _serve(self) -> None:
        with ThreadPoolExecutor(2, "metrics") as pool:
            asyncio.run(self._run(pool))

    async def _run(self, pool: ThreadPoolExecutor) -> None:
        # Importing both takes 0.2 s.
        from shardcall_server.frontend.web.application import Application  # noqa: PLC0415
        from shardcall_server.frontend.web.connections import Connections, serve  # noqa: PLC0415

        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            if self._is_closed:
                return
            self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        connections = Connections(*self._limits)
        try:
            application = Application(self._site, self._host, self._bound, pool, connections)
            await serve(application, self._listener, connections, stop)
        finally:
            with self._lock:
                self._stop = None


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"cannot listen on {host}:{port} for metrics: {error.strerror}; choose another --metrics-port or "
            "--metrics-host"
        ) from None
    return listener
