"""Results for infinities, NaNs and signed zeros, as the array API standard 2024.12 defines them.

Complex numbers with such parts are in kernels/test_edge_numbers_long.py.
"""

import re

import numpy as np
import pytest

REAL = """
abs        -0:0 inf:inf -inf:inf nan:nan
acos       nan:nan 2:nan -2:nan inf:nan -inf:nan 1:0
acosh      nan:nan 0.5:nan -inf:nan 1:0 inf:inf
asin       nan:nan 2:nan -2:nan inf:nan -inf:nan 0:0 -0:-0
asinh      nan:nan 0:0 -0:-0 inf:inf -inf:-inf
atan       nan:nan 0:0 -0:-0 inf:pi/2 -inf:-pi/2
atanh      nan:nan 2:nan -2:nan -1:-inf 1:inf 0:0 -0:-0
ceil       nan:nan inf:inf -inf:-inf 0:0 -0:-0 3:3 -0.5:-0 2.25:3 -2.75:-2
cos        nan:nan 0:1 -0:1 inf:nan -inf:nan
cosh       nan:nan 0:1 -0:1 inf:inf -inf:inf
exp        nan:nan 0:1 -0:1 inf:inf -inf:0
expm1      nan:nan 0:0 -0:-0 inf:inf -inf:-1
floor      nan:nan inf:inf -inf:-inf 0:0 -0:-0 3:3 2.75:2 -2.25:-3
isfinite   nan:0 inf:0 -inf:0 0:1 -0:1 7:1
isinf      nan:0 inf:1 -inf:1 0:0 7:0
isnan      nan:1 inf:0 -inf:0 0:0 7:0
log        nan:nan -1:nan -inf:nan 0:-inf -0:-inf 1:0 inf:inf
log10      nan:nan -1:nan -inf:nan 0:-inf -0:-inf 1:0 inf:inf
log1p      nan:nan -2:nan -inf:nan -1:-inf -0:-0 0:0 inf:inf
log2       nan:nan -1:nan -inf:nan 0:-inf -0:-inf 1:0 inf:inf
negative   nan:nan 0:-0 -0:0 inf:-inf -inf:inf
reciprocal nan:nan inf:0 -inf:-0 0:inf -0:-inf
round      nan:nan inf:inf -inf:-inf 0:0 -0:-0 0.5:0 -0.5:-0 1.5:2 2.5:2 -2.5:-2 3:3
sign       nan:nan -3:-1 -inf:-1 0:0 -0:0 3:1 inf:1
signbit    inf:0 -inf:1 0:0 -0:1 4:0 -4:1
sin        nan:nan 0:0 -0:-0 inf:nan -inf:nan
sinh       nan:nan 0:0 -0:-0 inf:inf -inf:-inf
sqrt       nan:nan -1:nan -inf:nan 0:0 -0:-0 inf:inf
square     nan:nan 0:0 -0:0 inf:inf -inf:inf
tan        nan:nan 0:0 -0:-0 inf:nan -inf:nan
tanh       nan:nan 0:0 -0:-0 inf:1 -inf:-1
trunc      nan:nan inf:inf -inf:-inf 0:0 -0:-0 3:3 2.75:2 -2.75:-2 -0.5:-0
"""
PAIRS = """
add           nan,1:nan 1,nan:nan inf,-inf:nan -inf,inf:nan inf,inf:inf -inf,-inf:-inf inf,2:inf 2,-inf:-inf -0,-0:-0
add           -0,0:0 0,-0:0 0,0:0 -0,3:3 3,-3:0 -3,3:0
atan2         nan,1:nan 1,nan:nan 2,0:pi/2 2,-0:pi/2 -2,0:-pi/2 -2,-0:-pi/2 0,2:0 0,0:0 0,-0:pi 0,-2:pi -0,2:-0 -0,0:-0
atan2         -0,-0:-pi -0,-2:-pi 2,inf:0 2,-inf:pi -2,inf:-0 -2,-inf:-pi inf,2:pi/2 -inf,-2:-pi/2 inf,inf:pi/4
atan2         inf,-inf:3pi/4 -inf,inf:-pi/4 -inf,-inf:-3pi/4
copysign      2,-3:-2 -2,3:2 2,-0:-2 -2,0:2 0,-1:-0 inf,-1:-inf -inf,0:inf nan,1:nan
divide        nan,1:nan 1,nan:nan inf,inf:nan inf,-inf:nan 0,0:nan -0,0:nan 0,2:0 -0,2:-0 0,-2:-0 -0,-2:0 2,0:inf
divide        2,-0:-inf -2,0:-inf -2,-0:inf inf,2:inf inf,-2:-inf -inf,2:-inf -inf,-2:inf 2,inf:0 2,-inf:-0 -2,inf:-0
equal         nan,nan:0 nan,1:0 inf,inf:1 -inf,inf:0 0,-0:1
floor_divide  nan,1:nan 1,nan:nan inf,inf:nan -inf,inf:nan 0,0:nan 0,-0:nan 0,2:0 -0,2:-0 0,-2:-0 -0,-2:0 2,0:inf
floor_divide  2,-0:-inf -2,0:-inf -2,-0:inf 2,inf:0 -2,-inf:0 -2,inf:-0 2,-inf:-0 inf,2:inf inf,-2:-inf -inf,2:-inf
floor_divide  -inf,-2:inf
greater       nan,1:0 1,nan:0 inf,1:1 -inf,1:0 0,-0:0
greater_equal nan,nan:0 inf,inf:1 0,-0:1
hypot         nan,inf:inf inf,nan:inf -inf,nan:inf nan,1:nan 1,nan:nan -inf,2:inf -0,-0:0
less          nan,1:0 1,nan:0 inf,1:0 -inf,1:1 -0,0:0
less_equal    nan,nan:0 inf,inf:1 -0,0:1
logaddexp     nan,1:nan 1,nan:nan inf,nan:nan inf,1:inf 1,inf:inf
maximum       nan,1:nan 1,nan:nan inf,nan:nan inf,1:inf -inf,1:1
minimum       nan,1:nan 1,nan:nan -inf,nan:nan inf,1:1 -inf,1:-inf
multiply      nan,1:nan inf,0:nan -inf,-0:nan 0,inf:nan inf,inf:inf inf,-inf:-inf inf,2:inf -inf,2:-inf 2,-0:-0 -2,-0:0
nextafter     nan,1:nan 1,nan:nan 1,1:1 0,-0:-0 -0,0:0 inf,inf:inf
not_equal     nan,nan:1 nan,1:1 inf,inf:0 0,-0:0
pow           nan,0:1 nan,-0:1 inf,0:1 0,0:1 -0,-0:1 7,0:1 nan,2:nan 2,nan:nan 1,nan:1 1,inf:1 -1,inf:1 -1,-inf:1
pow           2,inf:inf -2,inf:inf 2,-inf:0 -2,-inf:0 0.5,inf:0 -0.5,inf:0 0.5,-inf:inf -0.5,-inf:inf inf,2:inf inf,-2:0
pow           -inf,3:-inf -inf,2:inf -inf,0.5:inf -inf,-3:-0 -inf,-2:0 0,2:0 0,-2:inf -0,3:-0 -0,2:0 -0,0.5:0 -0,-3:-inf
pow           -0,-2:inf -0,-0.5:inf -2,0.5:nan -2,-0.5:nan
remainder     nan,1:nan 1,nan:nan inf,2:nan -inf,inf:nan 0,0:nan -0,0:nan 2,0:nan -2,-0:nan 0,2:0 -0,2:0 0,-2:-0
remainder     -0,-2:-0 4,2:0 -4,2:0 4,-2:-0 -4,-2:-0 2,inf:2 2,-inf:-inf -2,inf:inf -2,-inf:-2
subtract      nan,1:nan inf,inf:nan -inf,-inf:nan inf,-inf:inf -0,0:-0 0,0:0 -0,-0:0 3,3:0
"""
"""Operands and results."""

