"""Programs of NumPy's functions, run by NumPy and by the service, and compared line by line."""

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from end_to_end.numpy_names import ORACLES
from end_to_end.numpy_programs import Line, Program, converts_what_does_not_fit, operands_of, run_line, without

import shardcall as sc
from shardcall._src.device_arrays.masked_elements import MaskedElements

_FAMILIES = (
    *(np.exceptions.AxisError, np.linalg.LinAlgError, IndexError, OverflowError, ZeroDivisionError, TypeError),
    *(ValueError, AttributeError, NameError, NotImplementedError),
)
MISSING = (
    *("mode is a function", "values is of complex", "does not run on the mesh", "has no attribute"),
    *("does not change arrays on the mesh", "are in row-major order", "take a number of bins"),
    # where NumPy converts and loses
    *("would be lost", "would not hold its values", "which cannot hold it", "does not hold", "loses its imaginary"),
    *("loses the imaginary", "give a real number"),
    "give a floating-point type",  # for deviations, of which NumPy cuts off the fraction
)
"""Parts of the messages about what the service refuses by name."""

_SIGNATURES = (
    *("got an unexpected keyword", "positional argument", "results are new arrays", "has no parameter"),
    *("method=None is not", "positional-only arg", "parameter 'dtype' is"),
)
_OF_VALUES = (
    *("Singular matrix", "not positive definite", "did not converge", "is out of bounds for", "out of bounds for size"),
    *("Integers to negative integer powers", "Weights sum to zero", "must be monotonic", "cannot be negative"),
    *("autodetected range of", "Too many bins for data range", "All-NaN slice encountered"),
    *("invalid entry in", "may not contain negative", "first argument must not be negative", "must be integers"),
)
"""Parts of NumPy's messages about values, which a trace does not have."""


_BOTH = "both refuse, and NumPy by another class, "

