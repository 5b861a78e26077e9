"""Random differentiable functions with loops, masks and writes, as text for arrays on the mesh and as text for JAX."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

_UNARY = (
    *("np.sin({})", "np.tanh({})", "np.arctan({})", "np.exp(np.sin({}))", "np.log1p(np.square({}))", "-{}", "{} ** 3"),
    *("np.sqrt(1 + np.square({}))", "1 / (2 + np.cos({}))", "np.abs({})", "np.cumsum({}, -1)", "np.flip({})"),
)
_BINARY = ("{} + {}", "{} - {}", "{} * {}", "np.maximum({}, {})", "np.arctan2({}, 3 + np.cos({}))", "np.hypot({}, {})")
_REDUCTIONS = ("np.sum", "np.max", "np.prod")
_ON_POSITIVE = ("np.sqrt({})", "np.log({})", "1 / {}", "{} ** -0.5", "{} ** 1.5", "np.log({}) * np.sqrt({})")
"""Functions that have no derivative at 0."""
_TRIES = 20


@dataclass(frozen=True)
class GeneratedFunction:
    """A function of ``x`` and ``d`` that returns one number.

    Attributes:
        ours: its source, with masks and writes; calls ``np``, ``xp`` and ``repeat``.
        jax: its source in JAX's terms, where all elements are computed and none is written to.
        x: a value of x.
        d: a value of d, with NaN, infinity and 0 among its elements, which the function takes by masks alone.
    """

    ours: str
    jax: str
    x: np.ndarray
    d: np.ndarray


def generated_function(seed: int) -> GeneratedFunction:
    """Returns the function of a seed."""
    chance, values = random.Random(seed), np.random.default_rng(seed)
    count, rows = chance.choice((3, 5, 8)), chance.choice((2, 3))
    x, d = values.normal(size=(rows, count)), values.normal(size=count)
    x[0, 0], d[:3] = 0, chance.sample((np.nan, np.inf, 0.0, -1.0, 2.0), 3)
    draw = _Drawing(chance, {"x": x.shape, "d": d.shape}, {"d"})
    draw.write("a = x + 0.5 * x", "b = x[0] * 1.5")
    draw.shapes |= {"a": x.shape, "b": d.shape}
    draw.statements(chance.randint(2, 4), depth=1)
    total = " + ".join(f"np.sum({name})" for name in draw.shapes if name not in "xd")
    draw.write(f"return {total}")
    ours, jax = ("def f(x, d):\n" + "\n".join(f"    {line}" for line in lines) for lines in (draw.ours, draw.jax))
    return GeneratedFunction(ours, jax, x, d)


class _Drawing:
    """A function or the body of a loop that is being drawn.

    Attributes:
        ours: its lines for arrays on the mesh.
        jax: its lines for JAX.
        shapes: the shapes of the variables that expressions may take.

    Args:
        chance: draws.
        shapes: as the attribute.
        unsafe: the names of those that are taken by masks alone.
        fixed: the names of those that are not written to.
    """

    def __init__(
        self, chance: random.Random, shapes: dict[str, tuple[int, ...]], unsafe: set[str], prefix: str = ""
    ) -> None:
        self.chance = chance
        self.shapes = shapes
        self.ours: list[str] = []
        self.jax: list[str] = []
        self._unsafe = unsafe
        self._fixed = {*shapes}
        self._prefix = prefix
        self._count = 0

    def write(self, *lines: str) -> None:
        """Adds lines that are the same for both."""
        self.ours += lines
        self.jax += lines

    def statements(self, count: int, depth: int) -> None:
        """Draws statements, among them loops that are so many levels deep."""
        kinds: list[Callable[[], None]] = [
            *(self._assigned, self._masked_write, self._masked_write, self._masked_reduction, self._masked_ufunc),
            *(self._slice_write, self._view_write, self._repeated_index),
        ]
        loops = [self._scan, self._scan, self._fori_loop, self._repeat, self._while_loop, self._branch]
        for _ in range(count):
            if depth and self.chance.random() < 0.4:
                self.chance.choice(loops)(depth)
            else:
                self.chance.choice(kinds)()

    def name(self, *, ndim: int | None = None, is_written: bool = False, is_any: bool = False) -> str:
        """Draws a variable: with a number of axes, one that may be written to, or also one of masks alone."""
        names = [
            name
            for name, shape in self.shapes.items()
            if ndim in (None, len(shape)) and (is_any or name not in self._unsafe)
        ]
        if is_written:
            names = [name for name in names if name not in self._fixed and self.shapes[name]] or [self._new_array()]
        return self.chance.choice(names[-5:])

    def expression(self, shape: tuple[int, ...], depth: int = 2) -> str:
        """Draws an expression that broadcasts to a shape; its value is no view."""
        form = self.chance.choice(_BINARY if depth and self.chance.random() < 0.5 else _UNARY)
        if not shape and ("cumsum" in form or "flip" in form):
            form = "np.sin({})"
        parts = (self._part(shape, depth - 1) for _ in range(form.count("{}")))
        return f"({form.format(*parts)})"

    def _part(self, shape: tuple[int, ...], depth: int) -> str:
        if depth > 0 and self.chance.random() < 0.4:
            return self.expression(shape, depth)
        fit = [name for name, other in self.shapes.items() if other == shape and name not in self._unsafe]
        larger = [
            name for name, other in self.shapes.items() if other[1:] == shape and other and name not in self._unsafe
        ]
        parts = [
            *fit,
            *fit,
            *(f"{self.chance.choice(('np.mean', 'np.max', 'np.prod'))}({n}, 0)" for n in larger),
            *(f"{name}[{self.chance.randint(-1, 1)}]" for name in larger),
        ]
        return self.chance.choice(parts or [f"{self.chance.uniform(-2, 2):.2f}"])

    def _new(self, shape: tuple[int, ...]) -> str:
        self._count += 1
        name = f"{self._prefix}v{self._count}"
        self.shapes[name] = shape
        return name

    def _new_array(self) -> str:
        shape = self.chance.choice([shape for shape in self.shapes.values() if shape])
        text = f"np.zeros({shape}) + {self.expression(shape)}"
        name = self._new(shape)
        self.write(f"{name} = {text}")
        return name

    def _assigned(self) -> None:
        shape = self.chance.choice([*self.shapes.values()])
        text = self.expression(shape)
        self.write(f"{self._new(shape)} = np.zeros({shape}) + {text}")

    def _mask(self, name: str) -> tuple[str, str]:
        """Draws a mask, and a function without a derivative elsewhere."""
        if name in self._unsafe:
            return f"np.isfinite({name}) & ({name} > 0)", self.chance.choice((*_ON_POSITIVE, *_UNARY[:5]))
        return f"{name} > {self.chance.choice(('0', '0.3'))}", self.chance.choice(_ON_POSITIVE)

    def _masked_write(self) -> None:
        y = self.name(is_written=True)
        mask, form = self._mask(y)
        scale = self._part((), 1)
        new, safe = f"{y}[m]", f"np.where(m, {y}, 1.0)"
        value, other = (f"{form.replace('{}', part)} * {scale}" for part in (new, safe))
        self.write(f"m = {mask}")
        self.ours.append(f"{y}[m] = {value}")
        self.jax.append(f"{y} = np.where(m, {other}, {y})")

    def _masked_reduction(self) -> None:
        y = self.name(is_any=True)
        if not self.shapes[y]:
            return self._assigned()
        (mask, form), function = self._mask(y), self.chance.choice(_REDUCTIONS)
        if self.chance.random() < 0.4:
            mask = f"np.isfinite({y})" if y in self._unsafe else f"{y} >= np.mean({y})"
            form, function = self.chance.choice(_UNARY[:5]), self.chance.choice(("np.mean", "np.var"))
        scale = self._part((), 1)
        value, other = (f"{form.replace('{}', part)} * {scale}" for part in (f"{y}[m]", f"np.where(m, {y}, 1.0)"))
        name = self._new(())
        self.write(f"m = {mask}")
        initial = ", initial=-1e9" if function == "np.max" else ""
        self.ours.append(f"{name} = {function}({value}{initial})")
        self.jax.append(f"{name} = {function}({other}, where=m{initial})")

    def _masked_ufunc(self) -> None:
        y = self.name(is_any=True)
        if not self.shapes[y]:
            return self._assigned()
        mask, _ = self._mask(y)
        text = self.expression(self.shapes[y])
        z = self._new(self.shapes[y])
        self.write(f"m = {mask}", f"{z} = np.zeros({self.shapes[y]}) + {text}")
        function = self.chance.choice(("np.sqrt({})", "np.log({})", "np.divide(1, {})", "np.power({}, -0.5)"))
        self.ours.append(function.replace("{}", y)[:-1] + f", where=m, out={z})")
        self.jax.append(f"{z} = np.where(m, {function.format(f'np.where(m, {y}, 1.0)')}, {z})")

    def _key(self, shape: tuple[int, ...]) -> str:
        keys = ["1:", "::2", "-1", "...", ":-1", "::-1"]
        return self.chance.choice([*keys, ":, 1:", ":, 0"] if len(shape) > 1 else keys)

    def _slice_write(self) -> None:
        y = self.name(is_written=True)
        key = self._key(self.shapes[y])
        part = np.empty(self.shapes[y])[eval(f"np.s_[{key}]", {"np": np})].shape  # of this file
        text, (operator, method) = (
            self.expression(part),
            self.chance.choice((("=", "set"), ("+=", "add"), ("*=", "multiply"))),
        )
        self.ours.append(f"{y}[{key}] {operator} {text}")
        self.jax.append(f"{y} = {y}.at[{key}].{method}({text})")

    def _view_write(self) -> None:
        y = self.name(is_written=True)
        scale = self._part((), 1)
        self.ours += [f"t = {y}[1:]", f"t *= {scale}", f"{y}[0] = t[-1]"]
        self.jax += [f"{y} = {y}.at[1:].multiply({scale})", f"{y} = {y}.at[0].set({y}[-1])"]

    def _repeated_index(self) -> None:
        y = self.name(is_written=True)
        text = self.expression(self.shapes[y][1:])
        self.ours.append(f"np.add.at({y}, [0, 1, 0], {text})")
        self.jax.append(f"{y} = {y}.at[np.array([0, 1, 0])].add({text})")

    def _body(self, parameters: dict[str, tuple[int, ...]], depth: int) -> "_Drawing":
        """Draws the lines of a body."""
        self._count += 1
        body = _Drawing(self.chance, {**self.shapes, **parameters}, self._unsafe, f"{self._prefix}v{self._count}_")
        body.statements(self.chance.randint(1, 2), depth - 1)
        return body

    def _add_body(self, body: "_Drawing", head: str) -> None:
        self.ours += [head, *(f"    {line}" for line in body.ours)]
        self.jax += [head, *(f"    {line}" for line in body.jax)]

    def _scan(self, depth: int) -> None:
        xs = self.name()
        if not (shape := self.shapes[xs]):
            return self._assigned()
        carry = self.chance.choice((shape[1:], ()))
        begin = self.expression(carry)
        body = self._body({"c": carry, "r": shape[1:]}, depth)
        body.write(
            f"return np.tanh({body.expression(carry)} * c) + c * 0.5, np.sin({body.expression(shape[1:])}) + 0 * r"
        )
        self._add_body(body, "def step(c, r):")
        reverse = ", reverse=True" if self.chance.random() < 0.3 else ""
        self.write(f"{self._new(carry)}, {self._new(shape)} = scan(step, np.zeros({carry}) + {begin}, {xs}{reverse})")
        return None

    def _loop(self, depth: int, head: str, call: str) -> None:
        y = self.name()
        shape = self.shapes[y]
        body = self._body({"s": shape}, depth)
        body.write(f"return np.sin({body.expression(shape)}) + s * 0.5")
        self._add_body(body, head)
        self.write(f"{self._new(shape)} = {call.format(y)}")

    def _fori_loop(self, depth: int) -> None:
        self._loop(depth, "def step(i, s):", f"fori_loop(0, {self.chance.randint(1, 4)}, step, {{}})")

    def _repeat(self, depth: int) -> None:
        self._loop(depth, "def step(s):", f"repeat(step, {{}}, {self.chance.randint(1, 4)})")

    def _while_loop(self, depth: int) -> None:
        y = self.name()
        limit = self.chance.randint(3, 20)
        self.write(
            f"n = while_loop(lambda i: i * i < {limit}, lambda i: i + 1, 1)",
            f"{self._new(self.shapes[y])} = {y} / n",
        )

    def _branch(self, depth: int) -> None:
        y = self.name()
        shape = self.shapes[y]
        one, other = self.expression(shape), self.expression(shape)
        self.write(
            f"{self._new(shape)} = cond(np.sum({y}) > 0.2, lambda: {one} + np.zeros({shape}), lambda: {other} + np.zeros({shape}))"
        )
