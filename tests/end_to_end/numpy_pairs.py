"""Programs that call functions of several operands with every pair, and with triples, of element types."""

import random
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from end_to_end.numpy_arguments import TYPES
from end_to_end.numpy_calls import calls_of
from end_to_end.numpy_programs import Line, Program

CORE = calls_of("""
    np.where(m, {x}, {y})
    np.clip({x}, {y}, 100)
    np.select([m, n], [{x}, {y}])
    {x} * {y}
    np.{dot|isclose}({x}, {y})
    np.average({x}, weights={y})
    np.interp({x}, [0, 1, 2], {y})
    np.concatenate([{x}, {y}])
    np.stack(({x}, {y}))
    np.add({x}, 1, dtype={y}.dtype)
    """)
"""Calls with two operands whose types NumPy promotes, of which silent faults were found."""

PAIRS = CORE + calls_of("""
    np.clip({x}, None, {y})
    {x}.clip({y})
    np.select([m], [{x}], {y})
    np.{copysign|heaviside|float_power|nextafter|gcd|minimum|fmod|divmod|logaddexp|hypot|logical_or}({x}, {y})
    np.arctan2({y}, {x})
    np.interp({x}, {y}, [1, 2, 3])
    np.{isin|searchsorted|digitize|inner|outer|vdot|kron|matmul|vecdot|cross|convolve|append|cov|corrcoef}({x}, {y})
    np.matvec({x}[None], {y})
    np.vecmat({x}, {y}[:, None])
    np.einsum('i,i', {x}, {y})
    np.tensordot({x}, {y}, 1)
    np.insert({x}, 1, {y})
    np.diff({x}, prepend={y})
    np.ediff1d({x}, to_end={y})
    np.trapezoid({y}, {x})
    np.full_like({x}, {y})
    np.full_like({x}, 3, {y}.dtype)
    np.nan_to_num({x}, nan={y})
    np.{linspace|geomspace|logspace}({x}, {y}, 3)
    np.{take|bincount|repeat|broadcast_arrays|result_type}({x}, {y})
    np.{sum|mean|std|cumsum|sqrt}({x}, dtype={y}.dtype)
    np.{sum|max}({x}, initial=numpy.ones((), {y}.dtype)[()])
    np.pad({x}, 1, constant_values=numpy.ones((), {y}.dtype)[()])
    np.percentile({x}, numpy.asarray(50, {y}.dtype))
    np.histogram({x}, 3, weights={y})
    np.asarray({x}, dtype={y}.dtype)
    {x}[{y}]
    np.linalg.solve(numpy.eye(3).astype({x}.dtype), {y})
    {x} {+|-|/|//|%|**|&|<<|<|==|@} {y}
    np.array_split({x}, 2)
    np.{hstack|linalg.multi_dot}([{x}, {y}])
    np.linalg.outer({x}, {y})
    """)
"""Calls with two operands."""

TRIPLES = calls_of("""
    np.{clip|interp|ediff1d}({x}, {y}, {z})
    np.select([m, n], [{x}, {y}], {z})
    np.where(m, {x}, np.where(n, {y}, {z}))
    np.{concatenate|stack|column_stack|vstack|dstack}([{x}, {y}, {z}])
    np.hstack(({x}, {y}, {z}))
    np.einsum('i,i,i', {x}, {y}, {z})
    np.select([m, n, m], [{x}, {y}, {z}])
    np.clip({x}, {y}, {z}[0])
    np.isclose({x}, {y}, numpy.ones((), {z}.dtype)[()])
    np.diff({x}, 1, 0, {y}, {z})
    np.nan_to_num({x}, nan=1, posinf=2, neginf=3)
    np.{cov|add}({x}, {y}, dtype={z}.dtype)
    np.linspace({x}, {y}, 3, dtype={z}.dtype)
    np.concatenate([{x}, {y}], dtype={z}.dtype)
    """)
"""Calls with three operands."""

_MAX_LINES = 100  # of a program, some of whose functions make ten calls of the 4,096 that a trace may have

NUMBERS = ("True", "3", "-3", "300", "2**40", "0.5", "70000.0", "1e300", "2j", "numpy.int8(3)", "numpy.float16(2)")
"""Numbers of Python, and some of NumPy, in place of the last operand."""


def pair_programs(calls: Sequence[str] = PAIRS, *, uses_xp: bool = False, numbers: bool = True) -> Iterator[Program]:
    """Yields programs that call functions with each pair of types, and each type beside each number."""
    for call in calls:
        others = (*TYPES, *NUMBERS) if numbers and ".dtype" not in call else TYPES
        for x in TYPES:
            yield _program(call, [(x, y) for y in others], uses_xp)


def triple_programs(seed: str, count: int, *, uses_xp: bool = False) -> Iterator[Program]:
    """Yields programs that call each function with several triples of types."""
    for call in TRIPLES:
        chance = random.Random(f"{seed} {call}")
        thirds = TYPES if "{z}." in call or "{z}[" in call else (*TYPES, *NUMBERS)
        triples = chance.sample([*product(TYPES, TYPES, thirds)], count)
        for i in range(0, count, _MAX_LINES):
            yield _program(call, triples[i : i + _MAX_LINES], uses_xp)


def _program(call: str, operands: list[tuple[str, ...]], uses_xp: bool) -> Program:
    arrays = {f"x_{name}": np.array([1, 0, 1] if name == "bool" else [1, 2, 4]).astype(name) for name in TYPES}
    used = {name for names in operands for name in names}
    arrays = {name: array for name, array in arrays.items() if name.removeprefix("x_") in used}
    masks = {"m": np.array([True, False, True]), "n": np.array([False, True, True])}
    lines = []
    for names in operands:
        texts = [f"x_{name}" if name in TYPES else name for name in names]
        lines.append(Line(f"r = {call.format(**dict(zip('xyz', texts, strict=False)))}", call, (), "r"))
    return Program(call, {**arrays, **masks}, frozenset(), uses_xp, lines)
