"""Random programs of NumPy's functions: arrays on the mesh give what NumPy gives, line by line."""

import os
import random
from dataclasses import replace

import pytest
from end_to_end.numpy_calls import calls_of
from end_to_end.numpy_comparison import Tally, TracedComparison
from end_to_end.numpy_names import CHANGING, functions_of_numpy, functions_of_scipy
from end_to_end.numpy_pairs import triple_programs
from end_to_end.numpy_programs import Line, Program, random_array

from shardcall.namespace import Namespace
from shardcall_core.functions.table import FUNCTIONS

MENDED = calls_of("""
    np.dot(x, t)
    t.dot(t)
    x.astype(None{|, casting='safe'})
    np.astype(m, None)
    np.gradient({z|x, axis=()})
    m ** 2
    m**3
    np.pad(x, {0: 1})
    np.pad(x, {-1: (0, 2)})
    np.quantile(f, [[0.1], [0.9]])
    np.nanpercentile({f, [[2], [98]], 1|e * 1j, 2})
    np.convolve({z, z|f[0], True})
    np.linalg.lstsq(t, f)
    np.linalg.{matrix_norm|vector_norm}(f, ord=None)
    np.linalg.matrix_norm(f[:0], ord=2)
    np.linalg.cond(e)
    np.linalg.{pinv|matrix_rank}(f[:2], hermitian=True)
    np.take(e, [])
    e.take(-1)
    x.take({2j|1e300})
    np.nan_to_num(f, nan=numpy.ones(3, complex))
    np.repeat(x, 2j)
    np.fabs({x|m})
    np.subtract(2, f, dtype='uint32', casting='equiv')
    np.multiply(x, 2, casting='equiv')
    np.histogram_bin_edges(x, [0, 1], weights=2)
    np.histogramdd(f[:0].astype('f'))
    np.put_along_axis(+e, e, f[:0, :0].reshape(1, 0), -1)
    np.corrcoef(e[:, None] * 1j)
    np.cov(f[:0], z)
    np.copyto({+x, 2**40, casting='unsafe'|x, x, where=f[0, 0] > 9|z, z, where=m|+f, 2j, casting='unsafe'})
    np.bitwise_or.at(+x, [], 1)
    np.piecewise(+x, [m], [1e300])
    np.insert(x, slice(1, 2), f[:1, :1].reshape(1, 1, 1))
    np.extract(True, e)
    """)
"""Calls that programs showed to differ: z has no axes, e no elements, m is of bool, x of int8, f and t of floats."""

UNDRAWN = {
    *("getitem", "setitem", "take_at", "put_at", "update", "complex"),  # indices
    *("uniform", "normal", "randint", "permutation"),  # other numbers than NumPy's
    *("collective_matmul", "laplacian", "shift", "reshard", "with_spec", "solve_triangular"),  # not in NumPy
    *("fori_loop", "while_loop", "scan"),  # of functions
    *("can_cast", "result_type", "isdtype", "finfo", "iinfo", "broadcast_shapes"),  # of types and shapes alone
    *("from_dlpack", "fromfunction", "tri", "empty_like"),  # of no array, or with no values
    "unique_values",
    *CHANGING,  # statements
}
"""Functions that programs do not draw by themselves."""

SEED = os.environ.get("FUZZ_SEED", "2")
_TRIPLES = 40
_MAX_SKIPPED = 0.2
_SHOWN = 20


def check(tally: Tally) -> None:
    assert not tally.faults, "\n".join([f"{len(tally.faults)} faults", *tally.faults[:_SHOWN]])
    skipped = tally.skipped.total()
    assert skipped < _MAX_SKIPPED * (skipped + tally.compared.total()), str(tally)


def compare_lines(comparison: TracedComparison, programs) -> None:
    """Compares all lines of programs, also behind one that differs."""
    for program in programs:
        rest = program
        while (difference := comparison.check(rest)) is not None:
            rest = replace(rest, lines=rest.lines[difference.index + 1 :])


def test_programs_draw_the_rows_of_the_table_and_the_functions_of_the_namespace():
    names = [*functions_of_numpy(uses_xp=True)[0], *functions_of_scipy()]
    drawn = {name.rpartition(".")[2] for name in names}
    parts = {"emath", "fft", "lib", "linalg", "special"}
    assert (FUNCTIONS.keys() | Namespace(None).function_names - parts) - drawn == UNDRAWN


def test_calls_that_once_differed(client):
    draws = random.Random(0)
    types = {"z": ((), "float32"), "e": ((0,), "int16"), "m": ((3, 3), "bool"), "x": ((3, 3), "int8")}
    types |= {"f": ((3, 3), "float64"), "t": ((3, 3, 3), "float32")}
    inputs = {name: random_array(draws, *shape_and_type) for name, shape_and_type in types.items()}
    lines = [Line(f"r = {call}", call, (), "r") for call in MENDED]
    tally = Tally()
    compare_lines(TracedComparison(client, tally), [Program("mended", inputs, lines=lines)])
    assert not tally.faults, "\n".join(tally.faults)
    assert tally.compared.total() == len(MENDED)


@pytest.mark.parametrize("uses_xp", [False, True], ids=["numpy", "xp"])
def test_functions_of_several_operands_promote_triples_of_types(client, uses_xp):
    tally = Tally()
    compare_lines(TracedComparison(client, tally), triple_programs(SEED, _TRIPLES, uses_xp=uses_xp))
    check(tally)
