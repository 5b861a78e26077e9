"""Random programs of views, aliases and writes, drawn from a seed: lists of statements over a few arrays."""

import math
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardcall_core.functions.table import FUNCTIONS

HELPERS = """
def bump(x, v=1):
    x += v
    return x

def setter(x):
    def write(key, v):
        x[key] = v
    return write

def swap(x):
    x[:1], x[-1:] = x[-1:], x[:1]

def first_rows(x, n):
    return [x[i] for i in range(min(n, len(x)))]

class Holder:
    def __init__(self, x):
        self.x = x
"""
"""Functions that programs call."""

_SHAPES = ((4,), (3, 4), (2, 3), (3, 3), (2, 2, 3), (6,), (1, 4), (3, 1), (0, 3), (), (1,), (2, 3, 2), (5, 5), (0,))
_LARGE = ((4099,), (65, 67), (4096,))
_DTYPES = ("float64", "int64", "float64", "int64", "complex128", "bool", "int8")
_NAMES = "abcdefgh"
_MAX_NAMES = 7
_MAX_ELEMENTS = 1 << 13
_MAX_VALUE = 1 << 30
_ERRORS = 0.25
_TRIES = 40


@dataclass
class Program:
    """A program.

    Attributes:
        label: the seed and the number that it was drawn from.
        inputs: the expressions of its arrays, by their names.
        lines: its statements.
    """

    label: str
    inputs: dict[str, str]
    lines: list[str] = field(default_factory=list)

    def source(self) -> str:
        """Returns the program as text for an interpreter, in which ``put`` puts arrays on the mesh."""
        arrays = [f"{name} = put({text})" for name, text in self.inputs.items()]
        return "\n".join([f"# {self.label}", "import numpy as np", HELPERS, *arrays, *self.lines])


_COMPILED_HELPERS = compile(HELPERS, "<helpers>", "exec")


