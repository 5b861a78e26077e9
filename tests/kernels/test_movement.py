"""The rows of the table that move elements give NumPy's results, bit for bit, in every layout."""

import re

import numpy as np
import pytest
from kernels.conftest import ELEMENT_TYPES
from kernels.table_cases import MOVES, OTHERS, expected
from rows import rows

from shardcall_core.call_error import Reason
from shardcall_core.element_types import NAMED
from shardcall_core.functions.indexing import basic_index
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.library import kernels

KERNELS = {kernel.name: kernel for kernel in kernels()}
COLLECTIVE = re.compile(r"all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter")
LAYOUTS = [
    ({"x": 1}, (None, None, None)),
    ({"x": 8}, ("x", None, None)),
    ({"x": 3}, (None, "x", None)),
    ({"a": 4, "b": 2}, ("b", None, "a")),
    ({"a": 2, "b": 2}, (("b", "a"), None, None)),
]
CASES = [(name, i) for name, calls in MOVES.items() for i in range(len(calls))]


def assert_same_bits(actual, reference):
    """Checks that bits are equal; all NaN of bfloat16 count as equal, since padded blocks may have another payload."""
    assert (actual.shape, actual.dtype) == (reference.shape, reference.dtype)
    if actual.dtype.name == "bfloat16":
        bits = [np.ascontiguousarray(array).view(np.uint16) for array in (actual, reference)]
        actual, reference = (np.where(bits_of_array & 0x7FFF > 0x7F80, 0x7FFF, bits_of_array) for bits_of_array in bits)
    assert actual.tobytes() == np.ascontiguousarray(reference).tobytes()


def specs(shapes, spec):
    return [None if shape is None else spec[: len(shape)] for shape in shapes]


@pytest.mark.parametrize(("mesh", "spec"), LAYOUTS[3:4])
def test_results_are_numpys(run, values, mesh, spec):
    calls = [(name, *call) for name, calls in {**MOVES, **OTHERS}.items() for call in calls]
    operands = [tuple(None if s is None else values.normal(s) for s in shapes) for _, shapes, _ in calls]
    results = run.together(
        [
            run.call(KERNELS[name], *arrays, mesh=mesh, in_specs=specs(shapes, spec), **parameters)
            for (name, shapes, parameters), arrays in zip(calls, operands, strict=True)
        ],
        padding=np.nan,
    )
    for (name, _, parameters), arrays, result in zip(calls, operands, results, strict=True):
        reference = expected(name, arrays, parameters)
        if name in MOVES:
            assert_same_bits(result, reference)
        else:
            np.testing.assert_allclose(result, reference, rtol=1e-6, strict=True)


@pytest.mark.parametrize("first", [0])
def test_every_bit_is_kept(run, values, first):
    """Each function moves elements of another type."""
    calls = []
    for i, name in enumerate(MOVES):
        shapes, parameters = MOVES[name][0]
        dtype = ELEMENT_TYPES[(i + first) % len(ELEMENT_TYPES)]
        operands = tuple(None if shape is None else values.any(shape, dtype) for shape in shapes)
        calls.append((name, operands, parameters, specs(shapes, ("a", None, "b"))))
    results = run.together(
        run.call(KERNELS[name], *operands, mesh={"a": 2, "b": 2}, in_specs=in_specs, **parameters)
        for name, operands, parameters, in_specs in calls
    )
    for (name, operands, parameters, _), result in zip(calls, results, strict=True):
        assert_same_bits(result, expected(name, operands, parameters))


def test_traces_overflow_as_numpys(run):
    x = np.full((300, 300), 250, np.uint8)
    reference = np.trace(x, dtype=np.uint8)
    assert_same_bits(run(KERNELS["trace"], x, mesh={"x": 8}, dtype="uint8"), np.asarray(reference))


CONVERTED = ("bool", "int4", "uint8", "int64", "float16", "bfloat16", "float32", "complex64")
NUMBERS = np.array([0, 1, -1, 2.5, -3.75, 100, 7, 0.125])


