"""The check reports the mistakes of kernel authors."""

import os
import subprocess
import sys
from dataclasses import dataclass
from unittest.mock import Mock

import jax.numpy as jnp
import numpy as np
import pytest
from rows import rows

from shardcall_server.authoring import (
    CallError,
    Kernel,
    OperandInfo,
    ParameterInfo,
    Reason,
    Reproducibility,
    Signature,
    Strategy,
    ValueCheck,
    any_element,
    check,
    fit,
    integer,
)
from shardcall_server.authoring.runner import kernel_case
from shardcall_server.compilation.keys import Platform, kernel_key

MESHES = [{"x": 3}]
X = np.arange(10.0).reshape(5, 2)


def kernel(build, refusal=lambda problem: None, promised=lambda x: x, checks=()):
    """Returns a kernel with one strategy."""

    class LocalKernel(Kernel):
        name, version, summary = "made", 1, "Made for a test."
        operands = (OperandInfo("x", "Any array."),)
        strategies = (Strategy("only", "Only.", refusal, build),)

        def validate(self, operands, parameters):
            return Signature(None, (promised(operands[0]),), checks)

    return LocalKernel()


def double(problem, mesh):
    return lambda x: (fit(2 * x, problem.padded_result()),)


def test_a_sound_kernel_is_reported():
    report = check(kernel(double), lambda x: 2 * x, X, meshes=MESHES)
    assert (report.cases, report.by_strategy, report.refused) == (7, {"only": 7}, 0)
    assert str(report) == "made: 7 results compared; layouts served: only 7; refused: 0"


def leaking(problem, mesh):
    return lambda x: (fit(x + 0 * jnp.sum(x), problem.padded_result()),)


@rows(
    ("checked", "expected", "says"),
    [
        (kernel(double), np.square, r"result 0 of made by 'only' on mesh \(x=3\), specs open, open, padding of 0"),
        (kernel(double), lambda x: 2 * x * (1 + 1e-9), "differs"),
        (kernel(leaking), lambda x: x, "padding of nan, differs in 10 of 10 elements"),
        (kernel(double, lambda problem: "never"), lambda x: 2 * x, "no strategy of made serves any of these layouts"),
        (kernel(double), lambda x: (2 * x).astype(np.float32), "is float64, not float32"),
        (kernel(double, checks=(ValueCheck("x", "never"),)), lambda x: 2 * x, "promised 1 flags"),
    ],
)
def test_mistakes_are_reported(checked, expected, says):
    with pytest.raises(AssertionError, match=says):
        check(checked, expected, X, meshes=MESHES)


def test_layouts_that_are_refused_are_counted():
    def columns(problem):
        return "columns are sharded" if problem.in_specs[0][1] else None

    report = check(kernel(double, columns), lambda x: 2 * x, X, meshes=MESHES)
    assert (report.refused, report.cases) == (1, 6)


def test_a_larger_tolerance_may_be_declared():
    check(kernel(double), lambda x: 2 * x * (1 + 1e-9), X, meshes=[{"x": 1}], rtol=1e-8)


def test_the_error_of_code_in_a_kernel_is_raised_as_it_is():
    with pytest.raises(ZeroDivisionError, match="mine"):
        check(kernel(Mock(side_effect=ZeroDivisionError("mine"))), lambda x: x, X, meshes=MESHES)


def test_a_kernel_may_use_any_of_jaxs_functions():
    """Also those of vectors, for which some versions of XLA:CPU compute a wrong arctangent."""

    def angles(problem, mesh):
        return lambda x: (fit(jnp.arctan2(jnp.arctan(x), 1.0), problem.padded_result()),)

    check(kernel(angles), lambda x: np.arctan(np.arctan(x)), np.linspace(0.1, 3, 2000), meshes=[{"x": 1}], rtol=1e-12)


def test_a_kernel_may_refuse_values():
    def positive(problem, mesh):
        def program(x):
            refused = any_element(lambda x: x < 0, x, problem.operands[0].shape, mesh, problem.in_specs[0])
            return fit(jnp.sqrt(x), problem.padded_result()), refused

        return program

    roots = kernel(positive, checks=(ValueCheck("x", "x is negative; give its absolute value"),))
    check(roots, np.sqrt, X, meshes=MESHES, rtol=1e-15)
    with pytest.raises(CallError, match="x is negative") as refused:
        check(roots, np.sqrt, -X, meshes=MESHES)
    assert (refused.value.reason, refused.value.field) == (Reason.INVALID_VALUE, "x")


def test_a_kernel_reads_its_parameters_from_its_dataclass():
    @dataclass(frozen=True)
    class Parameters:
        factor: int

    class Scaled(Kernel[Parameters]):
        name, version, summary = "scaled", 1, "Made for a test."
        operands = (OperandInfo("x", "Any array."),)
        parameters = (ParameterInfo("factor", "An integer.", 2),)
        strategies = (Strategy("only", "Only.", lambda problem: None, lambda problem, mesh: scale(problem)),)

        def validate(self, operands, parameters):
            return Signature(Parameters(integer(parameters, "factor")), (operands[0],))

    def scale(problem):
        return lambda x: (fit(problem.parameters.factor * x, problem.padded_result()),)

    check(Scaled(), lambda x: 2 * x, X, meshes=MESHES)
    check(Scaled(), lambda x, factor: factor * x, X, meshes=MESHES, factor=3)
    key = kernel_key(kernel_case(Scaled(), X, mesh={"x": 3}).resolve(), Platform("cpu", "", ""))
    assert key.parameters == (("factor", "2"),)
    with pytest.raises(CallError, match="factor=True is of type bool; factor is an integer"):
        check(Scaled(), lambda x, factor: x, X, meshes=MESHES, factor=True)


def test_a_promise_of_the_same_bits_on_every_mesh_is_checked():
    def blockwise(problem, mesh):
        wrong = 1e-12 if problem.mesh.device_count > 1 else 0
        return lambda x: (fit(2 * x + wrong, problem.padded_result()),)

    summing, promising = kernel(blockwise), kernel(blockwise)
    type(promising).reproducibility = Reproducibility.ALWAYS
    for_all = {"meshes": [{"x": 1}, {"x": 3}], "rtol": 1e-6, "atol": 1e-6}
    check(summing, lambda x: 2 * x, X, **for_all)
    with pytest.raises(AssertionError, match=r"mesh \(x=3\).* other bits than the first .*made promises the same bits"):
        check(promising, lambda x: 2 * x, X, **for_all)
    type(promising).reproducibility = Reproducibility.INTEGERS
    check(promising, lambda x: 2 * x, X, **for_all)  # X is of floats


def test_kernels_are_not_checked_without_a_workers_flags():
    code = "import jax; jax.config.update('jax_num_cpu_devices', 8), jax.devices(); "
    code += "from shardcall_server.authoring import runner; runner.use_virtual_devices()"
    without = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    ended = subprocess.run([sys.executable, "-c", code], env=without, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "without the flags of a worker" in ended.stderr
