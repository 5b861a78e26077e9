"""Random programs of NumPy's functions, operators, methods and indices, drawn from a seed."""

import inspect
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import CodeType
from typing import Any

import numpy as np
from end_to_end.numpy_arguments import PARAMETERS, TYPES, Arguments, Unfit, by_default
from end_to_end.numpy_names import ORACLES, functions_of_numpy, functions_of_scipy, methods_of_numpy, parameters_of

SHAPES = ((5, 5), (3, 3), (13, 9), (4,), (17,), (0, 4), (2, 3, 5), (), (1, 6), (8,), (1,), (0,), (2, 4, 4))
_NAMES = "abcdefgh"
_MAX_ELEMENTS = 1 << 12
_TRIES = 30
_ERRORS = 0.12  # of the lines that NumPy refuses
_OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>", "<", "<=", ">", ">=", "==", "!=")
_ATTRIBUTES = ("T", "mT", "real", "imag", "shape", "ndim", "size", "dtype", "itemsize", "nbytes")


@dataclass(frozen=True)
class Line:
    """A statement.

    Attributes:
        text: its source.
        call: the function, method or operator in it.
        keywords: the parameters that it gives beyond the required ones.
        target: the variable that it assigns to.
    """

    text: str
    call: str
    keywords: tuple[str, ...] = ()
    target: str = ""

    @property
    def code(self) -> CodeType:
        """The compiled statement."""
        return _compiled(self.text)


@cache
def _compiled(text: str) -> CodeType:
    return compile(text, "<program>", "exec")


@dataclass
class Program:
    """A program.

    Attributes:
        label: the seed and number that it was drawn from.
        inputs: its arrays.
        local: the names of those that stay in this process when the service runs it.
        uses_xp: whether ``np`` is ``client.xp`` then; else it is NumPy, whose functions the arrays redirect.
        lines: its statements.
    """

    label: str
    inputs: dict[str, np.ndarray]
    local: frozenset[str] = frozenset()
    uses_xp: bool = False
    lines: list[Line] = field(default_factory=list)

    def source(self) -> str:
        """Returns the program as text that runs in any interpreter with NumPy."""
        text = "\n".join(line.text for line in self.lines)
        used = [name for name in self.inputs if any(name in line.code.co_names for line in self.lines)]
        arrays = [
            f"{name} = numpy.array({array.tolist()}, dtype='{array.dtype}').reshape({array.shape})"
            + ("  # stays in this process" if name in self.local else "")
            for name, array in self.inputs.items()
            if name in used
        ]
        where = "np is client.xp" if self.uses_xp else "np is NumPy"
        return "\n".join([f"# {self.label}; {where}", "import numpy, scipy; np = numpy", *arrays, text])


def run_line(line: Line, variables: dict[str, Any]) -> BaseException | None:
    """Runs a statement; returns the error that it raises."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        try:
            exec(line.code, variables)  # a program of this file's own
        except Exception as error:  # noqa: BLE001  # to be compared
            return error
    return None


def operands_of(line: Line, variables: Mapping[str, Any]) -> list[np.ndarray]:
    """Returns the arrays among the variables of a statement."""
    return [variables[name] for name in line.code.co_names if isinstance(variables.get(name), np.ndarray)]


def converts_what_does_not_fit(line: Line, variables: dict[str, Any]) -> bool:
    """Returns whether NumPy warns that a statement converts numbers that the type does not hold, to anything."""
    with np.errstate(invalid="raise"), warnings.catch_warnings(action="ignore"):
        try:
            exec(line.code, dict(variables))  # a program of this file's own
        except FloatingPointError as error:
            return "cast" in str(error)
        except Exception:  # noqa: BLE001  # which are compared elsewhere
            return False
    return False


def drawn_program(seed: int | str, number: int, types: Sequence[str] = TYPES) -> Program:
    """Returns a program of 2 to 8 statements."""
    return _Drawing(f"seed {seed}, number {number}", random.Random(f"{seed} {number}"), types).program


def random_array(chance: random.Random, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Returns an array of small numbers, of which some are equal, and of large ones of its type."""
    dtype, size = np.dtype(name), int(np.prod(shape))
    small = [chance.randint(0 if dtype.kind in "ub" else -4, 6 if dtype.kind != "b" else 1) for _ in range(size)]
    if dtype.kind in "fc":
        small = [x + chance.choice((0, 0.5, 0.25)) for x in small]
    if dtype.kind == "c":
        small = [x + 1j * chance.randint(-2, 2) for x in small]
    if size and dtype.kind in "iuf" and chance.random() < 0.3:
        large = [np.iinfo(dtype).max, np.iinfo(dtype).min, 100] if dtype.kind != "f" else [6e4, -6e4, np.inf, np.nan]
        small[chance.randrange(size)] = chance.choice(large)
    return np.array(small, dtype).reshape(shape)


