"""Sums scattered without the reduce-scatter of gloo, which returns wrong values now and then."""

import numpy as np
import pytest
from kernels.conftest import Kernels

from shardcall_server.compilation import program
from shardcall_server.errors import CallError, Reason
from shardcall_server.kernels import blocks
from shardcall_server.kernels.library import kernels

KERNELS = {kernel.name: kernel for kernel in kernels()}
RANDOM = np.random.default_rng(3)
SUMMED = {"mesh": {"a": 4, "b": 2}, "in_specs": [(None, ("b", "a")), (("b", "a"), None)], "strategy": "psum_scatter"}


@pytest.fixture
def distributed(monkeypatch):
    """Kernels that are compiled as between several processes of CPUs."""
    for module in (blocks, program):
        monkeypatch.setattr(module, "is_distributed_cpu", lambda: True)
    return Kernels()


@pytest.mark.parametrize("out_spec", [(("b", "a"), None), (None, ("b", "a"))])
@pytest.mark.parametrize("name", ["float32", "int16", "complex64"])
def test_an_all_to_all_and_sums_replace_it(distributed, out_spec, name):
    lhs, rhs = (RANDOM.integers(-4, 5, shape).astype(name) for shape in ((29, 17), (17, 13)))
    how = {**SUMMED, "out_specs": [out_spec]}
    text = distributed.program(KERNELS["matmul"], lhs, rhs, **how).text
    assert "all-to-all" in text
    assert "reduce-scatter" not in text
    assert np.array_equal(distributed(KERNELS["matmul"], lhs, rhs, **how), lhs @ rhs)


def test_results_of_one_device_and_rows_of_others(distributed):
    x = RANDOM.normal(size=4099)
    how = {"mesh": {"x": 8}, "in_specs": [("x",)]}
    assert np.allclose(distributed(KERNELS["fft"], x, **how), np.fft.fft(x))
    taken = distributed(KERNELS["take"], x, np.array([4098, 0, -3]), axis=0, **how)
    assert np.array_equal(taken, x[[4098, 0, -3]])


def test_others_are_refused(monkeypatch):
    monkeypatch.setattr(program, "is_distributed_cpu", lambda: True)
    lhs, rhs = np.ones((16, 16)), np.ones((16, 16))
    with pytest.raises(CallError, match=r"blocks[.]reduce_scatter in place of") as refused:
        Kernels().program(KERNELS["matmul"], lhs, rhs, **SUMMED)
    assert refused.value.reason == Reason.NOT_SUPPORTED
