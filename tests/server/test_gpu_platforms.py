"""Which of JAX's platforms for GPUs a worker asks for; no GPU is needed to know."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from shardcall_server.mesh import worker as module
from shardcall_server.mesh.worker import gpu_platforms


@pytest.mark.parametrize(
    ("plugins", "platforms"),
    [(["xla_cuda13"], "cuda"), (["xla_rocm7"], "rocm"), (["other", "xla_rocm7", "xla_cuda12"], "cuda,rocm")],
)
def test_a_platform_is_asked_for_only_where_its_plugin_is_installed(monkeypatch, plugins, platforms):
    """JAX fails for one that it does not know, though the other is there."""
    monkeypatch.setattr(module, "entry_points", lambda group: [SimpleNamespace(name=name) for name in plugins])
    assert gpu_platforms() == platforms


def test_where_there_is_none_the_way_to_have_one_is_told(monkeypatch):
    monkeypatch.setattr(module, "entry_points", lambda group: [])
    with pytest.raises(RuntimeError, match=r"without GPUs; add its extra.*jax\[cuda13\]"):
        gpu_platforms()