class _Drawing:
    """Draws one program."""

    def __init__(self, label: str, chance: random.Random, types: Sequence[str]) -> None:
        self._chance = chance
        inputs = self._inputs(types)
        local = frozenset(name for name in [*inputs][2:] if chance.random() < 0.25)
        self.program = Program(label, inputs, local, chance.random() < 0.4)
        self._values: dict[str, Any] = {name: array.copy() for name, array in inputs.items()}
        self._draw = Arguments(chance, self._values, local)
        for _ in range(chance.randint(2, 8)):
            self._add()

    def _inputs(self, types: Sequence[str]) -> dict[str, np.ndarray]:
        chance = self._chance
        shape = chance.choice(SHAPES)
        near = [shape, shape, shape, shape[-1:], (*shape[:-1], 1) if shape else (), (), chance.choice(SHAPES)]
        return {
            name: random_array(chance, chance.choice(near) if i else shape, chance.choice(types))
            for i, name in enumerate(_NAMES[: chance.randint(3, 6)])
        }

    def _add(self) -> None:
        """Adds a statement that NumPy runs, or sometimes one that it refuses."""
        for _ in range(_TRIES):
            try:
                line = self._chance.choice(_STATEMENTS)(self)
            except Unfit:
                continue
            if _may_not_return(line, operands_of(line, self._values)):
                continue
            values = {
                name: value.copy() if isinstance(value, np.ndarray) else value for name, value in self._values.items()
            }
            error = run_line(line, {**ORACLES, **values})
            if error is None or self._chance.random() < _ERRORS:
                break
        else:
            return
        variables = {**ORACLES, **self._values}
        error = run_line(line, variables)
        value = variables.get(line.target)
        if error is None and (_size_of(value) > _MAX_ELEMENTS or getattr(value, "dtype", None) == np.object_):
            return
        self.program.lines.append(line)
        if error is None and isinstance(value, np.ndarray | np.generic) and value.dtype != object:
            self._values[line.target] = np.asarray(value)

    def _target(self) -> str:
        return f"r{len(self.program.lines)}"

    def _line(self, expression: str, call: str, keywords: Sequence[str] = ()) -> Line:
        target = self._target()
        return Line(f"{target} = {expression}", call, tuple(keywords), target)

    def function(self) -> Line:
        """Draws a call of a function of NumPy or SciPy."""
        present, missing = functions_of_numpy(self.program.uses_xp)
        name = self._chance.choice([*present, *functions_of_scipy()] if self._chance.random() < 0.95 else missing)
        if name in functions_of_scipy():
            arguments, keywords = self._arguments(name, functions_of_scipy()[name], self._draw.array())
            return self._line(f"scipy.{name}({', '.join(arguments)})", name, keywords)
        function: Any = np
        for part in name.split("."):
            function = getattr(function, part)
        special = _SPECIAL.get(name)
        if special is not None:
            arguments, keywords = special(self._draw)
        else:
            first = self._draw.array()
            arguments, keywords = self._arguments(name, parameters_of(function), first)
        return self._line(f"np.{name}({', '.join(arguments)})", name, keywords)

    def method(self) -> Line:
        """Draws a call of a method of an array."""
        name = self._chance.choice(methods_of_numpy())
        if name == "choose":
            (first, *arguments), keywords = _choose(self._draw)
            return self._line(f"{first}.choose({', '.join(arguments)})", ".choose", keywords)
        first = self._draw.array()
        arguments, keywords = self._arguments(name, parameters_of(getattr(np.ndarray, name))[1:], first, is_method=True)
        return self._line(f"{first}.{name}({', '.join(arguments)})", f".{name}", keywords)

    def _arguments(
        self, name: str, parameters: Sequence[inspect.Parameter], first: str, *, is_method: bool = False
    ) -> tuple[list[str], list[str]]:
        """Returns the arguments of a call, and the names of those that are not required."""
        value, texts, keywords = self._values[first], list[str](), list[str]()
        is_positional, is_first = True, not is_method
        for parameter in parameters:
            passing = parameter.kind
            if passing is inspect.Parameter.VAR_POSITIONAL:
                texts += self._further(name, first) if is_positional else []
                continue
            if passing is inspect.Parameter.VAR_KEYWORD:
                for keyword in _KEYWORDS_OF.get(name, ()):
                    if self._draw.happens(0.25):
                        texts.append(f"{keyword}={self._argument(name, _keyword(keyword), first, value)}")
                        keywords.append(keyword)
                continue
            is_required = parameter.default is inspect.Parameter.empty
            if parameter.name in _UNDRAWN or (not is_required and not self._draw.happens(0.2)):
                is_positional = False
                continue
            if is_first:
                text = self._first(name, parameter.name, first)
                is_first = False
            else:
                text = self._argument(name, parameter, first, value)
            if not is_required:
                keywords.append(parameter.name)
            by_position = passing is inspect.Parameter.POSITIONAL_ONLY or (
                passing is inspect.Parameter.POSITIONAL_OR_KEYWORD and is_positional and not self._draw.happens(0.15)
            )
            if not by_position and passing is inspect.Parameter.POSITIONAL_ONLY:
                raise Unfit
            is_positional = by_position
            texts.append(text if by_position else f"{parameter.name}={text}")
        if name in _COMMUTED and len(texts) > 1 and "=" not in texts[0] + texts[1] and self._draw.happens(0.3):
            texts[:2] = texts[1::-1]
        return texts, keywords

    def _first(self, name: str, parameter: str, first: str) -> str:
        if parameter in ("arrays", "tup", "keys", "arys"):
            return self._draw.arrays()
        if name == "where" or parameter == "condition":
            return self._draw.mask(first)
        if parameter in ("condlist",):
            raise Unfit
        return first

    def _argument(self, name: str, info: inspect.Parameter, first: str, value: Any) -> str:
        parameter = info.name
        if name in ("compress", "extract") and parameter in ("a", "arr"):
            return first
        if parameter == "where" and isinstance(getattr(np, name, None), np.ufunc):
            return "True"  # elsewhere the elements are those that were in memory
        drawer = (
            _DRAWERS_OF_FUNCTIONS.get((name, parameter))
            or _DRAWERS_OF_MODULES.get((name.rpartition(".")[0], parameter))
            or PARAMETERS.get(parameter)
            or by_default(info)
        )
        if drawer is None:
            raise Unfit
        return drawer(self._draw, first, value)

    def _further(self, name: str, first: str) -> list[str]:
        if name in ("reshape",):
            return [self._draw.shape(self._values[first].size)]
        if name == "transpose":
            axes = list(range(self._values[first].ndim))
            self._chance.shuffle(axes)
            return [str(axis) for axis in axes] if self._draw.happens(0.5) else []
        if name == "gradient":
            return [self._draw.one("2", "0.5")] if self._draw.happens(0.3) else []
        return [self._draw.operand(first) for _ in range(self._chance.randint(1, 3))]

    def operator(self) -> Line:
        """Draws an operator."""
        first = self._draw.array()
        if self._draw.happens(0.15):
            sign = self._draw.one("-", "+", "~", "abs")
            return self._line(f"abs({first})" if sign == "abs" else f"{sign}{first}", sign)
        operands = [first, self._draw.operand(first)]
        if self._draw.happens(0.4):
            operands.reverse()
        sign = self._draw.one(*_OPERATORS)
        return self._line(f"{operands[0]} {sign} {operands[1]}", sign)

    def index(self) -> Line:
        """Draws an index."""
        first = self._draw.array()
        return self._line(f"{first}[{self._draw.key(self._values[first].shape)}]", "[]")

    def assignment(self) -> Line:
        """Draws an assignment to elements."""
        first = self._writable()
        key = self._draw.key(self._values[first].shape)
        return Line(f"{first}[{key}] = {self._draw.operand(first)}", "[]=", (), first)

    def augmented(self) -> Line:
        """Draws an operator that assigns."""
        first = self._writable()
        sign = self._draw.one(*_OPERATORS[:13])
        return Line(f"{first} {sign}= {self._draw.operand(first)}", f"{sign}=", (), first)

    def change(self) -> Line:
        """Draws a call of a function that changes its first argument, or of a ufunc with an output."""
        first, draw = self._writable(), self._draw
        value = self._values[first]
        indices, values, mode = draw.indices(value.size), draw.operand(first), draw.one("'wrap'", "'clip'", "'raise'")
        updated = draw.one("add", "subtract", "multiply", "maximum", "minimum", "bitwise_or", "divide")
        calls = (
            ("put", f"{indices}, {values}"),
            ("put", f"[0, -9, 5], {values}, mode={mode}"),
            ("place", f"{draw.mask(first)}, {values}"),
            ("putmask", f"{draw.mask(first)}, {values}"),
            ("copyto", values),
            ("copyto", f"{values}, where={draw.mask(first)}"),
            ("copyto", f"{values}, casting='unsafe'"),
            ("fill_diagonal", values),
            ("fill_diagonal", f"{values}, wrap=True"),
            ("put_along_axis", f"np.argsort({first}, -1), {values}, -1"),
            (f"{updated}.at", f"{draw.indices(len(value) if value.ndim else 1)}, {draw.number()}"),
            (f"{updated}.at", f"{draw.mask(first)}, {draw.number()}"),
            (updated, f"{values}, out={first}"),
            (updated, f"{values}, out={first}, where={draw.mask(first)}"),
        )
        methods = (
            ("put", f"{indices}, {values}, mode={mode}"),
            ("fill", draw.one(draw.number(), values)),
            ("sort", draw.axis(value.ndim)),
            ("partition", f"range({_rows_along(value, '-1')})"),
        )
        if draw.happens(0.25):
            name, arguments = self._chance.choice(methods)
            return Line(f"{first}.{name}({arguments})", f".{name}", (), first)
        name, arguments = self._chance.choice(calls)
        if name == "place" and values == first:
            raise Unfit  # NumPy reads values that it has replaced
        if self.program.uses_xp and name.partition(".")[0] == updated:
            raise Unfit  # functions of the namespace are no ufuncs
        return Line(f"np.{name}({first}, {arguments})", name, (), first)

    def method_of_ufunc(self) -> Line:
        """Draws a call of a method of a ufunc."""
        first, draw = self._draw.array(), self._draw
        value = self._values[first]
        name = draw.one(
            *("add", "subtract", "multiply", "divide", "maximum", "minimum", "logical_and", "logical_or"),
            *("logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "fmax", "hypot", "less"),
        )
        method = draw.one("reduce", "accumulate", "reduceat", "outer")
        axis = draw.axis(value.ndim) if method != "reduce" else draw.axes(value.ndim)
        if method == "outer":
            arguments = [first, draw.operand(first)]
        elif method == "reduceat":
            arguments = [first, draw.indices(_rows_along(value, axis)), f"axis={axis}"]
        else:
            arguments = [first, f"axis={axis}"]
        return self._line(f"numpy.{name}.{method}({', '.join(arguments)})", f"{name}.{method}")

    def _writable(self) -> str:
        """Returns an array that is no view of another."""
        return self._chance.choice([name for name in self.program.inputs if name not in self.program.local])

    def attribute(self) -> Line:
        """Draws an attribute."""
        name = self._draw.one(*_ATTRIBUTES)
        return self._line(f"{self._draw.array()}.{name}", f".{name}")


_STATEMENTS: Sequence[Callable[[_Drawing], Line]] = (
    *[_Drawing.function] * 12,
    *[_Drawing.operator] * 4,
    *[_Drawing.method] * 5,
    *[_Drawing.index] * 2,
    _Drawing.assignment,
    _Drawing.augmented,
    _Drawing.attribute,
    _Drawing.change,
    _Drawing.method_of_ufunc,
)

_UNDRAWN = ("signature",)
"""Parameters that say nothing without others."""

_BY_SVD = frozenset(
    (
        *("linalg.svd", "linalg.svdvals", "linalg.pinv", "linalg.matrix_rank", "linalg.cond", "linalg.norm"),
        *("linalg.matrix_norm", "linalg.lstsq", "polyfit"),
    )
)
"""Functions of which NumPy's LAPACK may not return, if numbers are not finite."""

_MAX_WRAPPED = 1 << 20
"""The largest index that programs wrap around: NumPy does so step by step."""

_COMMUTED = frozenset(("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "dot", "inner", "outer"))
_KEYWORDS_OF: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("sum", "prod", "max", "min"), ("keepdims", "initial", "where")),
    **dict.fromkeys(("mean", "std", "var"), ("keepdims", "where")),
    "clip": ("dtype", "casting", "where"),
    "pad": ("constant_values", "end_values", "stat_length", "reflect_type"),
}
_DRAWERS_OF_FUNCTIONS: Mapping[tuple[str, str], Any] = {
    ("pad", "constant_values"): PARAMETERS["fill_value"],
    ("pad", "end_values"): PARAMETERS["fill_value"],
    ("pad", "stat_length"): lambda draw, *_: draw.one("None", "1", "2", "(1, 2)", "0"),
    ("pad", "reflect_type"): lambda draw, *_: draw.one("'even'", "'odd'"),
    ("pad", "mode"): lambda draw, *_: draw.one(
        *("'constant'", "'edge'", "'wrap'", "'reflect'", "'symmetric'", "'linear_ramp'", "'maximum'"),
        *("'minimum'", "'mean'", "'median'", "'empty'", "'full'"),
    ),
    ("convolve", "mode"): lambda draw, *_: draw.one("'full'", "'same'", "'valid'"),
    ("interp", "right"): PARAMETERS["fill_value"],
    ("digitize", "bins"): lambda draw, *_: draw.one("[0, 1, 2]", "[0.5, 2.5]", "numpy.array([3, 1, 0])", "[1, 0, 2]"),
    ("nan_to_num", "nan"): PARAMETERS["fill_value"],
    ("take", "mode"): lambda draw, *_: draw.one("'raise'", "'clip'", "'wrap'"),
    ("linalg.qr", "mode"): lambda draw, *_: draw.one("'reduced'", "'complete'", "'r'", "'raw'"),
    ("matrix_power", "n"): lambda draw, *_: draw.one("0", "1", "2", "3", "-1", "1.0"),
    ("interp", "xp"): lambda draw, *_: "[0, 1, 2]",
    ("interp", "fp"): lambda draw, *_: draw.one(
        "[0.5, 1, 3]", "[1, 2, 3]", "[1j, 2, 3]", "numpy.array([1, 2, 3], 'int8')"
    ),
    ("argpartition", "kind"): lambda *_: "'introselect'",
    ("partition", "kind"): lambda *_: "'introselect'",
    ("isin", "kind"): lambda draw, *_: draw.one("None", "'sort'", "'table'"),
    ("reshape", "copy"): lambda draw, *_: draw.one("None", "True"),
    ("correlate", "mode"): lambda draw, *_: draw.one("'full'", "'same'", "'valid'"),
    ("polyint", "k"): lambda draw, *_: draw.one("None", "2", "[1, 2]"),
    ("polyfit", "w"): lambda draw, first, value: draw.array(like=first, local=True),
    ("polyfit", "cov"): lambda draw, *_: draw.one("False", "True", "'unscaled'"),
    ("vander", "N"): lambda draw, *_: draw.one("None", "0", "1", "4", "-1"),
    ("average", "weights"): lambda draw, first, value: draw.array(like=first, local=True),
}


_SIZES = ("3", "1", "2", "5", "[3, 2]", "(2,)")
_DRAWERS_OF_MODULES: Mapping[tuple[str, str], Any] = {
    ("ndimage", "input"): lambda _, first, value: first,
    ("ndimage", "weights"): lambda draw, first, value: draw.one(
        first,
        *(f"numpy.arange({3**ndim}.).reshape({(3,) * ndim})" for ndim in (value.ndim, value.ndim, 1)),
        f"numpy.ones({(2,) * value.ndim}, {draw.dtype()})",
        "[1, 2, -1]",
    ),
    ("ndimage", "mode"): lambda draw, *_: draw.one(
        *("'reflect'", "'mirror'", "'nearest'", "'wrap'", "'constant'", "'grid-wrap'", "['wrap', 'nearest']", "'x'")
    ),
    ("ndimage", "axes"): lambda draw, _, value: draw.axes(value.ndim),
    ("ndimage", "size"): lambda draw, *_: draw.one(*_SIZES),
    ("ndimage", "sigma"): lambda draw, *_: draw.one("1", "0.5", "0", "[1, 2]", "(0.7,)"),
    ("ndimage", "order"): lambda draw, *_: draw.one("0", "1", "2", "[1, 0]", "-1"),
    ("ndimage", "origin"): lambda draw, *_: draw.one("0", "1", "-1", "[0, 1]", "3"),
    ("ndimage", "radius"): lambda draw, *_: draw.one("None", *_SIZES),
    ("ndimage", "output"): PARAMETERS["dtype"],
    ("ndimage", "cval"): PARAMETERS["fill_value"],
}
"""Values for the parameters of a module's functions."""


def _keyword(name: str) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)


