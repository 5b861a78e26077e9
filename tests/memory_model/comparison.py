"""Runs programs with NumPy's arrays and with arrays on the mesh, and compares these after every statement."""

import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from memory_model.programs import Program, compiled, drawn_program, live, new_space, run

import shardcall as sc

REFUSED = (
    "does not run on the mesh",
    "are in row-major order",
    "has no attribute",
    "would be lost",
    "does not change arrays on the mesh",
    "sets the shape of its argument",
)
"""Parts of the messages about what arrays on the mesh refuse by name."""

_NOT_REFUSED = (
    "setting an array element with a sequence",  # from NumPy 2.4 on, an array of one element in place of a number
    "only 0-dimensional arrays can be converted",
    "output array has wrong dimensions",  # numpy.dot of an empty array and a number, which broadcasts otherwise
)
"""Parts of NumPy's messages about what arrays on the mesh do not refuse."""

_SEED = os.environ.get("FUZZ_SEED", "2")
_MAX_SHOWN, _MAX_SKIPPED = 12, 0.3


@dataclass
class Tally:
    """The totals of a comparison.

    Attributes:
        programs: the programs.
        statements: their statements.
        skipped: the statements that were refused by name, by the reason.
        faults: the descriptions of programs that differ, the shortest form of each.
    """

    programs: int = 0
    statements: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        skipped = ", ".join(f"{reason} {count}" for reason, count in self.skipped.most_common(4))
        return f"{self.programs} programs, {self.statements} statements, refused by name: {skipped or 'none'}"


def check(
    difference_of: Callable[[Program, Tally], str], programs: Sequence[Program] | Any, tally: Tally, *, shown: int = 20
) -> None:
    """Compares programs; adds the shortest form of those that differ to the faults.

    Args:
        difference_of: compares a program; returns the difference, empty if there is none.
        programs: the programs.
        tally: counts what was compared.
        shown: the number of faults behind which no others are looked for.
    """
    for program in programs:
        tally.programs += 1
        difference = difference_of(program, tally)
        if not difference:
            continue
        shorter, difference = shortest(program, difference, lambda program: difference_of(program, Tally()))
        tally.faults.append(f"{shorter.source()}\n# {difference}")
        if len(tally.faults) >= shown:
            return


def compare_drawn(
    comparison: Callable[[Program, Tally], str],
    numbers: range,
    record_property: Callable[[str, object], None],
    **options: bool,
) -> None:
    """Compares random programs, which are drawn by their numbers, and records the totals as a figure.

    Raises:
        AssertionError: if a program differs, or too many are refused by name.
    """
    tally = Tally()
    check(comparison, (drawn_program(_SEED, number, **options) for number in numbers), tally)
    record_property("figure", f"memory model, seed {_SEED}: {tally}")
    assert not tally.faults, "\n\n".join([f"{len(tally.faults)} programs differ", *tally.faults])
    assert tally.skipped.total() < max(2, _MAX_SKIPPED * tally.programs), str(tally)


def shortest(program: Program, difference: str, difference_of: Callable[[Program], str]) -> tuple[Program, str]:
    """Returns a program without the statements and arrays that a difference does not need, and the difference."""
    position = len(program.lines)
    while position:
        position -= 1
        lines = program.lines[:position] + program.lines[position + 1 :]
        failing = frozenset(i - (i > position) for i in program.failing if i != position)
        shorter = replace(program, lines=lines, failing=failing)
        if lines and _is_good(shorter) and (other := difference_of(shorter)):
            program, difference = shorter, other
            position = min(position, len(program.lines))
    for name in list(program.inputs):
        shorter = replace(program, inputs={key: text for key, text in program.inputs.items() if key != name})
        if shorter.inputs and _is_good(shorter) and (other := difference_of(shorter)):
            program, difference = shorter, other
    return program, difference


