"""Arguments drawn for the parameters of NumPy's functions, as the text of a program has them.

The names of the parameters come from NumPy's own signatures; here is what fits each.
"""

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardcall_core.element_types import NAMED

TYPES = tuple(name for name, dtype in NAMED.items() if dtype.isbuiltin == 1)
"""The element types that NumPy and the service share."""

NUMBERS = (
    *("0", "1", "2", "-1", "3", "300", "70000", "-3", "2**40", "0.5", "-1.5"),
    *("1e10", "1e300", "True", "False", "2j"),
)
_SMALL = ("0", "1", "2", "-1", "3", "0.5", "-1.5", "True")

Values = Mapping[str, Any]
"""NumPy's value of each variable of a program."""


class Unfit(Exception):
    """Nothing that there is fits a parameter."""


class Arguments:
    """Draws arguments.

    Args:
        chance: draws.
        values: the variables of the program so far.
        local: those that are arrays of this process when the service runs the program.
    """

    def __init__(self, chance: random.Random, values: Values, local: frozenset[str] = frozenset()) -> None:
        self.chance = chance
        self._values = values
        self._local = local

    def value(self, name: str) -> Any:
        """Returns NumPy's value of a variable."""
        return self._values[name]

    def one(self, *texts: str) -> str:
        """Returns one of several texts."""
        return self.chance.choice(texts)

    def happens(self, probability: float) -> bool:
        """Returns True so often."""
        return self.chance.random() < probability

    def array(self, *, like: str = "", fits: Callable[[Any], bool] = lambda array: True, local: bool = False) -> str:
        """Returns the name of an array: later ones, and those of the shape of another, more often.

        Args:
            like: the array whose shape it is to have where that is possible.
            fits: what else it has to fulfil.
            local: whether it may be of this process.

        Raises:
            Unfit: there is none.
        """
        names = [
            name
            for name, value in self._values.items()
            if hasattr(value, "shape") and (local or name not in self._local) and fits(value)
        ]
        same = [name for name in names if like and self._values[name].shape == self._values[like].shape]
        if same and self.happens(0.7):
            names = same
        if not names:
            raise Unfit
        return self.chance.choice(names[-4:] if self.happens(0.4) else names)

    def operand(self, like: str = "") -> str:
        """Returns an array, an array of this process, or a number of Python or NumPy."""
        chance = self.chance.random()
        if chance < 0.7:
            return self.array(like=like, local=True)
        return self.number() if chance < 0.9 else self.scalar()

    def number(self) -> str:
        """Returns a number of Python."""
        return self.one(*NUMBERS) if self.happens(0.4) else self.one(*_SMALL)

    def scalar(self) -> str:
        """Returns a number of NumPy."""
        return f"numpy.{self.one(*TYPES).replace('bool', 'bool_')}({self.one('0', '1', '2', '3', '100')})"

    def dtype(self) -> str:
        """Returns an element type, as a class, a name or a class of Python."""
        name = self.one(*TYPES)
        return self.one(
            f"numpy.dtype('{name}')", f"'{name}'", f"numpy.{name.replace('bool', 'bool_')}", self.one("float", "int")
        )

    def arrays(self, min_count: int = 1, max_count: int = 3) -> str:
        """Returns a list or tuple of arrays."""
        first = self.array()
        others = [self.array(like=first, local=True) for _ in range(self.chance.randint(min_count, max_count) - 1)]
        items = [first, *others]
        self.chance.shuffle(items)
        return self.sequence(items)

    def sequence(self, items: Sequence[str]) -> str:
        """Returns items as a list or tuple."""
        return f"[{', '.join(items)}]" if self.happens(0.6) else f"({', '.join(items)},)"

    def integer(self, low: int = -1, high: int = 3) -> str:
        """Returns an integer, sometimes NumPy's or one that is too large."""
        number = self.chance.randint(low, high)
        return f"numpy.int64({number})" if self.happens(0.08) else str(number)

    def flag(self) -> str:
        """Returns True or False."""
        return self.one("True", "False")

    def axis(self, ndim: int) -> str:
        """Returns an axis; rarely none that the array has."""
        if self.happens(0.04):
            return self.one("5", "-7", "1.0", "'x'")
        return self.integer(-ndim, ndim - 1) if ndim else self.one("0", "-1")

    def axes(self, ndim: int) -> str:
        """Returns an axis, several, or None."""
        chance = self.chance.random()
        if chance < 0.55:
            return self.axis(ndim)
        if chance < 0.75:
            return "None"
        count = self.chance.randint(0, ndim)
        return str(tuple(a - self.chance.choice((0, ndim)) for a in self.chance.sample(range(ndim), count)))

    def mask(self, like: str = "") -> str:
        """Returns an array of bool, or a bool."""
        try:
            return self.array(like=like, fits=lambda array: array.dtype == np.bool_, local=True)
        except Unfit:
            return self.flag()

    def indices(self, size: int) -> str:
        """Returns indices of an axis of a size."""
        if self.happens(0.3):
            try:
                return self.array(fits=lambda array: array.dtype.kind in "iu", local=True)
            except Unfit:
                pass
        count = self.chance.randint(0, 4)
        drawn = [self.chance.randint(-size, size - 1 + self.happens(0.02)) if size else 0 for _ in range(count)]
        return self.one(str(drawn), f"numpy.array({drawn}, dtype='{self.one('int64', 'int32', 'uint8')}')", "0", "-1")

    def shape(self, size: int) -> str:
        """Returns a shape of a number of elements."""
        factors = [n for n in range(1, size + 1) if size % n == 0] or [0]
        n = self.chance.choice(factors)
        rest = size // n if n else 3
        return self.one("-1", str((n, rest)), f"({n}, -1)", str((rest, 1, n)), f"[{n}, {rest}]", str(size))

    def key(self, shape: tuple[int, ...]) -> str:
        """Returns an index of an array."""
        parts = [self._key_of_axis(size) for size in shape[: self.chance.randint(0, len(shape))]]
        for extra in ("...", "None"):
            if self.happens(0.15):
                parts.insert(self.chance.randint(0, len(parts)), extra)
        return ", ".join(parts) if parts else "()"  # without parentheses, in which there are no slices

    def _key_of_axis(self, size: int) -> str:
        chance = self.chance.random()
        if chance < 0.35:
            return str(self.chance.randint(-size, size - 1 + self.happens(0.05)) if size else 0)
        if chance < 0.8:
            ends = [self.chance.choice(("", str(self.chance.randint(-size - 1, size + 1)))) for _ in range(2)]
            return f"{ends[0]}:{ends[1]}" + self.one("", "", ":2", ":-1", ":-3")
        if chance < 0.9:
            return self.indices(size)
        return self.one(":", "True", "1.0") if self.happens(0.2) else ":"


