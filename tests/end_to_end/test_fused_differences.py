"""Random chains of calls: results of programs are bit for bit those of the calls one by one, with types and specs."""

import random
from dataclasses import dataclass

import numpy as np
import pytest

import shardcall as sc
from shardcall._src.programs import fused_programs, submitter

pytestmark = pytest.mark.long

_USUAL = ("float64", "int32")
_ALL = (*_USUAL, "float32", "bool", "complex128", "complex64", "float16", "bfloat16", "int8", "uint8", "uint64")
_SHAPES = ((13, 9), (64, 64), (5, 1), (0, 4))
_UNARY = (np.negative, np.abs, np.sin, np.exp, np.log, np.sqrt, np.isnan, np.square, np.tanh, np.floor, np.reciprocal)
_BINARY = (
    *(np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum, np.less, np.equal, np.not_equal),
    *(np.greater_equal, np.arctan2, np.copysign, np.remainder, np.floor_divide, np.fmax, np.hypot),
)
_REDUCTIONS = ("sum", "max", "min", "mean", "any", "all", "prod", "var")
_SCALARS = (2, -1, 0, 0.5, 1.5, True, np.float32(0.1), np.int8(3), np.float64(-2.5), 1e-3, np.int64(7), np.nan)


@dataclass
class _Steps:
    """A random chain of calls, the same for every client.

    Args:
        seed: decides the chain.
        max_calls: the largest number of calls.
    """

    seed: int
    max_calls: int

    def __post_init__(self):
        self.random = random.Random(self.seed)
        self.refused = []

    def run(self, arrays):
        """Returns some of the results."""
        results, count = list(arrays), len(arrays)
        for _ in range(self.random.randint(3, self.max_calls)):
            step = self.random.choice((self.unary, *[self.binary] * 4, self.moved, self.reduced, self.chosen))
            try:
                results.append(step(results))
            except (TypeError, ValueError, IndexError) as error:
                self.refused.append((type(error), str(error)))
        return [result for result in results[count:] if self.random.random() < 0.4] or results[-1:]

    def unary(self, results):
        return self.random.choice(_UNARY)(self.random.choice(results))

    def binary(self, results):
        function, x = self.random.choice(_BINARY), self.random.choice(results)
        y = self.random.choice(self.random.choice((results, _SCALARS)))
        return function(*((x, y) if self.random.random() < 0.5 else (y, x)))

    def moved(self, results):
        x = self.random.choice(results)
        number = self.random.randrange(3)
        return self.random.choice(
            (
                lambda: np.roll(x, number - 1, axis=0),
                lambda: x[number : len(x) - 2 + number],
                lambda: x[number],
                lambda: x.T,
                lambda: np.sort(x, axis=0),
                lambda: np.argsort(x, axis=-1),
                lambda: np.take(x, [number % x.shape[-1], -1], axis=-1) if x.shape[-1] else x,
            )
        )()

    def reduced(self, results):
        x = self.random.choice(results)
        axis = self.random.choice((0, x.ndim - 1, None))
        return getattr(x, self.random.choice(_REDUCTIONS))(axis=axis, keepdims=self.random.random() < 0.6)

    def chosen(self, results):
        x, y = self.random.choice(results), self.random.choice(results)
        return self.random.choice(
            (lambda: np.where(x > 0, x, y), lambda: np.clip(x, -1, 1), lambda: x.astype("float32"))
        )()


def _operands(seed, dtypes):
    values = np.random.default_rng(seed)
    shape = _SHAPES[seed % len(_SHAPES) if dtypes is _ALL else 0]
    for name in values.choice(dtypes, 2):
        dtype = np.dtype(sc.Array((), name).dtype)
        array = values.normal(size=shape) * 2
        if dtype.kind == "u":
            array = abs(array)
        if dtype.kind not in "iub":
            array[values.random(shape) < 0.05] = np.nan
            array[values.random(shape) < 0.03] = np.inf
        yield array.astype(dtype)


def _ran(client, seed, dtypes):
    """Returns what can be seen of the results of a chain."""
    specs, steps = random.Random(seed), _Steps(seed, 10 if dtypes is _ALL else 5)
    mesh = sc.Mesh(x=2, y=2) if seed % 3 == 0 and dtypes is _ALL else sc.Mesh(x=4)
    arrays = [
        client.put(array, mesh=mesh, spec=specs.choice((("x", None), (None, "x"), (mesh.axis_names, None))))
        for array in _operands(seed, dtypes)
    ]
    results = steps.run(arrays)
    return [(h.get().tobytes(), h.dtype, h.shape, h.spec, h.mesh, h.committed) for h in results], steps.refused


@pytest.fixture(scope="module")
def clients(server):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(submitter, "_IDLE_S", 60.0)
        patched.setattr(fused_programs, "_MAX_NEW", 10**6)
        with sc.connect(server.address, fuse=True) as fused, sc.connect(server.address, fuse=False) as plain:
            yield fused, plain


def check(clients, seed, dtypes):
    fused, plain = clients
    (seen, refused), (expected, expected_refused) = _ran(fused, seed, dtypes), _ran(plain, seed, dtypes)
    assert seen == expected
    assert refused == expected_refused


@pytest.mark.parametrize("first", range(0, 30, 5))
def test_random_chains_are_those_of_single_calls(clients, first):
    for seed in range(first, first + 5):  # of few kinds, for which less has to be compiled
        check(clients, seed, _USUAL)
    assert "program" in {call.ran_as for call in clients[0].trace_calls()}


@pytest.mark.parametrize("first", range(1000, 1500, 10))
def test_more_random_chains_are_those_of_single_calls(clients, first):
    for seed in range(first, first + 10):
        check(clients, seed, _ALL)
