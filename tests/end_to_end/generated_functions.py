"""Random differentiable functions with loops, masks and writes, as text for arrays on the mesh and as text for JAX."""

import random
from dataclasses import dataclass

import numpy as np

Shape = tuple[int, ...]

_SMOOTH = ("np.sin({})", "np.tanh({})", "np.arctan({})", "np.exp(np.sin({}))", "np.log1p(np.square({}))")
_UNARY = (
    *(*_SMOOTH, "-{}", "{} ** 3", "np.sqrt(1 + np.square({}))", "1 / (2 + np.cos({}))", "np.abs({})"),
    *("np.cumsum({}, -1)", "np.flip({})", "np.sort({}, -1)", "np.roll({}, 1, -1)"),
)
_BINARY = ("{} + {}", "{} - {}", "{} * {}", "np.maximum({}, {})", "np.arctan2({}, 3 + np.cos({}))", "np.hypot({}, {})")
_ON_POSITIVE = ("np.sqrt({})", "np.log({})", "1 / {}", "{} ** -0.5", "{} ** 1.5", "np.log({}) * np.sqrt({})")
"""Functions without a derivative at 0."""
_UFUNCS = ("np.sqrt({}", "np.log({}", "np.divide(1, {}", "np.power({}, -0.5")
_WRITES = (("=", "set"), ("+=", "add"), ("*=", "multiply"))
_KEYS = ("1:", "::2", "-1", "...", ":-1", "::-1")
_KEYS_OF_MATRICES = (*_KEYS, ":, 1:", ":, 0")


@dataclass(frozen=True)
class GeneratedFunction:
    """A function of ``x`` and ``d`` that returns one number.

    Attributes:
        ours: its source, with masks and writes.
        jax: its source for `jax.numpy`, which computes all elements and writes to none.
        x: [rows, columns] a value of x, with a 0.
        d: [columns] a value of d, with elements such as NaN, infinity and 0, which the function takes by masks alone.
    """

    ours: str
    jax: str
    x: np.ndarray
    d: np.ndarray


def generated_function(seed: int, max_statements: int) -> GeneratedFunction:
    """Returns the function of a seed, of two statements or more."""
    chance, values = random.Random(seed), np.random.default_rng(seed)
    x, d = values.normal(size=(chance.choice((2, 3)), chance.choice((3, 5, 8)))), values.normal(size=8)
    d = d[: x.shape[1]]
    x[0, 0], d[:3] = 0, chance.sample((np.nan, np.inf, 0.0, -1.0, 2.0), 3)
    body = _Body(chance, {"x": x.shape, "d": d.shape})
    body.write("a = x + 0.5 * x", "b = x[0] * 1.5")
    body.shapes |= {"a": x.shape, "b": d.shape}
    body.add_statements(chance.randint(2, max_statements), depth=1)
    body.write("return " + " + ".join(f"np.sum({name})" for name in body.shapes if name not in "xd"))
    return GeneratedFunction(*("\n    ".join(["def f(x, d):", *lines]) for lines in (body.ours, body.jax)), x, d)


