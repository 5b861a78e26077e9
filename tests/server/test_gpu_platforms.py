"""JAX platforms that a worker requests; the tests need no GPU."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint

import pytest
from rows import rows

from shardcall_server.mesh.worker import jax_platforms


@rows(
    ("plugins", "platforms"),
    [(["xla_cuda13"], "cuda"), (["xla_rocm7"], "rocm"), (["other", "xla_rocm7", "xla_cuda12"], "cuda,rocm")],
)
def test_a_platform_is_asked_for_only_where_its_plugin_is_installed(monkeypatch, plugins, platforms):
    """JAX fails for one that it does not know, though the other is there."""
    entries = [EntryPoint(name, f"jax_plugins.{name}", "jax_plugins") for name in plugins]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries if group == "jax_plugins" else [])
    assert jax_platforms("gpu") == platforms


def test_without_a_plugin_the_error_says_which_to_install(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [])
    with pytest.raises(RuntimeError, match=r"without GPU support; pip install .shardcall\[cuda13\]"):
        jax_platforms("gpu")


@rows("platform", ["cpu", "tpu"])
def test_others_are_called_as_jax_calls_them(platform):
    assert jax_platforms(platform) == platform
