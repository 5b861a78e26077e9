"""Requests to the HTTP port of a server with the live page."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from end_to_end.scraping import metrics_url
from servers import ServerProcess, running_server

from shardcall_core.wire import token_file


def admin_token() -> str:
    """Returns a token of the tests' servers, which has all scopes."""
    return token_file.user_entry(token_file.read(os.environ[token_file.FILE_VARIABLE])).token


@dataclass(frozen=True)
class PageServer:
    """A server with the live page.

    Attributes:
        running: the server.
        base: the address of its HTTP port, "http://host:port".
        link: the address that it prints; without authentication, with the key that is valid once.
        log: its log.
    """

    running: ServerProcess
    base: str
    link: str
    log: Path

    def get(self, path: str) -> tuple[int, str]:
        """Returns the status and the text of an answer."""
        try:
            with urllib.request.urlopen(f"{self.base}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def snapshots(self) -> Iterator[dict[str, Any]]:
        """Yields the snapshots of a viewer with the admin token, until the generator is closed."""
        request = urllib.request.Request(f"{self.base}/events", headers={"Authorization": f"Bearer {admin_token()}"})
        with urllib.request.urlopen(request, timeout=60) as events:
            for line in events:
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))


@contextmanager
def page_server(log: Path, *flags: str, devices: int = 4) -> Iterator[PageServer]:
    """A server with the live page, gone afterwards."""
    with running_server(
        "--metrics-port", "0", "--live-page", *flags, devices=devices, log=log, why="it shows the live page"
    ) as running:
        assert running.process.stdout is not None
        line = running.process.stdout.readline()
        (link,) = [word for word in line.split() if word.startswith("http://")]
        yield PageServer(running, metrics_url(log).removesuffix("/metrics"), link, log)