def _size_along(value: Any, draw: Arguments) -> int:
    return int(draw.chance.choice(value.shape)) if value.ndim else 1


Drawer = Callable[[Arguments, str, Any], str]
"""Returns an argument for the name and value of the first array of the call."""


def _operand(draw, first, _):
    return draw.operand(first)


def _same(draw, first, _):
    return draw.array(like=first, local=True)


def _axis(draw, _, value):
    return draw.axis(value.ndim)


def _axes(draw, _, value):
    return draw.axes(value.ndim)


def _drawn(draw: Callable[[Arguments], str]) -> Drawer:
    return lambda arguments, *_: draw(arguments)


_flag, _number, _integer = map(_drawn, (Arguments.flag, Arguments.number, Arguments.integer))


def _several(*texts: str) -> Drawer:
    return lambda draw, *_: draw.one(*texts)


def by_default(parameter: inspect.Parameter) -> Drawer | None:
    """Returns what draws an argument like a parameter's default; None where it has none that says what fits."""
    default = parameter.default
    if isinstance(default, bool):
        return _flag
    if isinstance(default, int | float):
        return _several(repr(default), "1", "2", *(() if isinstance(default, int) else ("0.5", "3.25")))
    return _several(repr(default)) if default is None or isinstance(default, str | tuple) else None


def _weights(draw: Arguments, first: str, value: Any) -> str:
    if draw.happens(0.3):
        return draw.array(like=first, local=True)
    count = value.shape[-1] if value.ndim else 1
    return str([draw.chance.randint(1, 4) for _ in range(count)])