DIVERGENCES: Mapping[str, str] = {
    r"\bdiff\(\w+, (n=)?(numpy.int64\()?0\)?, (axis=)?None\)": "NumPy looks at no axis of a difference of order 0",
    r"\| \w+Error: ((tuple|list|list assignment) )?index .*out of (range|bounds).* \| \w+Error": _BOTH
    + "since its code looks up an axis or an element that there is not",
    r"\| (Type|Attribute)Error: (tri\(\) missing|'\w+' object (has no attr|cannot be interp)).* \| \w+Error": _BOTH
    + "since its code takes a number for an array",
    r"\| OverflowError: Python int.* \| (ValueError|InvalidOperandError|InvalidParameterError)": _BOTH
    + "since it converts numbers before it looks at shapes",
    r"=.*\| (UFunc)?TypeError: .*\| (Value|InvalidOperand)Error: .*(in place|broadcast|one size|rank 0)": _BOTH
    + "since it looks at types before it looks at shapes",
    r"= .*\| (Type|Value)Error: .* \| (ParameterType|InvalidOperand|Type|Value)Error: .*(axis|axes|shape)": _BOTH
    + "where two arguments are invalid",
    r"polydiv\(.*only 0-dim|fftn?2?\(.*non-empty take from an empty axes": _BOTH
    + "since its code takes a number for an array",
    r"unhashable type: 'numpy|could not be broadcast to indexing result.* \| IndexError": _BOTH
    + "where two arguments are invalid",
    r"take_along_axis\(.*'list' object has no": "indices may be a list",
    r"put_along_axis\(.*values is of shape \(0": "values without elements broadcast to others alone",
    r"must begin with 'l' or 'b'.* \| TypeError": _BOTH + "where two arguments are invalid",
    r"putmask\(.*Cannot cast scalar": "a number that is no array is converted",
    r"must match exactly.* \| TypeError": _BOTH + "where two arguments are invalid",
    r"np.unravel_index\(.*dimensions are too large.* \| TypeError": _BOTH + "where two arguments are invalid",
    r"np.take_along_axis\(.*AxisError.* \| IndexError": _BOTH + "where two arguments are invalid",
    r"order must be one of.* \| (UFunc)?TypeError": _BOTH + "where two arguments are invalid",
    r"\| TypeError: .*real numbers.* \| ValueError: q must": _BOTH + "where two arguments are invalid",
    r"(\] = |\.fill\().*only 0-dimensional arrays can.* \| ValueError": _BOTH + "of an element that is to be an array",
    r"fftshift\(.*\| ValueError: not enough values to unpack": "an array without axes has nothing to shift",
    r"clip\(.*\| UFuncTypeError: ufunc 'positive'": "clip without bounds returns the array, of bool, too",
    r"np.clip\(.*missing 1 required positional": "NumPy wants both bounds by position; one is enough",
    r"np.select\(.*\| TypeError: Cannot cast array data": "NumPy copies a number of Python as int64, which it does not "
    "convert to unsigned integers; the type of the result holds the number",
    r"np.(roll|take|repeat)\(.*\| \w+\[.*\| \w+Error: .*(float|an integer)": "NumPy cuts off the fraction of an index",
    r"np.repeat\(.*2\*\*40": "NumPy has no memory for the result; a trace needs none",
    r"np.bincount\(.*weights is of shape": "NumPy does not look at the weights of no integers",
    r"np.histogram(2d|dd)\(.*weights is of shape": "NumPy does not look at the weights of no numbers",
    r"(cumulative_\w+|(lin|log|geom)space|unstack)\(.*axis=\(.*an? (integer|int)": "NumPy takes a tuple of "
    "one axis; an axis is an integer",
    r"np.unstack\(.*axis=\(": "NumPy takes a tuple of one axis; an axis is an integer",
    r"np.convolve\(.*object too deep": "convolve works along an axis of arrays of more axes, too",
    r"\] = .*setting an array element with a sequence": "an array of one element broadcasts to an element",
    r"\] = .*only 0-dimensional arrays can": "an array of one element broadcasts to an element",
    r"nan(std|var)\(.*complex": "a variance is a real number, also of complex numbers",
    r"linalg.matrix_rank.*\| [01] \| int64\[\]": "a number on the mesh is an array without axes",
    r"linalg.pinv\(.*0\] \| float": "NumPy keeps the integers of a matrix without elements, and of no other",
    r"linalg.qr\(.*mode='raw'": "the mode 'raw' has what LAPACK returns; refused by name",
    r"special\.\w+\(.*complex.*give real numbers": "functions of mathematical physics are of real numbers",
    r"special\.\w+\(.*\| \[?'?float(16|32)\[.*\| \[?'?float64\[": "they are computed in float64, unless in float32",
    r"special\.(log_)?softmax\(.*boolean subtract": "functions of numbers are of bool, too",
    r"special\.logsumexp\(.*(\(\)|keepdims).*\[1": "SciPy adds an axis to a number, and reduces all of none",
    r"special\.logsumexp\(.*x has 0 axes": "an array without axes has no axis",
    r"special\.logsumexp\(.*too many indices": "SciPy takes factors that are not 0 out of an array without elements",
    r"ndimage\.\w+\(.*weights.ndim .* \| \w+\[(\d+, )*0": "SciPy looks at no axes of an array without elements",
    r"ndimage\.\w+\(.*float16; convert": "numbers of float16 are refused, also none of them",
    r"(mean|std|var)\(.*where=.*x has 0 axes": "NumPy looks at no axis of averages with where",
    r"np.piecewise\(.*1 conditions and": "numbers that are no arrays are one condition",
    r"1e\d+.*casting='unsafe'.*\| OverflowError": "NumPy converts a number that the type does not hold, to anything",
    r"casting='(equiv|no)'.*\| bool\[.*\| UFuncTypeError": "NumPy compares with numbers of Python without a conversion",
    r"broadcast_arrays\(.*subok=.*truth value": "subok has no effect, whatever it is",
    r"nan(percentile|quantile)\(.*\| float(16|32)\[.*\| float64\[": "NumPy's type depends on values",
    r"np.piecewise\(.*(a condition is of shape|boolean index did not match)": "a condition broadcasts to the array",
    r"must not contain infs or NaNs.* \| \w*TypeError": _BOTH + "where two arguments are invalid",
    r"unstack\(.*axis=None": _BOTH + "since an axis is an integer",
    r"did not return an iterable": "NumPy's dispatcher takes a number for an array",
    r"np.bincount\(.*\| int64\[.*\| float64\[": "NumPy does not look at the weights of no integers",
    r"np.piecewise\(.*inhomogeneous": "a condition broadcasts to the array",
    r"np.piecewise\(.*\w\[.*does not take bool": "functions are computed for all elements, as documented",
    r"np.convolve\(.*a cannot be empty \| \w+\[\d+, ": "convolve works along an axis of arrays of more axes, too",
    r"packbits\(.*must be either 'little'.* \| TypeError": _BOTH + "where two arguments are invalid",
    r"\.put\(.*cannot replace elements of an empty array": _BOTH + "where two arguments are invalid",
    r"pad\(.*must be of integral type.* \| ValueError": _BOTH + "where two arguments are invalid",
    r"partition\(range\(0\)\).*must be integer": "no indices are of no type",
    r"np.piecewise\(.*too many indices for array": "a condition broadcasts to the array",
    r"ndimage\.\w+\(.*axes=.*weights.ndim .*must match len\(axes\)": "an axis is counted from the last one, too",
    r"does not have enough dimensions.* \| TypeError": _BOTH + "where two arguments are invalid",
    r"share_memory\(|shares_memory\(": "tests/memory_model compares it",
    r"polydiv\(.*index 0 is out of bounds for axis 0": "no coefficients are none of several axes, too",
    r"logspace\(.*1e\d+": "powers that the type does not hold",
    r"gaussian_filter\(.*\| u?int\d+\[.*\| complex": "complex numbers stay complex",
    r"special\.\w+\(.*\| \[?'?complex64\[.*\| \[?'?complex128\[": "they are computed in float64, unless in float32",
    r"\.at\(.*1e\d+": "NumPy converts a number that the type does not hold, to anything",
    r"output='bool'": "an element type may be named, also bool",
    r"@= .*in place makes an array of shape": "a product of more axes is refused, also where they have one element",
    r"np.meshgrid\(.*The truth value": "copy has no effect, whatever it is",
}
"""Differences that stay, by a pattern of the line, NumPy's result and the service's, with the reason."""