def _is_good(program: Program) -> bool:
    """Returns whether NumPy refuses the statements that it refused before, and no others."""
    space = new_space(program.inputs, lambda x: x)
    return all((run(line, space) is not None) == (i in program.failing) for i, line in enumerate(program.lines))


class EagerComparison:
    """Compares programs that run statement by statement.

    Args:
        put: puts an array on the mesh.
        values_of: copies an array from the mesh.
        reads_all: whether all arrays are read after each statement, and not now and then.
    """

    def __init__(self, put: Callable[[np.ndarray], Any], *, reads_all: bool = True) -> None:
        self._put = put
        self._reads_all = reads_all

    def __call__(self, program: Program, tally: Tally) -> str:
        """Returns the first difference; empty if there is none."""
        chance = random.Random(program.label)
        theirs, ours = new_space(program.inputs, lambda x: x), new_space(program.inputs, self._put)
        for i, line in enumerate(program.lines):
            expected, actual = run(line, theirs), run(line, ours)
            is_last = i == len(program.lines) - 1
            if expected is None and actual is not None and (reason := refusal(actual)):
                tally.skipped[reason] += 1
                return ""
            if any(text in str(expected) for text in _NOT_REFUSED):
                return ""
            tally.statements += 1
            difference = _errors_differ(line, expected, actual)
            if not difference and (self._reads_all or is_last or chance.random() < 0.3):
                difference = differences(live(theirs), live(ours), chance)
            if difference:
                return f"after statement {i + 1}, {line}: {difference}"
        return ""


class TracedComparison:
    """Compares programs that run as one traced function, which writes to its arguments and to what it refers to.

    Args:
        client: the client.
    """

    def __init__(self, client: sc.Client, put: Callable[[np.ndarray], Any]) -> None:
        self._client = client
        self._put = put

    def __call__(self, program: Program, tally: Tally) -> str:
        """Returns the first difference; empty if there is none."""
        chance = random.Random(program.label)
        arguments = sorted(name for name in program.inputs if name in _assigned(program) or chance.random() < 0.5)
        closed = sorted(program.inputs.keys() - set(arguments))
        text = _function_text(program, arguments, closed)
        theirs, ours = new_space(program.inputs, lambda x: x), new_space(program.inputs, self._put)
        if arguments and chance.random() < 0.3:  # an argument is a view of what the function refers to, or of another
            other = chance.choice([*program.inputs])
            if theirs[other].ndim:
                run(f"{arguments[0]} = {other}[...]", theirs)
                run(f"{arguments[0]} = {other}[...]", ours)
        outcomes = []
        for space in (theirs, ours):
            exec(compiled(text), space)  # of this file
            function = space["build"](*(space[name] for name in closed))
            function = function if space is theirs else self._client.jit(function)
            outcomes.append((function, [space[name] for name in arguments]))
        for count in (1, 2):
            before = {name: np.copy(theirs[name]) for name in program.inputs}
            for space, (function, values) in zip((theirs, ours), outcomes, strict=True):
                space["call"] = lambda function=function, values=values: function(*values)
            expected, actual = run("r = call()", theirs), run("r = call()", ours)
            if expected is not None:
                return ""  # of an array of another shape
            if actual is not None and (reason := refusal(actual)):
                tally.skipped[reason] += 1
                return ""
            if actual is not None:
                return f"call {count} of a traced function: {_shown(actual)}"
            tally.statements += len(program.lines)
            written = [name for name, value in before.items() if value.tobytes() != theirs[name].tobytes()]
            if difference := differences(live(theirs), live(ours), chance, pairs=6, written=written):
                return f"after call {count} of a traced function of {arguments}: {difference}"
        return ""


def refusal(error: Exception) -> str:
    """Returns the part of a message that refuses a call by name; empty for other errors."""
    text = str(error)
    if isinstance(error, sc.TracingError) and "values of an array" in text:
        return "values in a trace"
    return next((part for part in REFUSED if part in text), "")


