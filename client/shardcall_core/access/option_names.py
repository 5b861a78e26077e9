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
    "Client.put": "shardcall put",
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


def as_options(text: str) -> str:
    """Returns an error's text with options for arguments: ``--ca-certificate`` for ``ca_certificate=``."""
    return _ARGUMENT.sub(lambda match: _OPTIONS[match[0]], text)