def _select(draw: Arguments) -> tuple[list[str], list[str]]:
    first = draw.array()
    count = draw.chance.randint(1, 3)
    masks = [draw.mask(first) for _ in range(count)]
    if not any(mask not in ("True", "False") for mask in masks):
        raise Unfit
    arrays = [first, *(draw.operand(first) for _ in range(count - 1))]
    draw.chance.shuffle(arrays)
    rest = [draw.operand(first)] if draw.happens(0.5) else []
    return [f"[{', '.join(masks)}]", f"[{', '.join(arrays)}]", *rest], ["default"] * len(rest)


def _where(draw: Arguments) -> tuple[list[str], list[str]]:
    first = draw.array()
    return [draw.mask(first), draw.operand(first), first], []


def _einsum(draw: Arguments) -> tuple[list[str], list[str]]:
    a, b = draw.array(), draw.array(local=True)
    text = draw.one(
        "ij,jk", "ij,jk->ik", "ij,kj->ik", "i,i", "i,j->ij", "ij,ij->j", "...i,...i", "ij->ji", "ii", "ij->"
    )
    return [f"'{text}'", *([a, b] if "," in text else [a])], []


def _lexsort(draw: Arguments) -> tuple[list[str], list[str]]:
    keys = draw.arrays(min_count=2)
    return ([keys, "axis=" + draw.one("0", "-1")], ["axis"]) if draw.happens(0.4) else ([keys], [])


