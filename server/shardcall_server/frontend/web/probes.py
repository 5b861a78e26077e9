"""The answers to probes."""

from __future__ import annotations

import re
from email.utils import formatdate
from http import HTTPStatus

from shardcall_server.frontend.web.site import Site

HEALTH, READY = "/healthz", "/readyz"
_OTHERS = rb"(?:(?!(?i:host|content-length|transfer-encoding|expect):)[!-9;-~]+:[^\r\n\0]*\r\n)*"
_REQUEST = re.compile(
    rb"GET (/healthz|/readyz) HTTP/1\.[01]\r\n"
    + _OTHERS
    + rb"(?i:host): *(?:localhost|[0-9.]+|\[[0-9a-f:]+\])(?::[0-9]+)?\r\n"
    + _OTHERS
    + rb"\r\n"
)
_MAX_REQUEST_BYTES = 1024


class Probes:
    """Answers probes: whether the process lives, and whether the mesh serves.

    Args:
        site: knows what the mesh waits for.
    """

    def __init__(self, site: Site) -> None:
        self._site = site

    def answer(self, path: str) -> tuple[HTTPStatus, str]:
        """Returns the status and the text of the answer at a path, `HEALTH` or `READY`."""
        if path == HEALTH:
            return HTTPStatus.OK, "ok\n"
        if reason := self._site.not_ready_reason():
            return HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {reason}\n"
        return HTTPStatus.OK, "ready\n"

    def answer_bytes(self, data: bytes) -> bytes | None:
        """Returns all that a connection is to be sent for these first bytes; None if they are no common probe.

        The threads of callers keep the interpreter busy, and each step of uvicorn, which answers any other request, may
        wait for it: 9.3 ms beside 32 callers on a busy machine, where an answer by one step takes 5.7.
        """
        request = _REQUEST.fullmatch(data) if len(data) <= _MAX_REQUEST_BYTES else None
        if request is None:
            return None
        status, text = self.answer(request[1].decode())
        body = text.encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ndate: {formatdate(usegmt=True)}\r\n"
            f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        return head.encode() + body
