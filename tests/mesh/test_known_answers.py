"""Known-answer tests pass with this compiler, and detect wrong results."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernels.table_cases import MOVES, OTHERS
from rows import rows
from structlog.testing import capture_logs

from shardcall_core.call_error import CallError
from shardcall_core.layouts.layout import ArrayType, MeshAxes
from shardcall_server.compilation.keys import Platform
from shardcall_server.compilation.resolve import Request, resolve
from shardcall_server.kernels.elementwise import elementwise as elementwise_kernels
from shardcall_server.kernels.elementwise.ufuncs import UFUNCS
from shardcall_server.kernels.library import kernels
from shardcall_server.known_answers import elementwise, programs
from shardcall_server.known_answers.comparison import wide_type
from shardcall_server.known_answers.known_answer import Outcome
from shardcall_server.known_answers.suite import Suite

KERNELS = {kernel.name: kernel for kernel in kernels()}
PLATFORM = Platform("cpu", "0.10.1 / 0.10.1", "")
TYPES = [dtype.name for dtype in elementwise.TYPES]
WITHOUT_TEST = """
all any argmax argmin max min prod cumprod searchsorted bincount interp fft ifft rfft irfft
normal permutation randint uniform copy reshard transpose getitem setitem astype graph
sort argsort lexsort take take_along_axis take_at put_at put_along_axis flatnonzero
full full_like arange linspace eye nextafter complex ldexp frexp erf gammaln
cholesky inv solve solve_triangular det slogdet eig eigvals eigh eigvalsh svd svdvals qr
"""


@pytest.fixture(scope="module")
def suite():
    return Suite(KERNELS, PLATFORM)


def run(case):
    return case.compile()()()


def check_kernels(suite: Suite, dtype: str) -> None:
    """Runs the tests of all elementwise functions in a type, which must pass."""
    tests = [case for name, case in suite.known_answers.items() if name.startswith(f"elementwise {dtype} ")]
    assert tests
    assert {case.name: outcome for case in tests if (outcome := run(case)) != Outcome({})} == {}


def resolved(name, *dtypes, mesh=(("x", 1),)):
    operands = tuple(ArrayType((64,), np.dtype(dtype)) for dtype in dtypes)
    return resolve(KERNELS[name], Request({}, operands, MeshAxes(mesh), (), (), (), "auto"), range(8))


@pytest.mark.parametrize(
    ("name", "kernel"), [("product", "einsum"), ("sum", "var"), ("scan", "cumsum"), ("halo exchange", "roll")]
)
def test_one_wrong_element_of_a_program_of_the_complete_mesh_is_noticed(monkeypatch, name, kernel):
    """Only the element whose known answer is changed is wrong."""
    covered, make = programs._ON_THE_MESH[name]

    def changed(device_count):
        call = make(device_count)
        call.expected.flat[-1] += 1
        return call

    monkeypatch.setitem(programs._ON_THE_MESH, name, (covered, changed))
    case = {k.name: k for k in programs.known_answers(KERNELS, 8, jax.devices()[0])}
    wrong = run(case[name]).failures[kernel].split(" of ")[0]
    assert wrong in {"1", "8"}  # replicated values are wrong on every device


def test_the_product_and_sum_of_rows_passes(suite):
    assert run(suite.known_answers["product and sum of rows"]) == Outcome({})


def test_all_kernels_of_float64_pass(suite):
    check_kernels(suite, "float64")


def test_every_elementwise_function_is_in_a_test_of_every_floating_point_type(suite):
    for dtype in TYPES:
        in_tests = [k for case in suite.known_answers.values() if f" {dtype} " in case.name for k in case.kernels]
        assert sorted(in_tests) == sorted(UFUNCS)


def test_every_kernel_is_in_a_test_or_listed_as_in_none(suite):
    in_tests = {kernel for case in suite.known_answers.values() for kernel in case.kernels}
    assert KERNELS.keys() - in_tests == {*MOVES, *OTHERS, *WITHOUT_TEST.split()}


def wrong_kernel(name, body):
    return elementwise_kernels._kernel(replace(UFUNCS[name], body=body))


def test_wrong_elements_of_one_function_are_noticed():
    """As in jaxlib 0.10.2: one lane of a vector of eight is right."""

    def one_lane_of_eight(x):
        return jnp.where(jnp.arange(x.shape[0]) % 8 == 0, jnp.arctan(x), jnp.arctan(jnp.roll(x, 1)))

    sin, arctan = KERNELS["sin"], wrong_kernel("arctan", one_lane_of_eight)
    case = next(elementwise.known_answers([sin, KERNELS["diff"], arctan], 0))
    (kernel, detail), *others = run(case).failures.items()
    assert (kernel, others) == ("arctan", [])
    assert 3400 < int(detail.split(" of 4096 elements are wrong")[0]) <= 3584


def failing_kernel(name, error):
    def body(x):
        raise error

    return wrong_kernel(name, body)


def test_a_function_that_cannot_be_compiled_does_not_keep_the_others_from_being_tested():
    wrong, broken = wrong_kernel("floor", lambda x: x), failing_kernel("sin", ValueError("no such instruction"))
    case = next(elementwise.known_answers([wrong, broken, KERNELS["cos"]], 0))
    with capture_logs() as logs:
        outcome = run(case)
    assert (list(outcome.failures), outcome.untested) == (["floor"], ("sin",))
    lines = [(line["kernel"], line["element_type"], line["log_level"]) for line in logs]
    assert lines == [("sin", "float64", "warning")]


@rows("error", [MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: out of memory")])
def test_a_lack_of_memory_is_reported_and_leaves_no_function_out(error):
    with pytest.raises(type(error)):
        next(elementwise.known_answers([KERNELS["cos"], failing_kernel("sin", error)], 0)).compile()


def test_a_lack_of_memory_for_one_function_alone_does_not_leave_it_out(monkeypatch):
    """Together they are refused for another reason, and apart one of them has no memory."""

    def refused(group, operands):
        raise MemoryError if len(group) == 1 else ValueError("no such instruction")

    monkeypatch.setattr(elementwise, "_compile_together", refused)
    with pytest.raises(MemoryError):
        next(elementwise.known_answers([KERNELS["cos"], KERNELS["sin"]], 0)).compile()


@rows("dtype_", TYPES)
def test_results_rounded_in_their_type_are_right_and_others_are_wrong(dtype_):
    dtype = np.dtype(dtype_)
    x, y, _ = operands = elementwise.operands_of(dtype)
    with np.errstate(all="ignore"):
        product = (x.astype(wide_type(dtype)) * y.astype(wide_type(dtype))).astype(dtype)
    multiply = KERNELS["multiply"]
    assert not elementwise.wrong_elements(multiply, product, operands).any()
    assert elementwise.wrong_elements(multiply, np.roll(product, 1), operands).mean() > 0.8


@rows("dtype_", [dtype.name for dtype in elementwise.TYPES if dtype.kind != "c"])
def test_special_values_are_distinguished(dtype_):
    dtype = np.dtype(dtype_)
    operands = elementwise.operands_of(dtype)
    copy = operands[0].copy()
    positive = KERNELS["positive"]
    assert not elementwise.wrong_elements(positive, copy, operands).any()
    assert {np.isnan(copy).any(), (copy == 0).any()} == {True}
    copy[np.isnan(copy)] = 1
    copy[copy == 0] = -copy[copy == 0]
    expected = np.isnan(operands[0].astype(float)) | (operands[0] == 0)
    assert (elementwise.wrong_elements(positive, copy, operands) == expected).all()


def test_a_program_needs_the_tests_of_its_kernel_in_the_type_it_is_computed_in(suite):
    def vouching(name, *dtypes):
        return [name.rpartition(" ")[0] for name in suite.vouching_for(resolved(name, *dtypes))]

    assert vouching("arctan", "float64") == ["elementwise float64"]
    assert vouching("divide", "int32", "int32") == ["elementwise float64"]
    assert vouching("where", "bool", "bfloat16", "bfloat16") == ["elementwise bfloat16"]
    assert vouching("add", "int8", "int8") == []
    assert suite.vouching_for(resolved("diff", "int8")) == ["halo exchange"]
    assert suite.vouching_for(resolved("transpose", "float32")) == []


def test_every_float_call_of_an_elementwise_function_is_vouched_for_by_one_test(suite):
    for kernel in UFUNCS:
        for dtype in TYPES:
            try:
                call = resolved(kernel, *[dtype] * len(KERNELS[kernel].operands))
            except CallError:
                continue
            assert len(suite.vouching_for(call)) == 1, (kernel, dtype)


def test_a_digest_changes_with_all_that_decides_a_verdict_and_with_nothing_else(suite):
    def digests(**changes):
        return Suite(KERNELS, replace(PLATFORM, **changes)).digest("scan")

    assert digests() == suite.digest("scan")
    assert len({suite.digest(name) for name in suite.known_answers}) == len(suite.known_answers)
    others = [digests(jax="0.11.0 / 0.11.0"), digests(flags="--xla_x"), digests(device_kind="NVIDIA H100")]
    assert len({digests(), *others}) == 4