def _choose(draw: Arguments) -> tuple[list[str], list[str]]:
    # NumPy wraps large indices around step by step.
    first = draw.array(fits=lambda array: array.dtype.kind in "iu" and array.dtype.itemsize < 4)
    arrays = [draw.operand(first) for _ in range(draw.chance.randint(1, 3))]
    mode = [f"mode={draw.one(repr('wrap'), repr('clip'), repr('raise'))}"] if draw.happens(0.8) else []
    return [first, f"[{', '.join(arrays)}]", *mode], ["mode"] * len(mode)


def _ravel_multi_index(draw: Arguments) -> tuple[list[str], list[str]]:
    first = draw.array(fits=lambda array: array.dtype.kind in "iu")
    second, mode = draw.array(like=first), draw.one(repr("wrap"), repr("clip"), repr("raise"))
    return [f"({first}, {second})", "(9, 7)", f"mode={mode}"], ["mode"]


def _block(draw: Arguments) -> tuple[list[str], list[str]]:
    a, b = draw.array(), draw.array()
    return [draw.one(f"[{a}, {b}]", f"[[{a}], [{b}]]", f"[[{a}, {a}], [{b}, {b}]]", a)], []


def _ix(draw: Arguments) -> tuple[list[str], list[str]]:
    first = draw.array()
    rest = draw.one("", "[0, 2]", "[]", "[True, False]", draw.array(like=first, local=True))
    return ([first, rest] if rest else [first]), []


