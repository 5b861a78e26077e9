"""Runs the Python of a page, with clients of a server that runs already."""

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from project.blocks import blocks_of, matches, output_of

import shardcall as sc
from shardcall import aio


@contextlib.contextmanager
def clients_of(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replaces `local` and `connect` by clients of a server, in a folder of the test's own, until the block ends."""
    with contextlib.ExitStack() as stack:

        def opener(connect: Callable[..., Any]) -> Callable[..., Any]:
            def open_client(*_: object, devices: int = 8, array_dir: str = "", **options: Any) -> Any:
                client = connect(address, **options)
                if isinstance(client, sc.Client):
                    stack.callback(client.close)
                return client

            return open_client

        for module, connect in ((sc, sc.connect), (aio, aio.connect)):
            monkeypatch.setattr(module, "local", opener(connect), raising=False)
            monkeypatch.setattr(module, "connect", opener(connect), raising=False)
        monkeypatch.chdir(folder)
        yield


def run_python_of(page: Path, *replaced: tuple[str, str]) -> None:
    """Runs the blocks of Python of a page, and compares what each prints with what the page shows.

    Args:
        page: the page.
        *replaced: texts of the blocks, each with the one to run instead.

    Raises:
        AssertionError: if a block prints something else.
    """
    blocks = blocks_of(page)
    names: dict[str, Any] = {"__name__": page.stem}
    for i, block in enumerate(blocks):
        if block.language != "python" or block.excuse:
            continue
        text = block.text
        for old, new in replaced:
            text = text.replace(old, new)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * block.line + text, str(page), "exec"), names)  # on the lines of the page
        expected = output_of(blocks, i)
        if expected and not expected.excuse:
            assert matches(printed.getvalue(), expected.text), f"{block} printed:\n{printed.getvalue()}"