def new_space(inputs: Mapping[str, str], put: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    """Returns the variables at the beginning of a program.

    Args:
        inputs: the expressions of its arrays.
        put: makes an array of a new array of NumPy.
    """
    space: dict[str, Any] = {"np": np, "__name__": "program"}
    exec(_COMPILED_HELPERS, space)  # of this file
    for name, text in inputs.items():
        space[name] = put(np.array(eval(text, {"np": np})))  # of this file
    return space


def run(text: str, space: dict[str, Any]) -> Exception | None:
    """Runs a statement; returns the error that it raises."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        try:
            exec(text, space)  # of this file
        except Exception as error:  # noqa: BLE001  # to be compared
            error.__traceback__ = None  # whose frames keep arrays
            return error
    return None


def live(space: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arrays that a program has by the expressions of them: names, and items of tuples and dicts."""
    names: dict[str, Any] = {}
    for name, value in space.items():
        if len(name) == 1:
            names.update(_leaves(name, value))
    return names


def _leaves(text: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, tuple | list):
        for i, item in enumerate(value):
            yield from _leaves(f"{text}[{i}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{text}[{key!r}]", item)
    elif hasattr(value, "dtype"):
        yield text, value
    elif type(value).__name__ == "Holder":
        yield f"{text}.x", value.x


def base_of(x: Any) -> Any:
    """Returns the array whose memory an array of NumPy has."""
    while isinstance(getattr(x, "base", None), np.ndarray):
        x = x.base
    return x


def is_writeable_part(x: Any) -> bool:
    """Returns whether there are kernels that write to a view: to the parts of complex numbers only with ``complex``."""
    return "complex" in FUNCTIONS or base_of(x).dtype.kind != "c" or x.dtype.kind == "c"


def state_of(space: Mapping[str, Any]) -> list[Any]:
    """Returns the values of all arrays of NumPy that a program has, for comparing."""
    return [(text, value.shape, value.dtype.str, value.tobytes()) for text, value in live(space).items()]


def drawn_program(seed: int | str, number: int, *, is_traced: bool = False, has_few_types: bool = False) -> Program:
    """Returns a program of up to 10 statements.

    Args:
        seed: the seed.
        number: the number of the program.
        is_traced: whether it is to be traced: it has no errors, and no sizes that depend on values.
        has_few_types: whether its arrays are of few shapes and element types, so that programs on the mesh are alike.
    """
    label = f"seed {seed}, number {number}" + ", traced" * is_traced + ", few types" * has_few_types
    return _Drawing(label, random.Random(label), is_traced=is_traced, has_few_types=has_few_types).program


class _Unfit(Exception):
    """A statement cannot be drawn from the arrays there are."""


class _Drawing:
    """Draws a program, which NumPy runs meanwhile.

    Attributes:
        program: the program.
    """

    def __init__(self, label: str, chance: random.Random, *, is_traced: bool, has_few_types: bool) -> None:
        self.chance, self.is_traced, self._has_few_types = chance, is_traced, has_few_types
        inputs = {name: self._input() for name in _NAMES[: chance.choice((1, 2, 2, 3))]}
        self.program = Program(label, inputs)
        self.space = new_space(inputs, lambda x: x)
        for _ in range(chance.randint(3, 10)):
            for _ in range(_TRIES):
                with suppress(_Unfit):
                    if self._accepts(text := str(chance.choices(*zip(*_STATEMENTS, strict=True))[0](self))):
                        self.program.lines.append(text)
                        break

    def _accepts(self, text: str) -> bool:
        """Runs a statement; returns whether the program is to have it."""
        before = state_of(self.space)
        error = run(text, self.space)
        if self._is_good() if error is None else state_of(self.space) == before:
            # Errors that are of NumPy, and not of the program.
            is_comparable = not isinstance(error, NameError | SyntaxError | MemoryError)
            return error is None or (not (self.is_traced or self.chance.random() > _ERRORS) and is_comparable)
        self.space = new_space(self.program.inputs, lambda x: x)
        for line in self.program.lines:
            run(line, self.space)
        return False

    def _is_good(self) -> bool:
        """Returns whether the arrays are few, small and of exact numbers, and their memory in row-major order.

        A view without axes of an array that is gone is a number on the mesh.
        """
        arrays = live(self.space)
        bases = Counter(id(base_of(value)) for value in arrays.values())
        if not arrays or len(arrays) > 2 * _MAX_NAMES or len([n for n in self.space if len(n) == 1]) > _MAX_NAMES:
            return False
        for value in arrays.values():
            if value.dtype.kind not in "fibc" or value.dtype.name not in _DTYPES or value.size > _MAX_ELEMENTS:
                return False
            if value.size and value.dtype.kind != "b":
                parts = (value.real, value.imag) if value.dtype.kind == "c" else (value,)
                if any(not (np.abs(part.astype(np.float64)) < _MAX_VALUE).all() for part in parts):
                    return False
                if any(part.dtype.kind == "f" and (part != np.rint(part)).any() for part in parts):
                    return False
            base = base_of(value)
            if isinstance(value, np.ndarray) and base is not value and not value.ndim and bases[id(base)] == 1:
                return False
            if isinstance(base, np.ndarray) and not (base.flags.c_contiguous and is_writeable_part(value)):
                return False
        return True

    def _input(self) -> str:
        chance = self.chance
        if self._has_few_types:
            return f"np.arange({chance.choice(('4.0', '4'))}) - 1" if chance.random() < 0.5 else "np.eye(3) * 2 + 1"
        shape = chance.choice(_LARGE if chance.random() < 0.02 else _SHAPES)
        dtype, size = chance.choice(_DTYPES), math.prod(shape)
        step = chance.choice((1, 3, 7))
        text = f"(np.arange({size}) * {step} % 11 - {chance.randint(0, 5)}).reshape({shape}).astype('{dtype}')"
        return f"{text} * (1 + 2j)" if dtype == "complex128" else text

    # Parts of statements

    def pick(self, min_ndim: int = 0, condition: Callable[[Any], bool] = lambda x: True) -> tuple[str, Any]:
        """Draws an array; returns its expression and NumPy's array."""
        names = [
            (text, value)
            for text, value in live(self.space).items()
            if isinstance(value, np.ndarray) and value.ndim >= min_ndim and condition(value)
        ]
        if not names:
            raise _Unfit
        return self.chance.choice(names)

    def operand(self) -> tuple[str, Any]:
        """Draws an array or a scalar that a statement reads."""
        return self.chance.choice(list(live(self.space).items()))

    def target_name(self) -> str:
        """Draws a name to assign to."""
        return self.chance.choice(_NAMES)

    def key(self, shape: tuple[int, ...], *, new_axes: bool = True) -> str:
        """Draws a basic index."""
        chance = self.chance
        items = [self._item(size) for size in shape[: chance.randint(0, len(shape))]]
        if chance.random() < 0.25:
            items.insert(chance.randint(0, len(items)), "...")
        if new_axes and chance.random() < 0.12:
            items.insert(chance.randint(0, len(items)), "None")
        if not items:
            return chance.choice(("...", ":") if shape else ("...", "()"))
        return ", ".join(items)

    def _item(self, size: int) -> str:
        chance = self.chance
        if size and chance.random() < 0.25:
            return str(chance.randint(-size, size - 1))
        form = chance.randint(0, 7)
        low, high = sorted((chance.randint(0, size), chance.randint(0, size)))
        return (
            ":", f"{low}:", f":{high}", f"{low}:{high}", "::-1", f"::{chance.choice((2, -2, 3))}", "1:", ":-1",
        )[form]  # fmt: skip

    def fancy_key(self, x: Any, text: str) -> str:
        """Draws an index of arrays or masks."""
        chance = self.chance
        if not x.ndim:
            raise _Unfit
        form = chance.randint(0, 3 if self.is_traced else 5)
        size = x.shape[0]
        if not size:
            return "[]"
        indices = [chance.randint(-size, size - 1) for _ in range(chance.randint(1, 4))]
        if form == 0:
            return str(indices)
        if form == 1:
            return f"np.array({indices})"
        if form == 2 and x.ndim > 1 and x.shape[1]:
            others = [chance.randint(-x.shape[1], x.shape[1] - 1) for _ in indices]
            return f"{indices}, {others}"
        if form == 3 and x.ndim > 1:
            return (
                f"{self._item(x.shape[0])}, {[chance.randint(-s, s - 1) for s in x.shape[1:2] if s for _ in range(2)]}"
            )
        if form == 4:
            return f"{text} > {chance.randint(-2, 4)}" if x.dtype.kind != "c" else f"{text} != 0"
        return str([chance.random() < 0.5 for _ in range(size)])

    def number(self, dtype: np.dtype[Any]) -> str:
        """Draws a number that an element type holds."""
        value = self.chance.randint(-3, 9)
        match dtype.kind:
            case "b":
                return str(value > 2)
            case "c":
                return f"({value}+{abs(value)}j)" if self.chance.random() < 0.7 else str(value)
            case "f":
                return f"{value}.0" if self.chance.random() < 0.7 else str(value)
        return str(value)

    def view(self, text: str, x: Any) -> str:
        """Draws an expression of a view of an array, or of a copy where NumPy has no view."""
        return self.chance.choice(_VIEWS)(self, text, x)

    def picked_view(self, counts: Sequence[int], condition: Callable[[Any], bool] = lambda x: True) -> tuple[str, Any]:
        """Draws an array and so many views, each of the one before."""
        text, x = self.pick()
        for _ in range(self.chance.choice(counts)):
            text = self.view(text, x)
            x = self.evaluated(text)
            if not isinstance(x, np.ndarray) or not condition(x):
                raise _Unfit
        return text, x

    def evaluated(self, text: str) -> Any:
        """Returns what NumPy gives for an expression without effects."""
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            try:
                return eval(text, self.space)  # of this file
            except Exception:  # noqa: BLE001  # of an expression that is not taken
                raise _Unfit from None

    def writeable_part(self) -> tuple[str, Any]:
        """Draws an expression of an array to write to: a name, or a view of it."""
        return self.picked_view((0, 0, 0, 1, 1, 2), is_writeable_part)

    def values_for(self, x: Any) -> str:
        """Draws values that broadcast to an array: a number, a part of the same or of another one, a constant."""
        chance = self.chance
        form = chance.randint(0, 5)
        if form == 0 or not isinstance(x, np.ndarray):
            return self.number(x.dtype)
        if form == 1:
            shape = x.shape[chance.randint(0, x.ndim) :]
            return f"np.arange({math.prod(shape)}).reshape({shape})"
        for _ in range(12):
            text, other = self.picked_view((0, 1, 1, 2))
            fits = False
            with suppress(ValueError):
                fits = np.broadcast_shapes(other.shape, x.shape) == x.shape
            if fits and other.shape and other.shape != (1,):
                if x.squeeze().ndim == 1 and np.shares_memory(x, other):
                    text = f"np.copy({text})"  # NumPy reads what it has written, where the steps in memory differ
                return text if form < 4 else f"{text} {chance.choice('+-*')} {self.number(other.dtype)}"
        return self.number(x.dtype)

    # Statements

    def assign_view(self) -> str:
        text, x = self.pick()
        return f"{self.target_name()} = {self.view(text, x)}"

    def assign_views(self) -> str:
        text, x = self.pick(1)
        axis = self.chance.randrange(x.ndim)
        names = self.chance.sample(_NAMES, 2)
        if x.shape[axis] == 2 and axis == 0 and self.chance.random() < 0.5:
            return f"{names[0]}, {names[1]} = {text}"
        if x.shape[axis] % 2 == 0:
            return f"{names[0]}, {names[1]} = np.split({text}, 2, {axis})"
        return f"{names[0]}, {names[1]} = np.array_split({text}, 2, axis={axis})"

    def assign_copy(self) -> str:
        text, x = self.pick()
        chance = self.chance
        forms = [
            f"{text}.copy()", f"np.copy({text})", f"{text}.flatten()", f"+{text}",
            f"{text}.astype('{chance.choice(_DTYPES)}')", f"{text}.astype({text}.dtype)",
            f"np.repeat({text}, 2)", f"np.tile({text}, 2)",
            f"np.zeros_like({text})", f"np.roll({text}, 1)", f"np.concatenate([{text}, {text}])",
            f"np.stack([{text}, {text}])", f"np.where({text}, {text}, 2) + 0", f"np.take({text}, [0])",
            f"np.sort({text})", f"np.triu({text})" if x.ndim else f"{text} + 1", f"np.resize({text}, (2, 3))",
        ]  # fmt: skip
        if x.ndim:
            forms += [f"{text}[{self.fancy_key(x, text)}].copy()"] * 4  # in row-major order
        return f"{self.target_name()} = {chance.choice(forms)}"

    def assign_computed(self) -> str:
        (text, x), (other, y) = self.operand(), self.operand()
        chance = self.chance
        axis = chance.randrange(-np.ndim(x), np.ndim(x)) if np.ndim(x) else None
        forms = [
            f"{text} + {other}", f"{text} * {other}", f"{text} - {other}", f"-{text}", f"abs({text})",
            f"{text} @ {other}" if np.ndim(x) and np.ndim(y) else f"{text} * 2",
            f"np.maximum({text}, {other})", f"np.where({text} == {other}, {text}, {other}) + 0",
            f"{text}.sum()", f"{text}.sum(axis={axis})", f"np.max({text}, axis={axis})", f"{text}.any(axis={axis})",
            f"{text}.cumsum({axis})", f"np.min({text})", f"{text} > {other}", f"np.square({text})", f"~({text} == 1)",
            f"np.dot({text}, {other})", f"np.outer({text}, {other})", f"{text}.prod()", f"{text} // 2", f"{text} % 3",
            f"np.clip({text}, -1, 3)", f"np.count_nonzero({text})", f"np.conj({text})", f"np.diff({text})",
            f"np.trace({text})", f"np.sign({text})", f"{text}.real", f"{text}.imag + 0",
        ]  # fmt: skip
        return f"{self.target_name()} = {chance.choice(forms)}"

    def assign_alias(self) -> str:
        (text, x), (other, _) = self.pick(), self.pick()
        chance, name = self.chance, self.target_name()
        forms = [
            f"{name} = {text}", f"{name} = ({text}, {other})", f"{name} = [{text}, {self.view(other, _)}]",
            f"{name} = {{'k': {text}}}", f"{name} = bump({text})", f"{name} = Holder({text})",
            f"{name} = {text}.view()", f"{name} = setter({text})",
        ]  # fmt: skip
        if x.ndim and "[" not in text and "." not in text:
            forms.append(f"{name} = first_rows({text}, 3)")
        return chance.choice(forms)

    def delete(self) -> str:
        names = [name for name in self.space if len(name) == 1]
        if len(names) < 2 or self.is_traced:
            raise _Unfit
        return f"del {self.chance.choice(names)}"

    def set_item(self) -> str:
        text, x = self.writeable_part()
        key = self.key(x.shape)
        part = self.evaluated(f"{text}[{key}]")
        if self.chance.random() < 0.06:
            return f"{text}[{key}] = {self.operand()[0]}"
        return f"{text}[{key}] = {self.values_for(part)}"

    def set_overlapping(self) -> str:
        text, x = self.pick(1)
        forms = [
            f"{text}[1:] = {text}[:-1]", f"{text}[:-1] = {text}[1:]", f"{text}[::-1] = {text}",
            f"{text}[...] = {text}[::-1]",
            f"{text}[0], {text}[-1] = {text}[-1], {text}[0]", f"swap({text})", f"{text}[1:] += {text}[:-1]",
            f"{text} += {text}[::-1]", f"{text}[:] = {text}[..., ::-1]", f"{text}[1:] -= {text}[0]",
        ]  # fmt: skip
        if x.ndim > 1:
            forms += [f"{text}[...] = {text}[0]", f"{text}.T[...] = {text}.T[::-1]", f"{text} *= {text}[:, :1]"]
        if x.ndim == 2 and x.shape[0] == x.shape[1]:
            forms += [f"{text}[...] = {text}.T", f"{text} += {text}.T", f"{text} -= np.diagonal({text})"] * 2
        return self.chance.choice(forms)

    def set_fancy(self) -> str:
        text, x = self.writeable_part()
        if x.dtype.kind != "c" and self.chance.random() < 0.3:
            operator = self.chance.choice(("=", "+=", "*="))
            return f"{text}[{text} > {self.chance.randint(-2, 4)}] {operator} {self.number(x.dtype)}"
        key = self.fancy_key(x, text)
        part = self.evaluated(f"{text}[{key}]")
        values = self.values_for(part) if isinstance(part, np.ndarray) else self.number(x.dtype)
        values = f"np.copy({values})"  # NumPy reads what it has written
        operator = self.chance.choice(("=", "=", "=", "+=", "*=", "-="))
        return f"{text}[{key}] {operator} {values}"

    def augmented(self) -> str:
        text, x = self.pick()
        if self.chance.random() < 0.5:
            key = self.key(x.shape)
            text, x = f"{text}[{key}]", self.evaluated(f"{text}[{key}]")
        operator = self.chance.choice(("+=", "-=", "*=", "+=", "-=", "//=", "%=", "**=", "&=", "|=", "^=", "/=", "<<="))
        values = self.values_for(x)
        if operator in ("//=", "%="):
            values = str(self.chance.randint(1, 4))
        elif operator in ("**=", "<<="):
            values = "2"
        elif operator == "/=":
            values = "0.5"
        return f"{text} {operator} {values}"

    def failing_write(self) -> str:
        """Draws a write that fails by its values, of which a reader on the mesh learns; the array stays as it is."""
        text, x = self.picked_view((0, 0, 1, 2), lambda x: x.dtype.kind == "i" and x.size > 0)
        if not any(np.shares_memory(x, value) for value in live(self.space).values()):
            raise _Unfit  # nobody would read the error
        power = self.chance.choice(("-1", f"(0 * {text} - 1)"))
        return self.chance.choice(
            (
                f"{text} **= {power}" if text.isidentifier() else f"{text}[:] **= {power}",
                f"np.power({text}, {power}, out={text})",
                f"{text}[...] **= {power}",
            )
        )

    def out(self) -> str:
        text, x = self.writeable_part()
        chance = self.chance
        other = self.values_for(x)
        third = self.values_for(x)
        where = ""
        if chance.random() < 0.25:
            masks = f"{text} != 2", "False", f"np.arange({x.size}).reshape({x.shape}) % 2 == 0"
            where = f", where={chance.choice(masks)}"
        casting = ", casting='unsafe'" if not where and chance.random() < 0.1 else ""
        forms = [
            f"np.{name}({other}, {third}, out={text}{where}{casting})"
            for name in ("add", "subtract", "multiply", "maximum", "minimum", "add")
        ]
        # With ``where``, a result of another type and an operand in the same memory, NumPy (2.4) changes elements that
        # are not selected.
        other = f"np.copy({other})" if where else other
        forms += [f"np.{name}({other}, out={text}{where})" for name in ("negative", "square", "absolute", "positive")]
        forms += [f"np.add({text}, {other}, {text})", f"{self.target_name()} = np.multiply({text}, 2, out={text})"]
        source, y = self.pick()
        if y.ndim:
            axis = chance.randrange(y.ndim)
            reduced = (*y.shape[:axis], *y.shape[axis + 1 :])
            forms += [f"np.less({source}, {other}, out={text})", f"np.matmul({source}, {other}, out={text})"]
            forms += [f"np.dot({source}, {other}, out={text})", f"np.concatenate([{source}, {other}], out={text})"]
            if x.shape == y.shape:
                forms += [
                    f"np.cumsum({source}, axis={axis}, out={text})", f"{source}.cumprod(axis={axis}, out={text})",
                    f"np.clip({source}, -1, 2, out={text})", f"np.add.accumulate({source}, axis={axis}, out={text})",
                ] * 3  # fmt: skip
            if x.shape == reduced:
                forms += [
                    f"np.sum({source}, axis={axis}, out={text})", f"{source}.max(axis={axis}, out={text})",
                    f"np.add.reduce({source}, axis={axis}, out={text})", f"np.any({source}, axis={axis}, out={text})",
                    f"np.add.reduce({source}, {axis}, None, {text})",
                ] * 4  # fmt: skip
        return chance.choice(forms)

    def write_by_function(self) -> str:
        text, x = self.writeable_part()
        chance = self.chance
        number, values = self.number(x.dtype), self.values_for(x)
        indices = [chance.randint(-x.size, x.size - 1) for _ in range(3)] if x.size else []
        rows = [chance.randint(0, len(x) - 1) for _ in range(3)] if x.ndim and len(x) else []
        mask = f"np.arange({x.size}).reshape({x.shape}) % 3 == 1"
        forms = [
            f"{text}.fill({number})", f"np.copyto({text}, {values})" if x.flags.writeable else f"{text}.fill(1)",
            f"np.copyto({text}, np.copy({values}), where={mask})",
            f"np.put({text}, {indices}, [{number}, {self.number(x.dtype)}])", f"{text}.put({indices}, {number})",
            f"np.put({text}, [0, {x.size + 1}], {number}, mode='{chance.choice(('wrap', 'clip'))}')",
            f"np.place({text}, {mask}, [{number}, {self.number(x.dtype)}])",
            f"np.putmask({text}, {mask}, [{number}, {self.number(x.dtype)}])",
            f"{text}.flat[{chance.choice(('0', '1:3', '::-1', '[0, -1]', '::2', '-1'))}] = {number}",
            f"{text}.flat = {chance.choice((number, '[1, 2, 3]'))}" if "(" not in text else f"{text}.fill(1)",
            f"{text}.flat[:] = np.copy({values})", f"setter({text})(..., {values})", f"bump({text}, {number})",
            f"{text}.itemset" if chance.random() < 0.02 else f"{text}[...] = {values}",
        ]  # fmt: skip
        if x.ndim:
            axis = chance.randrange(x.ndim)
            forms += [f"{text}.sort()", f"{text}.sort(axis={axis})", f"{text}[::-1].sort(0)"]
            if x.shape[axis] and x.shape[axis] < 100:
                forms += [f"{text}.partition({x.shape[axis] - 1}, axis={axis}); {text}.sort({axis})"]
        if x.ndim and x.flags.writeable:  # which ufunc.at does not look at
            forms += [f"np.add.at({text}, {rows}, {number})", f"np.maximum.at({text}, {rows}, {number})"]
            forms += [f"np.subtract.at({text}, {rows}, {number})", f"np.negative.at({text}, {rows[:1]})"]
        if x.ndim > 1:
            forms += [f"np.fill_diagonal({text}, {number})"] * 2
            forms += [f"np.put_along_axis({text}, np.zeros({(*x.shape[:-1], 1)}, int), {number}, -1)"]
        if x.ndim > 1 and x.shape[0] < 6:
            forms += [f"for r in {text}: r += {number}", f"for i in range(len({text})): {text}[i] += i"]
        return chance.choice(forms)

    def set_shape(self) -> str:
        text, x = self.pick()
        return f"{text}.shape = {self._shape(x.size)}"

    def call_setter(self) -> str:
        names = [name for name, value in self.space.items() if len(name) == 1 and callable(value)]
        if not names:
            raise _Unfit
        key = self.chance.choice(("...", "0", "slice(1, None)", "-1"))
        return f"{self.chance.choice(names)}({key}, {self.chance.randint(0, 5)})"

    def _shape(self, size: int) -> tuple[int, ...]:
        divisors = [n for n in range(1, size + 1) if size % n == 0] if size < 100 else [1, size]
        if not size:
            return self.chance.choice(((0,), (0, 2), (3, 0)))
        first = self.chance.choice(divisors)
        rest = size // first
        return self.chance.choice(((size,), (first, rest), (first, 1, rest), (rest, -1), (-1,), (1, first, rest)))


def _index(draw: _Drawing, text: str, x: Any) -> str:
    return f"{text}[{draw.key(x.shape)}]"


def _transposed(draw: _Drawing, text: str, x: Any) -> str:
    axes = list(range(x.ndim))
    draw.chance.shuffle(axes)
    first, second = (draw.chance.randrange(-x.ndim, x.ndim) for _ in range(2)) if x.ndim else (0, 0)
    return draw.chance.choice(
        (
            f"{text}.T", f"{text}.transpose({tuple(axes)})", f"np.transpose({text})",
            f"{text}.swapaxes({first}, {second})",
            f"np.moveaxis({text}, {first}, {second})", f"np.swapaxes({text}, {first}, {second})", f"{text}.T",
            f"np.rollaxis({text}, {first})", f"np.matrix_transpose({text})", f"{text}.mT",
        )
    )  # fmt: skip


def _reshaped(draw: _Drawing, text: str, x: Any) -> str:
    shape = draw._shape(x.size)
    return draw.chance.choice(
        (
            f"{text}.reshape({shape})", f"np.reshape({text}, {shape})", f"{text}.ravel()", f"np.ravel({text})",
            f"{text}.reshape(-1)", f"{text}.squeeze()", f"np.squeeze({text})",
            f"{text}.reshape({shape}, order='{draw.chance.choice('FA')}')",
            f"{text}.ravel('{draw.chance.choice('FAK')}')",
            f"np.expand_dims({text}, {draw.chance.randint(0, x.ndim)})",
            f"np.atleast_1d({text})", f"np.atleast_2d({text})", f"np.atleast_3d({text})",
        )
    )  # fmt: skip


def _other_view(draw: _Drawing, text: str, x: Any) -> str:
    chance = draw.chance
    forms = [f"{text}.view()", f"np.flip({text})", f"np.broadcast_to({text}, {(2, *x.shape)})", f"{text}[...]"]
    if x.ndim:
        axis = chance.randrange(x.ndim)
        forms += [
            f"np.flip({text}, {axis})",
            f"np.array_split({text}, 2, {axis})[{chance.randint(0, 1)}]",
            f"np.flipud({text})",
        ]
    if x.ndim > 1:
        forms += [
            f"np.fliplr({text})",
            f"np.rot90({text}, {chance.randint(1, 3)})",
            f"np.diagonal({text})",
            f"{text}.diagonal({chance.randint(-1, 1)})",
        ]
        forms += [f"np.unstack({text})[0]", f"np.vsplit({text}, [1])[0]", f"np.hsplit({text}, [1])[1]"]
    if x.ndim > 1:
        forms += [f"np.einsum('...ij->...ji', {text})"] * 2
        if x.shape[-1] == x.shape[-2]:
            forms += [f"np.einsum('...ii->...i', {text})", f"np.einsum('ii...->i...', {text})"]
    if x.dtype.kind == "c":
        forms += [f"{text}.real", f"{text}.imag", f"np.real({text})"]
    else:
        forms += [f"{text}.real", f"np.real({text})"]
    return chance.choice(forms)


_VIEWS = (_index, _index, _index, _transposed, _reshaped, _other_view)

_STATEMENTS = (
    (_Drawing.assign_view, 22), (_Drawing.assign_views, 3), (_Drawing.assign_copy, 5), (_Drawing.assign_computed, 5),
    (_Drawing.assign_alias, 6), (_Drawing.delete, 3), (_Drawing.set_item, 16), (_Drawing.set_overlapping, 7),
    (_Drawing.set_fancy, 7), (_Drawing.augmented, 12), (_Drawing.out, 10), (_Drawing.write_by_function, 14),
    (_Drawing.set_shape, 2), (_Drawing.call_setter, 2), (_Drawing.failing_write, 12),
)  # fmt: skip
