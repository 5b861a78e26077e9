"""The pages of the client's interface, whose contents mkdocstrings takes from the docstrings."""

from __future__ import annotations

from collections.abc import Iterable

import shardcall
from shardcall import aio

_OPENING = ("connect", "local", "Client")


def client_page() -> str:
    """Returns the page of what opens a client, and of its methods."""
    introduction = (
        "The names of `shardcall`. A client also has [a method for every kernel](methods.md) and [`xp`](xp.md), the "
        "functions with NumPy's names."
    )
    return _page("The client", introduction, [f"shardcall.{name}" for name in _OPENING])


def types_page() -> str:
    """Returns the page of the other public classes."""
    names = [name for name in _public() if name not in _OPENING and not _is_error(name)]
    return _page("Arrays, plans and other types", "", [f"shardcall.{name}" for name in names])


def errors_page() -> str:
    """Returns the page of the classes of errors and warnings."""
    introduction = "[Errors](../errors.md) has the message, the cause and the remedy of every reason."
    errors = sorted(filter(_is_error, _public()), key=lambda name: (name != "ShardcallError", name))
    return _page("Classes of errors", introduction, [f"shardcall.{name}" for name in errors])


def asyncio_page() -> str:
    """Returns the page of the asynchronous client."""
    introduction = (
        "`shardcall.aio` has the same names, and their methods are coroutines where those of [the client](client.md) "
        "wait; the arguments are the same."
    )
    return _page("The client for asyncio", introduction, [f"shardcall.aio.{name}" for name in aio.__all__])


def _page(title: str, introduction: str, names: Iterable[str]) -> str:
    return "\n\n".join([f"# {title}", introduction, *(f"::: {name}" for name in names)]) + "\n"


def _public() -> list[str]:
    return [name for name in shardcall.__all__ if name not in {"P", "__version__"}]  # P is another name of a class


def _is_error(name: str) -> bool:
    value = getattr(shardcall, name)
    return isinstance(value, type) and issubclass(value, Exception)