def _matvec(draw: Arguments) -> tuple[list[str], list[str]]:
    first, second = draw.array(), draw.array(local=True)
    return [draw.one(first, f"{first}[..., None, :]"), second], []


def _vecmat(draw: Arguments) -> tuple[list[str], list[str]]:
    first, second = draw.array(), draw.array(local=True)
    return [first, draw.one(second, f"{second}[..., None]")], []


def _tensorsolve(draw: Arguments) -> tuple[list[str], list[str]]:
    first = draw.array()
    return [draw.one(first, f"{first}.reshape(-1, 1, 1)"), draw.array(like=first, local=True)], []


def _intersect1d(draw: Arguments) -> tuple[list[str], list[str]]:
    first = draw.array()
    others = [f"return_indices={draw.flag()}"] if draw.happens(0.3) else []
    return [first, draw.operand(first), *others], ["return_indices"] * len(others)


def _apply_along_axis(draw: Arguments) -> tuple[list[str], list[str]]:
    first = draw.array()
    function = draw.one(
        *("np.sum", "np.cumsum", "np.sort", "lambda v: v * 2", "lambda v: v[::-1]", "lambda v: v.max() - v[0]"),
        *("lambda v: np.outer(v, v[:2])", "lambda v: 3"),
    )
    return [function, draw.axis(draw.value(first).ndim), first], []


