"""Collectives between processes."""

import jax
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from rows import rows

from shardcall_server.mesh.processes import sum_and_scatter

SIZES = {"a": 4, "b": 2}


@rows(
    ("axis", "tiled", "names"), [(0, True, ("a", "b")), (1, False, ("a", "b")), (1, True, ("b", "a")), (0, False, "b")]
)
def test_sums_are_scattered_as_by_psum_scatter(names, tiled, axis):
    size = int(np.prod([SIZES[name] for name in names]))
    length = 2 * size if tiled else size
    x = np.random.default_rng(3).integers(-9, 9, (4, 2, length, length)).astype(np.float32)

    def scattered(function, **more):
        def body(block):
            return function(block[0, 0], axis_name=names, scatter_dimension=axis, tiled=tiled, **more)[None, None]

        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
        mapped = jax.shard_map(body, mesh=mesh, in_specs=P("a", "b"), out_specs=P("a", "b"), check_vma=False)
        return np.asarray(jax.jit(mapped)(x))

    actual = scattered(sum_and_scatter, axis_index_groups=None, axis_size=size)
    np.testing.assert_array_equal(actual, scattered(lax.psum_scatter))