@pytest.mark.parametrize("first", [0])
def test_astype_is_numpys(run, first):
    """Each type becomes another one."""
    calls = []
    for i, of in enumerate(ELEMENT_TYPES):
        to = NAMED[CONVERTED[(i + first) % len(CONVERTED)]]
        if {of.name, to.name} == {"int4", "uint4"}:
            continue  # NumPy converts neither to the other
        unsigned, narrow = "uint" in of.name + to.name, "int4" in of.name + to.name
        x = abs(NUMBERS) % 8 if unsigned else np.clip(NUMBERS, -8, 7) if narrow else NUMBERS
        calls.append((x.astype(of), to))
    results = run.together(run.call(KERNELS["astype"], x, mesh={"x": 3}, dtype=to.name) for x, to in calls)
    for (x, to), result in zip(calls, results, strict=True):
        with np.errstate(all="ignore"):
            reference = (x.real if x.dtype.kind == "c" and to.kind not in "cb" else x).astype(to)
        assert result.dtype == to
        np.testing.assert_array_equal(result.astype(complex), reference.astype(complex))


def index(x, key):
    """The operands and parameters of a call of getitem, by NumPy's own rules."""
    starts, sizes, steps, dropped, inserted = basic_index(x.shape, key)
    return np.array(starts, np.int64), {"sizes": sizes, "steps": steps, "dropped": dropped, "inserted": inserted}


KEYS = [
    np.s_[1:-1],
    np.s_[1:-1, 1:-1],
    np.s_[2],
    np.s_[-1, None, ::2],
    np.s_[..., 3],
    np.s_[::-1, ::-2, ::-3],
    np.s_[4:1:-1, None, 2:2, None],
    np.s_[1, 2, 3],
    np.s_[1::2, :, 8:0:-4],
    np.s_[:],
]


@pytest.mark.parametrize(("mesh", "spec"), LAYOUTS[3:4])
def test_slices_are_numpys(run, values, mesh, spec):
    x = values.normal((5, 4, 9))
    calls = [index(x, key) for key in KEYS]
    results = run.together(
        [run.call(KERNELS["getitem"], x, starts, mesh=mesh, in_specs=[spec], **how) for starts, how in calls], np.nan
    )
    for key, result in zip(KEYS, results, strict=True):
        assert_same_bits(result, np.asarray(x[key]))


def test_a_loop_of_slices_compiles_once(run, values):
    x = values.normal((20, 3))
    run.programs.clear()
    for k in (0, 1, 4):
        starts, parameters = index(x, np.s_[k : k + 4])
        assert_same_bits(run(KERNELS["getitem"], x, starts, mesh={"x": 3}, **parameters), x[k : k + 4])
    assert len(run.programs) == 1


NO_COLLECTIVE = [
    ("reshape", (16, 6), {"shape": (16, 2, 3)}, ("x", None, None)),
    ("expand_dims", (16, 6), {"axis": 0}, (None, "x", None)),
    ("broadcast_to", (16, 1), {"shape": (4, 16, 5)}, (None, "x", None)),
    ("flip", (16, 6), {"axis": 1}, ("x", None)),
    ("astype", (16, 6), {"dtype": "float64"}, ("x", None)),
    ("tile", (16, 6), {"reps": (1, 2)}, ("x", None)),
    ("repeat", (16, 6), {"repeats": 2, "axis": 1}, ("x", None)),
    ("tril", (16, 6), {}, ("x", None)),
    ("diagonal", (16, 6, 6), {"axis1": 1, "axis2": 2}, ("x", None)),
    ("trace", (16, 6, 6), {"axis1": 1, "axis2": 2}, ("x",)),
    ("pad", (16, 6), {"pad_width": (0, 0, 1, 2)}, ("x", None)),
]


@rows("name, shape, parameters, out_spec", NO_COLLECTIVE)
def test_nothing_moves_along_axes_that_are_not_sharded(run, name, shape, parameters, out_spec):
    x = ArrayType(shape, np.dtype("float32"))
    how = {"mesh": {"x": 8}, "in_specs": [("x", *[None] * (len(shape) - 1))], **parameters}
    resolved = run.resolve(KERNELS[name], x, **how)
    assert resolved.strategy.name == "blocks"
    assert resolved.problem.out_specs == (tuple((n,) if n else () for n in out_spec),)
    if name == "pad":
        assert not COLLECTIVE.search(run.program(KERNELS[name], x, **how).text)


def test_a_sharded_axis_that_is_sliced_stays_sharded(run):
    x, starts = ArrayType((16, 6), np.dtype("float32")), ArrayType((2,), np.dtype("int64"))
    how = {"mesh": {"x": 8}, "in_specs": [("x", None)], "steps": (1, 1)}
    resolved = run.resolve(KERNELS["getitem"], x, starts, **how, sizes=(14, 6))
    assert resolved.problem.out_specs == ((("x",), ()),)
    how |= {"sizes": (16, 4)}
    assert run.resolve(KERNELS["getitem"], x, starts, **how).strategy.name == "blocks"