class _Body:
    """The lines of a function or of the body of a loop.

    Attributes:
        ours: the lines for arrays on the mesh.
        jax: those for JAX.
        shapes: the shapes of variables. Those at the beginning are not written to, and ``d`` is taken by masks alone.

    Args:
        chance: chooses.
        shapes: as the attribute.
        prefix: begins the names of new variables.
    """

    def __init__(self, chance: random.Random, shapes: dict[str, Shape], prefix: str = "") -> None:
        self.ours: list[str] = []
        self.jax: list[str] = []
        self.shapes = shapes
        self._chance = chance
        self._outer = {*shapes}
        self._prefix = prefix
        self._count = 0

    def write(self, *lines: str) -> None:
        """Adds lines that both have."""
        self.ours += lines
        self.jax += lines

    def add_statements(self, count: int, depth: int) -> None:
        """Adds random statements, among them loops and branches that are so many levels deep."""
        plain = (
            *(self._assign, self._write_masked, self._write_masked, self._reduce_masked, self._reduce_masked),
            *(self._compute_where, self._write_slice, self._write_view, self._add_at),
        )
        nested = (self._scan, self._scan, self._fori_loop, self._repeat, self._while_loop, self._branch)
        for _ in range(count):
            if depth and self._chance.random() < 0.4:
                self._chance.choice(nested)(depth)
            else:
                self._chance.choice(plain)()

    def expression(self, shape: Shape, depth: int = 2) -> str:
        """Returns a random expression that broadcasts to a shape, and is no view."""
        form = self._chance.choice(_BINARY if depth and self._chance.random() < 0.5 else _UNARY if shape else _SMOOTH)
        return f"({form.format(*(self._part(shape, depth - 1) for _ in range(form.count('{}'))))})"

    def _part(self, shape: Shape, depth: int) -> str:
        if depth > 0 and self._chance.random() < 0.4:
            return self.expression(shape, depth)
        names = [name for name in self.shapes if name != "d"]
        parts = [name for name in names if self.shapes[name] == shape] * 2
        for name in names:
            if self.shapes[name] and self.shapes[name][1:] == shape:
                function = self._chance.choice(("np.mean", "np.max", "np.prod"))
                parts += [f"{function}({name}, 0)", f"{name}[{self._chance.randint(-1, 1)}]"]
        number = f"{self._chance.uniform(-2, 2):.2f}"
        return self._chance.choice(parts or [f"np.full({shape}, {number})" if shape else number])

    def _name(self, *, with_axes: bool = False, with_d: bool = False) -> str:
        """Returns one of the last variables."""
        names = [name for name in self.shapes if (self.shapes[name] or not with_axes) and (with_d or name != "d")]
        return self._chance.choice(names[-5:])

    def _target(self) -> str:
        """Returns an array of this body, which can be written to."""
        names = [name for name in self.shapes if name not in self._outer and self.shapes[name]]
        return self._chance.choice(names) if names else self._assign(with_axes=True)

    def _new(self, shape: Shape) -> str:
        self._count += 1
        name = f"{self._prefix}v{self._count}"
        self.shapes[name] = shape
        return name

    def _assign(self, *, with_axes: bool = False) -> str:
        shape = self.shapes[self._name(with_axes=with_axes)]
        text = self.expression(shape)
        name = self._new(shape)
        self.write(f"{name} = np.zeros({shape}) + {text}")
        return name

    def _masked(self, y: str, form: str) -> tuple[str, str]:
        """Returns a function of the elements where m is true, and for JAX of all, 1 where it is false."""
        scale = self._part((), 1)
        return f"{form.replace('{}', f'{y}[m]')} * {scale}", f"{form.replace('{}', f'np.where(m, {y}, 1.0)')} * {scale}"

    def _where_positive(self, y: str) -> str:
        """Defines m, true for positive elements; returns a function of these."""
        self.write(f"m = np.isfinite({y}) & ({y} > 0)" if y == "d" else f"m = {y} > {self._chance.choice((0, 0.3))}")
        return self._chance.choice(_ON_POSITIVE)

    def _write_masked(self) -> None:
        y = self._target()
        ours, jax = self._masked(y, self._where_positive(y))
        self.ours.append(f"{y}[m] = {ours}")
        self.jax.append(f"{y} = np.where(m, {jax}, {y})")

    def _reduce_masked(self) -> None:
        y = self._name(with_axes=True, with_d=True)
        if self._chance.random() < 0.5:
            form, how = self._where_positive(y), self._chance.choice(("np.sum({}{})", "np.max({}{}, initial=-9)"))
        else:  # of one element or more
            self.write(f"m = np.isfinite({y})" if y == "d" else f"m = {y} >= np.mean({y})")
            form, how = self._chance.choice(_SMOOTH), self._chance.choice(("np.mean({}{})", "np.var({}{})"))
        ours, jax = self._masked(y, form)
        name = self._new(())
        self.ours.append(f"{name} = {how.format(ours, '')}")
        self.jax.append(f"{name} = {how.format(jax, ', where=m')}")

    def _compute_where(self) -> None:
        y = self._name(with_axes=True, with_d=True)
        self._where_positive(y)
        text, ufunc = self.expression(self.shapes[y]), self._chance.choice(_UFUNCS)
        z = self._new(self.shapes[y])
        self.write(f"{z} = np.zeros({self.shapes[y]}) + {text}")
        self.ours.append(f"{ufunc.format(y)}, where=m, out={z})")
        self.jax.append(f"{z} = np.where(m, {ufunc.format(f'np.where(m, {y}, 1.0)')}), {z})")

    def _write_slice(self) -> None:
        y = self._target()
        key = self._chance.choice(_KEYS_OF_MATRICES if len(self.shapes[y]) > 1 else _KEYS)
        part = eval(f"np.empty({self.shapes[y]})[{key}]", {"np": np})  # of this file
        text, (operator, method) = self.expression(part.shape), self._chance.choice(_WRITES)
        self.ours.append(f"{y}[{key}] {operator} {text}")
        self.jax.append(f"{y} = {y}.at[{key}].{method}({text})")

    def _write_view(self) -> None:
        y, scale = self._target(), self._part((), 1)
        self.ours += [f"t = {y}[1:]", f"t *= {scale}", f"{y}[0] = t[-1]"]
        self.jax += [f"{y} = {y}.at[1:].multiply({scale})", f"{y} = {y}.at[0].set({y}[-1])"]

    def _add_at(self) -> None:
        y = self._target()
        text = self.expression(self.shapes[y][1:])
        self.ours.append(f"np.add.at({y}, [0, 1, 0], {text})")
        self.jax.append(f"{y} = {y}.at[np.array([0, 1, 0])].add({text})")

    def _add_function(
        self, head: str, shapes: dict[str, Shape], returned: str, results: list[Shape], depth: int
    ) -> None:
        """Adds a function of random statements.

        Args:
            head: its first line.
            shapes: the shapes of its parameters.
            returned: what it returns, in which expressions of the shapes of results stand.
            results: these shapes.
            depth: the number of levels of loops.
        """
        self._count += 1
        body = _Body(self._chance, {**self.shapes, **shapes}, f"{self._prefix}v{self._count}_")
        body.add_statements(self._chance.randint(1, 2), depth - 1)
        body.write(f"return {returned.format(*map(body.expression, results))}")
        self.ours += [head, *(f"    {line}" for line in body.ours)]
        self.jax += [head, *(f"    {line}" for line in body.jax)]

    def _scan(self, depth: int) -> None:
        xs = self._name(with_axes=True)
        row = self.shapes[xs][1:]
        carry = self._chance.choice((row, ()))
        begin, reverse = self.expression(carry), self._chance.random() < 0.3
        returned = "np.tanh({} * c) + c * 0.5, np.sin({}) + 0 * r"
        self._add_function("def step(c, r):", {"c": carry, "r": row}, returned, [carry, row], depth)
        names = f"{self._new(carry)}, {self._new(self.shapes[xs])}"
        self.write(f"{names} = scan(step, np.zeros({carry}) + {begin}, {xs}, reverse={reverse})")

    def _loop(self, depth: int, parameters: str, call: str) -> None:
        y = self._name()
        shape = self.shapes[y]
        self._add_function(f"def step({parameters}):", {"s": shape}, "np.sin({}) + s * 0.5", [shape], depth)
        self.write(f"{self._new(shape)} = {call.format(self._chance.randint(1, 4), y)}")

    def _fori_loop(self, depth: int) -> None:
        self._loop(depth, "i, s", "fori_loop(0, {0}, step, {1})")

    def _repeat(self, depth: int) -> None:
        self._loop(depth, "s", "repeat(step, {1}, {0})")

    def _while_loop(self, _depth: int) -> None:
        y = self._name()
        self.write(f"n = while_loop(lambda i: i * i < {self._chance.randint(3, 20)}, lambda i: i + 1, 1)")
        self.write(f"{self._new(self.shapes[y])} = {y} / n")

    def _branch(self, _depth: int) -> None:
        y = self._name()
        shape = self.shapes[y]
        then, otherwise = (f"lambda: np.zeros({shape}) + {self.expression(shape)}" for _ in range(2))
        self.write(f"{self._new(shape)} = cond(np.sum({y}) > 0.2, {then}, {otherwise})")
