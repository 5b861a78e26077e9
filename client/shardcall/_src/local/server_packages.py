"""The packages that a server needs, and those of them that are missing."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from types import MappingProxyType

MODULES: Mapping[str, str] = MappingProxyType(
    {
        "typer": "typer",
        "rich": "rich",
        "jax": "jax",
        "jaxlib": "jaxlib",
        "grpcio-health-checking": "grpc_health",
        "grpcio-reflection": "grpc_reflection",
        "cryptography": "cryptography",
        "prometheus-client": "prometheus_client",
        "pydantic-settings": "pydantic_settings",
        "starlette": "starlette",
        "structlog": "structlog",
        "uvicorn": "uvicorn",
        "xxhash": "xxhash",
    }
)
"""The module of each distribution of the extra ``server``."""


def missing_packages() -> list[str]:
    """Returns the distributions that a server needs and that are not installed."""
    return [name for name, module in MODULES.items() if not _is_installed(module)]


def server_refusal(what: str) -> str:
    """Returns the reason why a server cannot be started here, with the remedy; empty if it can.

    Args:
        what: the feature that needs it, such as ``shardcall.local``.
    """
    if sys.platform != "linux":
        return (
            f"{what} starts a server, which needs Linux, and this is {sys.platform}; run one in a container or on "
            "another machine, and use shardcall.connect"
        )
    if missing := missing_packages():
        return (
            f"{what} starts a server, and this is an installation for clients: {', '.join(missing)} "
            f"{'are' if len(missing) > 1 else 'is'} missing; pip install 'shardcall[server]'"
        )
    return ""


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # a module that was set to None, or has no spec
        return sys.modules.get(module) is not None