X = ArrayType((5, 4), np.dtype("float32"))
SCALAR = ArrayType((), np.dtype("float32"))
STARTS = ArrayType((2,), np.dtype("int64"))
COMPLEX = ArrayType((), np.dtype("complex64"))
REFUSED = [
    ("reshape", (X,), {"shape": (3, -1)}, "shape", "INVALID_PARAMETER", "x is of shape (5, 4), 20 elements"),
    ("reshape", (X,), {"shape": (-1, -1)}, "shape", "INVALID_PARAMETER", "at most one"),
    ("reshape", (X,), {"shape": "20"}, "shape", "PARAMETER_TYPE", "str"),
    ("expand_dims", (X,), {"axis": 3}, "axis", "AXIS_OUT_OF_RANGE", "from -3 to 2"),
    ("expand_dims", (X,), {"axis": (0, -4)}, "axis", "INVALID_PARAMETER", "twice"),
    ("squeeze", (X,), {"axis": 0}, "axis", "INVALID_PARAMETER", "axes of size 1"),
    ("broadcast_to", (X,), {"shape": (5, 5)}, "shape", "INVALID_PARAMETER", "does not broadcast"),
    ("flip", (X,), {"axis": 2}, "axis", "AXIS_OUT_OF_RANGE", "from -2 to 1"),
    ("flip", (X,), {"axis": 1.0}, "axis", "PARAMETER_TYPE", "float"),
    ("concatenate", (X, SCALAR), {}, "arrays[1]", "INVALID_OPERAND", "arrays[1] is of shape ()"),
    ("concatenate", (SCALAR,), {}, "arrays[0]", "INVALID_OPERAND", "one axis or more"),
    ("stack", (X, SCALAR), {}, "arrays[1]", "INVALID_OPERAND", "one shape"),
    ("astype", (X,), {"dtype": "float3"}, "dtype", "UNSUPPORTED_ELEMENT_TYPE", "float32"),
    ("tile", (X,), {"reps": (-1,)}, "reps", "INVALID_PARAMETER", "0 or more"),
    ("repeat", (X,), {"repeats": -1}, "repeats", "INVALID_PARAMETER", "0 or more"),
    ("repeat", (X,), {"repeats": True}, "repeats", "PARAMETER_TYPE", "bool"),
    ("tril", (SCALAR,), {}, "x", "INVALID_OPERAND", "one axis or more"),
    ("diagonal", (X,), {"axis2": 0}, "axis2", "INVALID_PARAMETER", "give another"),
    ("trace", (SCALAR,), {}, "x", "INVALID_OPERAND", "two axes or more"),
    ("pad", (X,), {"pad_width": (1, 2, 3)}, "pad_width", "INVALID_PARAMETER", "2 axes"),
    ("pad", (X,), {"pad_width": -1}, "pad_width", "INVALID_PARAMETER", "0 or more"),
    ("pad", (X,), {"pad_width": 1, "mode": "mean"}, "mode", "INVALID_PARAMETER", "'reflect'"),
    ("pad", (X, SCALAR), {"pad_width": 1, "mode": "edge"}, "constant_values", "INVALID_OPERAND", "leave it out"),
    ("pad", (X, COMPLEX), {"pad_width": 1}, "constant_values", "UNSUPPORTED_ELEMENT_TYPE", "real"),
    ("getitem", (X, STARTS), {"sizes": (6, 1), "steps": (1, 1)}, "sizes", "INVALID_PARAMETER", "fewer"),
    ("getitem", (X, STARTS), {"sizes": (5, 1), "steps": (1, 0)}, "steps", "INVALID_PARAMETER", "other than 0"),
    ("getitem", (X, X), {"sizes": (5, 1), "steps": (1, 1)}, "starts", "UNSUPPORTED_ELEMENT_TYPE", "integers"),
    (
        "getitem",
        (X, STARTS),
        {"sizes": (5, 2), "steps": (1, 1), "dropped": 1},
        "dropped",
        "INVALID_PARAMETER",
        "size 1",
    ),
]


@rows("name, operands, parameters, field, reason, text", REFUSED)
def test_refusals_name_the_argument(refused, name, operands, parameters, field, reason, text):
    error = refused(KERNELS[name], *operands, mesh={"x": 2}, **parameters)
    assert (error.field, error.reason) == (field, Reason[reason])
    assert text in error.message
