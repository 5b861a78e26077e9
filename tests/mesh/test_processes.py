"""Processes of a mesh: collectives between them, and arrays that are read when they are used, by all together."""

import errno
import os
from unittest.mock import Mock

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from rows import rows
from server.conftest import refusal

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.link.file_errors import damaged
from shardcall_server.mesh import processes, resident_arrays
from shardcall_server.mesh.array_files import ArrayFile
from shardcall_server.mesh.processes import first_failure, sum_and_scatter
from shardcall_server.mesh.resident_arrays import ResidentArrays

SIZES = {"a": 4, "b": 2}


@rows("axis, tiled, names", [(0, True, ("a", "b")), (1, False, ("a", "b")), (1, True, ("b", "a")), (0, False, "b")])
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


TYPE = ArrayType((2,), np.dtype(np.float64))


@pytest.fixture
def of_several(copier, monkeypatch):
    """Arrays of a mesh of several processes."""
    monkeypatch.setattr(resident_arrays.jax, "process_count", lambda: 2)
    arrays = ResidentArrays(copier)
    monkeypatch.undo()
    return arrays


@rows("error", [damaged("has become shorter"), MemoryError(), RuntimeError("can't start new thread")])
def test_a_process_that_cannot_read_informs_the_others_and_keeps_the_array(error, of_several, monkeypatch):
    first = Mock(return_value=CallError(Reason.FILE_DAMAGED, "of the first process"))
    monkeypatch.setattr(resident_arrays, "first_failure", first)
    of_several.declare(1, TYPE, Mock(side_effect=error))
    for _ in range(2):
        assert "of the first process" in refusal(of_several.get, 1).message
    assert [informed.args for informed in first.call_args_list] == [(error,), (error,)]


def test_a_process_that_reads_fails_with_another(of_several, monkeypatch):
    failures = [CallError(Reason.FILE_DAMAGED, "of another process"), None]
    monkeypatch.setattr(resident_arrays, "first_failure", lambda error: failures.pop(0))
    array = jax.numpy.zeros(2)
    of_several.declare(1, TYPE, lambda: array)
    assert "of another process" in refusal(of_several.get, 1).message
    assert of_several.get(1).array is array


@rows("message", ["short", "long " * 1000, "ä" * 3000, ""])
def test_the_first_failure_is_that_of_a_process(message):
    assert first_failure(None) is None
    failure = first_failure(CallError(Reason.FILE_DAMAGED, message, field="handle"))
    assert failure is not None
    assert (failure.reason, failure.field) == (Reason.FILE_DAMAGED, "handle")
    assert message.startswith(failure.message)
    assert bool(failure.message) == bool(message)


def test_sums_of_many_sizes_keep_no_programs(monkeypatch):
    kept = processes._message_adder()
    first_failure(None)
    before = kept._cache_size()
    for size in range(1, 9):
        local = np.arange(size, dtype=np.uint8)
        np.testing.assert_array_equal(processes.sum_of_processes(local), local)
    assert kept._cache_size() == before == 1


def test_a_file_that_was_replaced_on_another_host_is_no_fault_of_the_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "preadv", Mock(side_effect=OSError(errno.ESTALE, os.strerror(errno.ESTALE))))
    with pytest.raises(CallError, match="was replaced or removed while it was read"):
        ArrayFile(0, 0).read(((0, 2),), (2,), 8, np.empty(16, np.uint8))