Outcome = tuple[Any, BaseException | None]
"""The value that a line assigned, and the error that it raised."""


@dataclass
class Tally:
    """The outcomes of programs.

    Attributes:
        programs: how many there were.
        compared: how often each function was compared.
        refused: how many of the lines compared both sides refuse.
        keywords: how often each parameter of a function was given.
        skipped: how often a function was left out, by the reason.
        faults: descriptions of the differences.
    """

    programs: int = 0
    compared: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    keywords: Counter[tuple[str, str]] = field(default_factory=Counter)
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        skipped: Counter[str] = Counter()
        for (reason, _), count in self.skipped.items():
            skipped[reason] += count
        missing = sorted((name, count) for (reason, name), count in self.skipped.items() if reason == "missing")
        return (
            f"{self.programs} programs, {self.compared.total()} lines compared ({self.refused} refused by both) with "
            f"{len(self.compared)} functions and {len(self.keywords)} of their keywords; skipped "
            f"{', '.join(f'{reason} {count}' for reason, count in skipped.most_common())}; "
            f"missing: {', '.join(f'{name} {count}' for name, count in missing)}"
        )


@dataclass(frozen=True)
class Difference:
    """The first line of a program at which the service differs from NumPy.

    Attributes:
        index: the index of the line.
        expected: what NumPy makes of it.
        actual: what the service does.
    """

    index: int
    expected: str
    actual: str


