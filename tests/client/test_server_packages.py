"""The message of a client-only installation about the packages of a server."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import shardcall
from shardcall._src.local import server_packages

EXTRAS = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def test_the_packages_are_those_of_the_extras():
    declared = {re.split(r"[<>=!\[]", requirement)[0] for extra in ("cli", "server") for requirement in EXTRAS[extra]}
    assert set(server_packages.MODULES) == declared - {"shardcall"}


def test_local_names_all_missing_packages_at_once(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("jax", "structlog", "typer") else find(name)
    )
    with pytest.raises(shardcall.ServerUnavailableError) as caught:
        shardcall.local(devices=2)
    assert "typer, jax, structlog are missing; pip install 'shardcall[server]'" in str(caught.value)


def test_local_needs_linux(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    assert "needs Linux, and this is darwin" in server_packages.server_refusal("shardcall.local")