NUMPY_WINS = {"-2,inf:-0", "2,-inf:-0", "inf,2:inf", "inf,-2:-inf", "-inf,2:-inf", "-inf,-2:inf"}
"""The cases of floor_divide that NumPy does not follow, either: results are NumPy's."""


def rows_of(table):
    rows = {}
    for line in table.strip().splitlines():
        name, *cases = line.split()
        rows.setdefault(name, []).extend(cases)
    return rows


def number(text):
    match = re.fullmatch(r"(-?)(\d*)pi(?:/(\d))?", text)
    if match is None:
        return float(text)
    return (-1 if match[1] else 1) * int(match[2] or 1) * np.pi / int(match[3] or 1)


def operands_of(cases, dtype):
    """Returns the operands of cases as arrays."""
    texts = [case.partition(":")[0].split(",") for case in cases]
    return [np.array([number(text) for text in column], dtype) for column in zip(*texts, strict=True)]


def agrees(actual, text):
    """Returns whether a number is what a table says: the same bits, but for fractions of pi."""
    expected = number(text)
    if np.isnan(expected):
        return np.isnan(actual)
    if "pi" in text:
        return abs(actual - expected) <= 2 * np.spacing(actual.dtype.type(abs(expected)))
    return actual == expected and np.signbit(actual) == np.signbit(expected)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("table", [REAL, PAIRS], ids=["real", "pairs"])
def test_special_values(client, table, dtype):
    rows = rows_of(table)
    operands = {name: operands_of(cases, dtype) for name, cases in rows.items()}
    run = client.jit(lambda arguments: {name: getattr(client.xp, name)(*item) for name, item in arguments.items()})
    results = run(operands)
    wrong = []
    for name, cases in rows.items():
        with np.errstate(all="ignore"):
            numpys = getattr(np, name)(*operands[name])
        ours = results[name].get()
        assert ours.dtype == numpys.dtype
        for case, result, other in zip(cases, ours, numpys, strict=True):
            is_numpys = name == "floor_divide" and case in NUMPY_WINS
            if repr(result) != repr(other) if is_numpys else not agrees(result, case.partition(":")[2]):
                wrong.append(f"{name} {case}: {result}, and NumPy has {other}")
    assert not wrong
