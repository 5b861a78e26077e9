"""Translates Python's arguments in errors to options of the command."""

from __future__ import annotations

import re

_OPTIONS = {
    "connect_timeout=": "--timeout",
    "tls=True": "--tls",
    "tls=": "--tls",
    "leave out tls": "leave out --tls",
    "tls is False": "--no-tls is given",
    "tls=False": "--no-tls",
    'ca_certificate="ca.pem"': "--ca-certificate ca.pem",
    "the mesh of the call, mesh=…": "the mesh of the call, --mesh …",
    "Client.reshard(array, mesh=…, keep=True)": "shardcall call reshard @HANDLE --mesh … --keep",
    "keep=True": "--keep",
    "replace=True": "--replace",
    "Client.put": "shardcall put",
    **{
        f"client.{method}": f"shardcall {command}"
        for method, command in (
            ("put(x, name=…)", "put FILE --name NAME"),
            ("share(name, with_=…, write=True)", "share NAME --with PRINCIPAL --write"),
            ("files()", "files"),
            ("list()", "ls"),
            ("open(name)", "get NAME"),
        )
    },
    **{
        f"{name}{equals}": f"--{name.replace('_', '-')}"
        for name in ("ca_certificate", "client_certificate", "client_key")
        for equals in ("=", "")
    },
}
_ARGUMENT = re.compile(
    # The longest first; nothing of a path.
    rf"(?<![\w./'\"-])(?:{'|'.join(sorted(map(re.escape, _OPTIONS), key=len, reverse=True))})(?![\w/'\"-]|\.\w)"
)


_CALLS = (
    (re.compile(r"client\.open\('([\w./-]+)'\)\.delete\(\)"), r"shardcall rm \1"),
    (re.compile(r"client\.open\('([\w./-]+)'\)"), r"shardcall get \1"),
)


def as_options(text: str) -> str:
    """Returns an error's text with commands for methods and options for arguments: ``--tls`` for ``tls=``."""
    for call, command in _CALLS:
        text = call.sub(command, text)
    return _ARGUMENT.sub(lambda match: _OPTIONS[match[0]], text)
