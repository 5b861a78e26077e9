"""The mesh, the allocator and the imports of a server without settings."""

from pathlib import Path

import numpy as np
from servers import ServerProcess

import shardcall as sc


def test_the_mesh_left_open_follows_specs_and_size(client):
    small, large = np.zeros((8, 8)), np.zeros((512, 512))
    assert client.plan("diff", small).mesh == sc.Mesh({"x": 1}, device_ids=[0])
    assert client.plan("diff", small, spec=sc.P("x")).mesh.size == 8
    assert client.plan("diff", large).mesh.size == 8


def tunes_allocator(server: ServerProcess) -> list[bool]:
    """Returns of each process of a server whether its allocator was set."""
    environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in (server.process.pid, *server.worker_pids())]
    return [b"glibc.malloc.mmap_threshold" in environment for environment in environments]


def test_the_allocator_is_set_for_both_processes_by_default(server):
    assert tunes_allocator(server) == [True, True]


def test_the_front_end_never_imports_jax(server):
    assert "jaxlib" not in Path(f"/proc/{server.process.pid}/maps").read_text()
    (worker,) = server.worker_pids()
    assert "jaxlib" in Path(f"/proc/{worker}/maps").read_text()