def documented(line: Line, difference: Difference) -> str:
    """Returns why a difference is right; empty if it is a fault."""
    text = f"{line.text} | {difference.expected} | {difference.actual}"
    return next((why for pattern, why in DIVERGENCES.items() if re.search(pattern, text)), "")


def family(error: BaseException) -> type[BaseException]:
    """Returns the class that a caller would catch."""
    return next((error_class for error_class in _FAMILIES if isinstance(error, error_class)), type(error))


def leaves(value: Any) -> Iterator[Any]:
    """Yields a value, or the items of a tuple or list of any depth."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def described(value: Any) -> Any:
    """Returns the shape and element type of an array, of several, or any other value."""
    if is_array(value):
        return f"{value.dtype.name}{list(value.shape)}"
    if isinstance(value, tuple | list):
        return [described(item) for item in value]
    return value


def is_array(value: Any) -> bool:
    """Returns whether a value is an array of either side."""
    return not isinstance(value, type) and hasattr(value, "shape") and hasattr(value, "dtype")


def _is_same(expected: Any, actual: Any) -> bool:
    try:
        return bool(described(expected) == described(actual))
    except Exception:  # noqa: BLE001  # of values that do not compare
        return False


def _shown(value: Any, error: BaseException | None) -> str:
    return str(described(value)) if error is None else f"{type(error).__name__}: {error}"


def skip_reason(expected: Any, error: BaseException | None, *, uses_xp: bool) -> str:
    """Returns why a line is not compared; empty if it is."""
    text = str(error)
    if isinstance(error, sc.TracingError) and "needs values" in text:
        return "values"
    if error is not None and any(part in text for part in MISSING):
        return "missing"
    if error is not None and uses_xp and any(part in text for part in _SIGNATURES):
        return "signature of client.xp"
    if any(getattr(item, "dtype", None) == np.object_ for item in leaves(expected)):
        return "objects of Python"
    return ""


class _SciPy:
    """The functions of the service under SciPy's names.

    Args:
        xp: the namespace of the service.
    """

    def __init__(self, xp: Any) -> None:
        self.ndimage = xp.ndimage
        of_xp = {name: getattr(xp, name) for name in ("softmax", "log_softmax")}
        of_special = {name: getattr(xp.special, name) for name in dir(xp.special) if not name.startswith("_")}
        self.special = SimpleNamespace(**of_xp, **of_special)


class Comparison:
    """Runs programs on both sides.

    Args:
        client: the service.
        tally: counts what becomes of lines.
    """

    def __init__(self, client: sc.Client, tally: Tally) -> None:
        self._client = client
        self._tally = tally

    def first_difference(self, program: Program) -> Difference | None:
        """Returns the first difference."""
        raise NotImplementedError

    def report(self, program: Program, difference: Difference) -> str:
        """Returns the report of a difference, with the fewest lines of the program that show it."""
        tally, self._tally = self._tally, Tally()
        smallest = replace(program, lines=program.lines[: difference.index + 1])
        for index in reversed(range(difference.index)):
            fewer = without(smallest, index)
            differences = self.first_difference(fewer)
            if differences is not None and (differences.expected, differences.actual) == (
                difference.expected,
                difference.actual,
            ):
                smallest = fewer
        self._tally = tally
        return f"{smallest.source()}\n# NumPy: {difference.expected}\n# ours:  {difference.actual}\n"

    def check(self, program: Program) -> Difference | None:
        """Adds a program to the tally, with the report of its first difference, which it returns."""
        self._tally.programs += 1
        difference = self.first_difference(program)
        if difference is not None:
            self._tally.faults.append(self.report(program, difference))
        return difference

    def _compare(self, program: Program, ours: dict[str, Any]) -> Difference | None:
        """Returns the first difference, for the service's variables with the arrays of the program."""
        theirs = {**ORACLES, **{name: array.copy() for name, array in program.inputs.items()}}
        xp: Any = self._client.xp
        ours |= {"numpy": np, "np": xp if program.uses_xp else np, "scipy": _SciPy(xp)}
        for index, line in enumerate(program.lines):
            kept = {name: value.copy() for name, value in theirs.items() if isinstance(value, np.ndarray)}
            expected_error, error = run_line(line, theirs), run_line(line, ours)
            kept.pop(line.target, None)
            theirs |= kept  # which NumPy changes with overwrite_input
            expected, actual = theirs.get(line.target), ours.get(line.target)
            if isinstance(expected, np.generic):
                expected = theirs[line.target] = np.asarray(expected)
            if error is None:
                actual, error = self._read(actual)
            reason = skip_reason(expected, error, uses_xp=program.uses_xp) or self._excuse(expected_error, error)
            if not reason:
                difference = self._difference(index, line, theirs, (expected, expected_error), (actual, error))
                if difference is not None and not (reason := documented(line, difference)):
                    return difference
            if reason:
                self._tally.skipped[reason, line.call] += 1
            else:
                self._tally.refused += error is not None
                self._tally.compared[line.call] += 1
                self._tally.keywords.update((line.call, name) for name in line.keywords)
            self._continue(line, theirs, ours, actual, is_same=not reason)
        return None

    def _difference(
        self, index: int, line: Line, theirs: dict[str, Any], expected: Outcome, actual: Outcome
    ) -> Difference | None:
        """Returns the difference between what NumPy and the service make of a line."""
        if expected[1] is not None and isinstance(actual[1], family(expected[1])):
            return None
        if expected[1] is not None or actual[1] is not None or not _is_same(expected[0], actual[0]):
            return Difference(index, _shown(*expected), _shown(*actual))
        wrong = self._wrong_values(line, theirs, expected[0], actual[0])
        return None if wrong is None else Difference(index, *wrong)

    def _read(self, actual: Any) -> tuple[Any, BaseException | None]:
        """Returns a result, or the error that its values are."""
        return actual, None

    def _excuse(self, expected_error: BaseException | None, error: BaseException | None) -> str:
        return ""

    def _wrong_values(self, line: Line, theirs: dict[str, Any], expected: Any, actual: Any) -> tuple[str, str] | None:
        return None

    def _continue(
        self, line: Line, theirs: dict[str, Any], ours: dict[str, Any], actual: Any, *, is_same: bool
    ) -> None:
        """Makes both sides go on from the same value after a line."""
        if not is_same and isinstance(value := theirs.get(line.target), np.ndarray) and value.dtype != object:
            ours[line.target] = self._client.xp.asarray(value)
        mine = ours.get(line.target)
        if isinstance(mine, sc.RemoteArray | np.ndarray) and mine.base is not None:  # tests/memory_model has views
            ours[line.target] = mine.copy()