PARAMETERS: Mapping[str, Drawer] = {
    "axis": _axes,
    **dict.fromkeys(("axis1", "axis2", "source", "destination", "axisa", "axisb", "axisc"), _axis),
    "axes": lambda draw, _, value: draw.one(
        "None", "2", "1", "0", str(tuple(draw.chance.sample(range(value.ndim), value.ndim)))
    ),
    **dict.fromkeys(("keepdims", "deg", "equal_nan", "assume_unique", "invert", "returned", "density"), _flag),
    **dict.fromkeys(("include_initial", "rowvar", "bias", "right", "hermitian", "full_matrices", "compute_uv"), _flag),
    **dict.fromkeys(("overwrite_input", "endpoint", "retstep", "subok", "sparse", "upper", "increasing"), _flag),
    **dict.fromkeys(("return_index", "return_inverse", "return_counts", "sorted", "cov", "full"), _flag),
    "copy": _several("True", "True", "False", "None"),
    "stable": _several("None", "True", "False"),
    "kind": _several("'stable'", "'quicksort'", "'mergesort'", "'heapsort'", "None", "'sort'", "'table'"),
    "dtype": lambda draw, *_: draw.dtype() if draw.happens(0.9) else "None",
    **dict.fromkeys(("out", "device"), lambda *_: "None"),
    "like": _same,
    "where": lambda draw, first, _: draw.mask(first),
    "initial": lambda draw, *_: draw.number() if draw.happens(0.8) else draw.scalar(),
    "order": _several("'C'", "'K'", "'A'", "'C'", "'F'", "'Z'", "None"),
    "casting": _several("'same_kind'", "'safe'", "'unsafe'", "'no'", "'equiv'"),
    "ddof": _several("0", "1", "0.5", "2"),
    "correction": _several("0", "1", "0.5"),
    "mean": _several("0", "1.5", "2"),
    "weights": _operand,
    **dict.fromkeys(("fweights", "aweights"), _weights),
    "q": _several("0.5", "50", "[0.25, 0.75]", "[0, 100]", "0", "1", "[[0.1], [0.9]]", "2", "numpy.float32(0.3)"),
    "method": _several("'linear'", "'lower'", "'higher'", "'nearest'", "'midpoint'", "'median_unbiased'", "'weibull'"),
    **dict.fromkeys(("n", "N", "M", "k", "decimals", "offset", "start", "ndim", "nan", "ndmin", "minlength"), _integer),
    **dict.fromkeys(("posinf", "neginf", "fill_value", "val", "left"), _number),
    "x": _operand,
    **dict.fromkeys(
        ("x2", "b", "values", "append", "prepend", "to_end", "to_begin", "a2", "y", "min", "max"), _operand
    ),
    **dict.fromkeys(("a_min", "a_max", "other", "v", "ar2", "test_elements", "choices", "default"), _operand),
    **dict.fromkeys(("xp", "fp"), _same),
    "period": _several("None", "2", "3.5", "6"),
    "rtol": _several("1e-5", "0", "0.1", "1"),
    "atol": _several("1e-8", "0", "0.1", "1"),
    "tol": _several("None", "0.1", "100"),
    "rcond": _several("None", "1e-10", "0.1"),
    "discont": _several("None", "1", "4.0"),
    "shift": lambda draw, _, value: draw.one("1", "-2", "9", "(1, 2)", "(3,)", "numpy.int32(2)", "2.0"),
    "repeats": lambda draw, _, value: draw.one(
        "2", "0", "3", "[1]", str([draw.chance.randint(0, 2)] * (value.shape or (1,))[0])
    ),
    "reps": _several("2", "(2,)", "(1, 2)", "(2, 1, 1)", "0", "()"),
    "shape": lambda draw, _, value: draw.shape(value.size),
    "new_shape": lambda draw, _, value: draw.shape(value.size),
    "pad_width": lambda draw, _, value: draw.one("1", "0", "(1, 2)", "((0, 1),)", str([(1, 0)] * value.ndim), "{0: 1}"),
    **dict.fromkeys(("indices", "ind"), lambda draw, _, value: draw.indices(_size_along(value, draw))),
    "obj": lambda draw, _, value: draw.one(
        draw.indices(_size_along(value, draw)), "slice(1, 3)", "slice(None, None, 2)"
    ),
    "kth": _several("0", "1", "-1", "[0, 1]", "(1,)"),
    "indices_or_sections": _several("1", "2", "3", "[1]", "[1, 2]", "(1, 3, 5)", "[]"),
    "side": _several("'left'", "'right'", "'left'", "'middle'"),
    "sorter": lambda draw, first, _: draw.one("None", "numpy.argsort(numpy.arange(3))", "[0, 1]"),
    "bins": _several("10", "3", "[0, 1, 2]", "[0.5, 1.5, 3]", "numpy.array([0, 2, 4])", "0"),
    "range": _several("None", "(0, 1)", "(0, 5)", "(-1.0, 2.0)"),
    "num": _several("5", "1", "0", "13", "numpy.int8(4)"),
    "step": _several("1", "2", "0.5"),
    "stop": _operand,
    "edge_order": _several("1", "2"),
    "ord": _several("None", "1", "2", "numpy.inf", "-numpy.inf", "'fro'", "'nuc'", "-1", "0", "3"),
    "norm": _several("None", "'ortho'", "'forward'", "'backward'"),
    "s": _several("None", "(4, 4)", "(3,)", "(8, 2)"),
    "UPLO": _several("'L'", "'U'"),
    "bitorder": _several("'big'", "'little'", "'x'"),
    "count": _several("None", "3", "-2", "40"),
    "deg": _several("1", "2", "0"),
    "m": _several("1", "0", "2", "-1"),
    "dims": _several("(9, 9)", "7", "(3, 4, 5)"),
    **dict.fromkeys(("ar1", "a1", "u", "p", "seq_of_zeros"), _operand),
    "mode": _several(
        "'constant'", "'edge'", "'wrap'", "'reflect'", "'full'", "'same'", "'valid'", "'raise'", "'clip'", "'reduced'"
    ),
    "indexing": _several("'xy'", "'ij'"),
    "dx": _several("1.0", "2", "0.5"),
    "base": _several("10.0", "2", "2.5"),
    "max_work": _several("0", "1"),
    "condition": lambda draw, first, _: draw.mask(first),
    "trim": _several("'fb'", "'f'", "'B'", "'x'"),
    "ndmax": _several("0", "2"),
    "optimize": _several("False", "True", "'greedy'"),
}
"""Values for a parameter, by its name."""
