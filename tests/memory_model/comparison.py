"""Runs programs with NumPy's arrays and with arrays on the mesh, and compares these after every statement."""

import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from memory_model.programs import Program, drawn_program, live, new_space, run

import shardcall as sc

REFUSED = (
    "does not run on the mesh",
    "are in row-major order",
    "has no attribute",
    "would be lost",
    "does not change arrays on the mesh",
    "sets the shape of its argument",
    "whose shape it has set",
)
"""Parts of the messages about what arrays on the mesh refuse by name."""

_NOT_REFUSED = (
    "setting an array element with a sequence",  # from NumPy 2.4 on, an array of one element in place of a number
    "only 0-dimensional arrays can be converted",
    "output array has wrong dimensions",  # numpy.dot of an empty array and a number, which broadcasts otherwise
)
"""Parts of NumPy's messages about what arrays on the mesh do not refuse."""

_SEED = os.environ.get("FUZZ_SEED", "2")
_MAX_LINES, _MAX_FAULTS, _MAX_REFUSED = 12, 20, 0.3


def compare_drawn(
    comparison: Callable[[Program, Counter[str]], str],
    numbers: range,
    record_property: Callable[[str, object], None],
    **options: bool,
) -> None:
    """Compares random programs, which are drawn by their numbers, and records the totals as a figure.

    Args:
        comparison: returns the difference of a program, empty if there is none, and counts it if it is refused by name.
        numbers: the numbers of the programs.
        record_property: the fixture.
        **options: of the draw.

    Raises:
        AssertionError: if a program differs, or too many are refused by name.
    """
    refused, faults = Counter[str](), list[str]()
    for number in numbers:
        program = drawn_program(_SEED, number, **options)
        if difference := comparison(program, refused):
            faults.append(f"{program.source()}\n# {difference}")
    figure = f"memory model, seed {_SEED}: {len(numbers)} programs, refused by name: {dict(refused.most_common(4))}"
    record_property("figure", figure)
    assert not faults, "\n\n".join([f"{len(faults)} programs differ", *faults[:_MAX_FAULTS]])
    assert refused.total() < max(2, _MAX_REFUSED * len(numbers)), figure


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

    def __call__(self, program: Program, refused: Counter[str]) -> str:
        """Returns the first difference; empty if there is none."""
        chance = random.Random(program.label)
        theirs, ours = new_space(program.inputs, lambda x: x), new_space(program.inputs, self._put)
        for i, line in enumerate(program.lines):
            expected, actual = run(line, theirs), run(line, ours)
            if expected is not None and actual is None:
                actual = _error_of_arrays(live(ours))
            is_last = i == len(program.lines) - 1
            if expected is None and actual is not None and (reason := refusal(actual)):
                refused[reason] += 1
                return ""
            if any(text in str(expected) for text in _NOT_REFUSED):
                return ""
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

    def __call__(self, program: Program, refused: Counter[str]) -> str:
        """Returns the first difference; empty if there is none."""
        chance = random.Random(program.label)
        arguments = sorted(name for name in program.inputs if name in _assigned(program) or chance.random() < 0.5)
        closed = sorted(program.inputs.keys() - set(arguments))
        created = closed if chance.random() < 0.3 else []  # by the function itself
        closed = closed if not created else []
        text = _function_text(program, arguments, closed, created)
        theirs, ours = new_space(program.inputs, lambda x: x), new_space(program.inputs, self._put)
        if arguments and chance.random() < 0.3:  # an argument is a view of what the function refers to, or of another
            other = chance.choice([*program.inputs])
            if theirs[other].ndim:
                run(f"{arguments[0]} = {other}[...]", theirs)
                run(f"{arguments[0]} = {other}[...]", ours)
        outcomes = []
        for space in (theirs, ours):
            exec(text, space)  # of this file
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
                refused[reason] += 1
                return ""
            if actual is not None:
                return f"call {count} of a traced function: {_shown(actual)}"
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
        if value.tobytes() != values.tobytes() and not _equal(value, values):
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


def _equal(expected: np.ndarray, actual: np.ndarray) -> bool:
    """Returns whether arrays are equal; numbers that a double may round may differ in their last bits."""
    if expected.dtype.kind not in "fc":
        return np.array_equal(expected, actual)
    tolerances = np.where(np.abs(expected) > 2.0**50, 1e-12, 0)
    return bool(np.isclose(actual, expected, tolerances, 0, equal_nan=True).all())


def _error_of_arrays(arrays: Mapping[str, Any]) -> Exception | None:
    """Returns the error of a write on the mesh, which its readers raise, one time; None if there is none."""
    for array in arrays.values():
        try:
            np.asarray(array)
        except Exception as error:  # noqa: BLE001  # to be compared
            return error
    return None


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
    return "\n".join(f"#   {line}" for line in lines[:_MAX_LINES])


def _assigned(program: Program) -> set[str]:
    """Returns the names that statements assign to, as Python sees them."""
    code = compile("def f():\n    " + "\n    ".join(program.lines), "<program>", "exec").co_consts[0]
    return set(code.co_varnames)


def _function_text(
    program: Program, arguments: Sequence[str], closed: Sequence[str], created: Sequence[str] = ()
) -> str:
    """Returns the text of a function whose call is the program, and that returns the arrays that it has at its end."""
    space = new_space(program.inputs, lambda x: x)
    for line in program.lines:
        run(line, space)
    names = sorted({name[0] for name in live(space)})
    values = ", ".join(f"{name!r}: {name}" for name in names if type(space[name]).__name__ != "Holder")
    lines = [f"def build({', '.join(closed)}):", f"    def program({', '.join(arguments)}):"]
    lines += [f"        {name} = np.array({program.inputs[name]})" for name in created]
    lines += [f"        {line}" for line in program.lines] + [f"        return {{{values}}}", "    return program"]
    return "\n".join(lines)