class TracedComparison(Comparison):
    """Compares by tracing: shapes, element types and errors. Nothing is compiled."""

    def first_difference(self, program: Program) -> Difference | None:
        """Returns the first difference."""
        differences: list[Difference | None] = []
        names = [name for name in program.inputs if name not in program.local]

        def function(*arrays: Any) -> Any:
            ours = {name: array.copy() for name, array in zip(names, arrays, strict=True)}
            ours |= {name: program.inputs[name].copy() for name in program.local}
            differences.append(self._compare(program, ours))
            return arrays[0]

        types = [sc.Array(program.inputs[name].shape, program.inputs[name].dtype) for name in names]
        self._client.jit(function).trace(*types)
        return differences[-1]

    def _read(self, actual: Any) -> tuple[Any, BaseException | None]:
        if isinstance(actual, MaskedElements):
            return None, sc.TracingError("the number of elements needs values")
        return actual, None

    def _excuse(self, expected_error: BaseException | None, error: BaseException | None) -> str:
        return "values" if any(part in str(expected_error) for part in _OF_VALUES) else ""


class ValueComparison(Comparison):
    """Compares every intermediate with NumPy's, computed from the operands as the mesh has them."""

    def first_difference(self, program: Program) -> Difference | None:
        """Returns the first difference."""
        chance = random.Random(program.label)
        ours: dict[str, Any] = {}
        mesh = chance.choice(({"x": 8}, {"a": 4, "b": 2}, {"x": 3}))
        for name, array in program.inputs.items():
            ours[name] = array.copy()
            if name not in program.local:
                spec = chance.sample([*mesh, *[None] * array.ndim], array.ndim)
                ours[name] = self._client.put(array, mesh=mesh, spec=sc.P(*spec))
        return self._compare(program, ours)

    def _read(self, actual: Any) -> tuple[Any, BaseException | None]:
        try:
            return _copied(actual), None
        except Exception as error:  # noqa: BLE001  # to be compared
            return None, error

    def _wrong_values(self, line: Line, theirs: dict[str, Any], expected: Any, actual: Any) -> tuple[str, str] | None:
        if line.call in UNCOMPARED:
            return None
        operands = operands_of(line, theirs)
        if not _has_meaning(line, operands):
            return None
        for theirs_leaf, ours_leaf in zip(leaves(expected), leaves(actual), strict=True):
            if is_array(theirs_leaf) and not _is_near(theirs_leaf, ours_leaf, operands):
                is_unsigned = theirs_leaf.dtype.kind == "u" and any(item.dtype.kind == "c" for item in operands)
                if is_unsigned or converts_what_does_not_fit(line, theirs):
                    return None
                return repr(theirs_leaf), repr(ours_leaf)
        return None

    def _continue(
        self, line: Line, theirs: dict[str, Any], ours: dict[str, Any], actual: Any, *, is_same: bool
    ) -> None:
        super()._continue(line, theirs, ours, actual, is_same=is_same)
        if is_same and isinstance(actual, np.ndarray):
            theirs[line.target] = actual.copy()