def _apply_to_axes(draw: Arguments) -> tuple[list[str], list[str]]:
    first = draw.array()
    function = draw.one("np.sum", "np.max", "np.mean", "np.cumsum", "np.flip", "lambda a, axis: a.min(axis)")
    return [function, first, draw.axes(draw.value(first).ndim)], []


def _piecewise(draw: Arguments) -> tuple[list[str], list[str]]:
    first = draw.array()
    count = draw.chance.randint(1, 3)
    conditions = [draw.one(f"{first} > 0", f"{first} == 1", draw.mask(first)) for _ in range(count)]
    values = [
        draw.one("lambda v: -v", "lambda v: v * 10", "np.square", draw.number())
        for _ in range(count + draw.chance.randint(0, 1) + draw.happens(0.05))
    ]
    return [first, f"[{', '.join(conditions)}]", f"[{', '.join(values)}]"], []


_SPECIAL: Mapping[str, Callable[[Arguments], tuple[list[str], list[str]]]] = {
    "select": _select,
    "where": _where,
    "einsum": _einsum,
    "lexsort": _lexsort,
    "choose": _choose,
    "ravel_multi_index": _ravel_multi_index,
    "block": _block,
    "intersect1d": _intersect1d,
    "ix_": _ix,
    "matvec": _matvec,
    "vecmat": _vecmat,
    "linalg.tensorsolve": _tensorsolve,
    "apply_along_axis": _apply_along_axis,
    "apply_over_axes": _apply_to_axes,
    "piecewise": _piecewise,
}


def _rows_along(value: Any, axis: str) -> int:
    """Returns the size of an axis that the array has, else 1."""
    index = int(axis) if axis.lstrip("-").isdigit() else 0
    return int(value.shape[index]) if -value.ndim <= index < value.ndim else 1


def _size_of(value: Any) -> int:
    if isinstance(value, tuple | list):
        return sum(map(_size_of, value))
    return int(value.size) if isinstance(value, np.ndarray) else 1


def _may_not_return(line: Line, operands: Sequence[np.ndarray]) -> bool:
    """Returns whether NumPy would take for ever."""
    if line.call in _BY_SVD:
        return not all(np.isfinite(x).all() for x in operands)
    if "'wrap'" not in line.text:
        return False
    return "2**" in line.text or any(x.dtype.kind in "iu" and (abs(x / 1.0) > _MAX_WRAPPED).any() for x in operands)


def without(program: Program, index: int) -> Program:
    """Returns a program without one of its statements."""
    return replace(program, lines=[line for i, line in enumerate(program.lines) if i != index])