def differences(
    expected: Mapping[str, Any],
    actual: Mapping[str, Any],
    chance: random.Random,
    *,
    pairs: int = 1,
    written: Sequence[str] | None = None,
) -> str:
    """Returns the difference between the arrays of two programs; empty if there is none.

    Args:
        expected: NumPy's arrays by their expressions.
        actual: the others.
        chance: draws the pairs of arrays whose memory is compared.
        pairs: how many.
        written: the names of arrays that a traced function has written to, of which results may be views; of others
            they are copies. None if no function was traced.
    """
    if [*expected] != [*actual]:
        return f"the names are {[*actual]}, and not {[*expected]}"
    for name, value in expected.items():
        other = actual[name]
        if (np.shape(value), value.dtype) != (np.shape(other), other.dtype):
            return f"{name} is {other.dtype}{list(np.shape(other))}, and not {value.dtype}{list(value.shape)}"
        try:
            values = np.asarray(other)
        except Exception as error:  # noqa: BLE001  # to be compared
            return f"{name} is not read: {_shown(error)}"
        if value.tobytes() != values.tobytes() and not np.array_equal(
            value, values, equal_nan=value.dtype.kind in "fc"
        ):
            return f"{name} is\n{_text(values)}\n# and not\n{_text(value)}"
    arrays = [name for name, value in expected.items() if isinstance(value, np.ndarray)]
    for _ in range(pairs if arrays else 0):
        first, second = sorted((chance.choice(arrays), chance.choice(arrays)), reverse=True)
        shares = np.shares_memory(expected[first], expected[second])
        if (
            written is not None
            and shares
            and first.startswith("r")
            and not any(np.shares_memory(expected[first], expected[name]) for name in written)
        ):
            continue
        if np.shares_memory(actual[first], actual[second]) != shares:
            return f"{first} and {second} share memory: {not shares}, and not {shares}"
        if written is None and expected[first].size:  # NumPy returns some empty arrays as they are
            for flag in ("writeable", "c_contiguous", "f_contiguous"):
                flags = getattr(expected[first].flags, flag), getattr(actual[first].flags, flag)
                if flags[0] != flags[1]:
                    return f"{first}.flags.{flag} is {flags[1]}, and not {flags[0]}"
    return ""


def _errors_differ(statement: str, expected: Exception | None, actual: Exception | None) -> str:
    if expected is None:
        return "" if actual is None else f"raises {_shown(actual)}"
    if actual is None:
        return f"raises nothing, and NumPy {_shown(expected)}"
    if (
        "out=" in statement
        and isinstance(expected, TypeError | ValueError)
        and isinstance(actual, TypeError | ValueError)
    ):
        return ""  # of two reasons either
    family = next(item for item in type(expected).__mro__ if item.__module__ in ("builtins", "numpy.exceptions"))
    return "" if isinstance(actual, family) else f"raises {_shown(actual)}, and NumPy {_shown(expected)}"


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"


def _text(values: np.ndarray) -> str:
    lines = str(values).splitlines()
    return "\n".join(f"#   {line}" for line in lines[:_MAX_SHOWN])


def _assigned(program: Program) -> set[str]:
    """Returns the names that statements assign to, as Python sees them."""
    code = compile("def f():\n    " + "\n    ".join(program.lines), "<program>", "exec").co_consts[0]
    return set(code.co_varnames)


def _function_text(program: Program, arguments: Sequence[str], closed: Sequence[str]) -> str:
    """Returns the text of a function whose call is the program, and that returns the arrays that it has at its end."""
    space = new_space(program.inputs, lambda x: x)
    for line in program.lines:
        run(line, space)
    names = sorted({name[0] for name in live(space)})
    values = ", ".join(f"{name!r}: {name}" for name in names if type(space[name]).__name__ != "Holder")
    lines = [f"def build({', '.join(closed)}):", f"    def program({', '.join(arguments)}):"]
    lines += [f"        {line}" for line in program.lines] + [f"        return {{{values}}}", "    return program"]
    return "\n".join(lines)
