"""The examples in the docstrings of the client: each runs, and prints what the docstring shows."""

import doctest
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardcall as sc

CLASSES = (sc.Client, sc.RemoteArray, sc.TracedFunction)
FUNCTIONS = {"connect": sc.connect, "local": sc.local}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FEWEST = 40


def examples() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yields the functions whose docstrings have an example, but for those written from the table of functions."""
    methods = {f"{cls.__name__}.{name}": item for cls in CLASSES for name, item in vars(cls).items()}
    for name, item in (FUNCTIONS | methods).items():
        if (
            inspect.isfunction(item)
            and not name.rpartition(".")[2].startswith("_")
            and "Example:\n" in (item.__doc__ or "")
        ):
            yield name, item


EXAMPLES = dict(examples())


def test_every_method_of_the_client_has_an_example() -> None:
    methods = {
        f"Client.{name}" for name, item in vars(sc.Client).items() if inspect.isfunction(item) and name[0] != "_"
    }
    assert (methods | set(FUNCTIONS)) - set(EXAMPLES) == set()
    assert len(EXAMPLES) >= FEWEST


@pytest.fixture
def documented(server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[sc.Client]:
    """Returns a client of all scopes, in a folder of the test's own, to whose server `local` connects."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sc, "local", lambda devices: sc.connect(server.address), raising=False)
    with sc.connect(server.address, admin=True) as client:
        yield client


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_the_docstring_shows(name: str, documented: sc.Client) -> None:
    names = {"client": documented, "np": np, "sc": sc}
    text = (inspect.getdoc(EXAMPLES[name]) or "").replace("…", doctest.ELLIPSIS_MARKER)
    test = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    printed: list[str] = []
    assert doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=printed.append).failed == 0, "".join(printed)
