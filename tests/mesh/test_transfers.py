"""The front end and the client, without JAX, see a transfer exactly where JAX sees another sharding."""

import itertools

import jax
import numpy as np
from jax.sharding import Mesh as JaxMesh
from jax.sharding import NamedSharding, PartitionSpec

from shardcall import Array, Mesh, P
from shardcall_core.placements.placement import ArrayPlacement
from shardcall_core.placements.resharding import find_transfer

SHAPE = (16, 24)
MESHES = [
    Mesh({"x": 8}, device_ids=range(8)),
    Mesh({"x": 8}, device_ids=[1, 0, 3, 2, 5, 4, 7, 6]),
    Mesh({"a": 4, "b": 2}, device_ids=range(8)),
    Mesh({"a": 2, "b": 4}, device_ids=[0, 4, 1, 5, 2, 6, 3, 7]),
    Mesh({"a": 4}, device_ids=range(4)),
    Mesh({"a": 1}, device_ids=[0]),
]


def layouts():
    for mesh in MESHES:
        names = mesh.axis_names
        entries = [None, *names, *itertools.permutations(names, 2)]
        for first, second in itertools.product(entries, entries):
            axes = [n for e in (first, second) for n in ((e,) if isinstance(e, str) else e or ())]
            if len(axes) == len(set(axes)):
                yield mesh, P(first, second)


def sharding(mesh, spec):
    devices = np.array([jax.devices()[i] for i in mesh.device_ids]).reshape(list(mesh.shape.values()))
    return NamedSharding(JaxMesh(devices, mesh.axis_names), PartitionSpec(*spec))


def held(placed):
    """The elements that each device holds, as flat indices."""
    flat = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    return {device: set(flat[part].reshape(-1).tolist()) for device, part in placed.devices_indices_map(SHAPE).items()}


def test_a_transfer_is_what_is_no_equivalent_sharding_and_counts_what_devices_lack():
    every = [(mesh, spec, sharding(mesh, spec)) for mesh, spec in layouts()]
    elements = [held(placed) for *_, placed in every]
    for i, j in np.random.default_rng(0).integers(0, len(every), (300, 2)):
        (from_mesh, from_spec, before), (to_mesh, to_spec, after) = every[i], every[j]
        placements = [
            ArrayPlacement(Array(SHAPE, "float32"), spec, SHAPE, placed.shard_shape(SHAPE))
            for spec, placed in ((from_spec, before), (to_spec, after))
        ]
        transfer = find_transfer(0, from_mesh, placements[0], to_mesh, placements[1])
        assert (transfer is None) == before.is_equivalent_to(after, len(SHAPE)), (before, after)
        lacking = sum(len(needs - elements[i].get(device, set())) for device, needs in elements[j].items())
        assert (transfer.received_bytes if transfer else 0) == 4 * lacking, (before, after)