UNCOMPARED = frozenset(
    (
        *(".argsort", "argsort", ".argpartition", "argpartition", "partition"),  # of equal elements any is right
        *("linalg.svd", "linalg.qr", "linalg.eigh"),  # which are not unique
        *("linalg.inv", "linalg.pinv", "linalg.solve", "linalg.lstsq", "linalg.cond"),  # as far off as the condition is
        *("linalg.matrix_rank", "linalg.matrix_power", "linalg.tensorsolve"),
        *("unwrap", "**", "**="),
    )
)
"""Functions whose shapes and types are compared alone: tests/accuracy holds them to their values."""


def _has_meaning(line: Line, operands: list[np.ndarray]) -> bool:
    """Returns whether the values of a result are defined."""
    if line.call.endswith("searchsorted"):  # in what is not sorted, positions are any
        array = operands[0]
        return bool(np.array_equal(array, np.sort(array), equal_nan=array.dtype.kind in "fc"))
    is_finite = all(np.isfinite(item).all() for item in operands if item.dtype.kind in "fc")
    return is_finite or not ("fft" in line.call or "dtype=" in line.text)  # the integers of infinities are any


def _copied(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_copied(item) for item in value]
    return value.get() if isinstance(value, sc.RemoteArray) else value


def _is_near(expected: Any, actual: Any, operands: list[np.ndarray]) -> bool:
    """Returns whether two arrays are equal, or within rounding errors of a computation from operands."""
    expected, actual = np.asarray(expected), np.asarray(actual)
    if expected.dtype.kind not in "fc":
        return bool(np.array_equal(expected, actual))
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        sizes = [np.abs(item.astype(np.complex128)) for item in (*operands, expected)]
        scale = max(float(np.max(item, where=np.isfinite(item), initial=1)) for item in sizes)
        dtypes = [item.dtype for item in (*operands, expected) if item.dtype.kind in "fc"]
        eps = max(float(np.finfo(dtype).eps) for dtype in dtypes)
        tolerance = eps * (scale * scale) * max(64, *(item.size for item in sizes))
        near = np.isclose(expected.astype(wide), actual.astype(wide), rtol=256 * eps, atol=tolerance, equal_nan=True)
    return bool(near.all())
