"""The values that a function refers to: equal states as long as none has changed."""

import enum
import functools
import inspect
import math
from types import ModuleType, SimpleNamespace

import numpy as np
from rows import rows

from shardcall._src.traced.references import References

SCALE = 2.0


def vars_of(module):
    return module.scale


def by_module(u):
    return u * SCALE + np.sin(math.pi)


def in_another(u):
    return by_module(u)


def state(function):
    return References(function).state


def test_the_state_of_a_function_changes_with_what_it_refers_to(monkeypatch):
    before = [state(f) for f in (by_module, in_another)]
    assert None not in before
    assert [state(f) for f in (by_module, in_another)] == before
    monkeypatch.setitem(globals(), "SCALE", 2)
    after = [state(f) for f in (by_module, in_another)]
    assert all(a != b for a, b in zip(before, after, strict=True))


def test_values_in_closures_and_defaults_are_followed():
    array, items, options = np.arange(3.0), [1, (2, "x")], {"k": -0.0}

    def inner():
        return array

    def f(u, v=items):
        return u + inner() + len(v) + options["k"]

    seen = [state(f)]
    array[1] = 7
    seen.append(state(f))
    items.append(None)
    seen.append(state(f))
    options["k"] = 0.0
    seen.append(state(f))
    array = array.view("i8")  # the function sees the variable, and so another array of the same bytes
    seen.append(state(f))
    seen.append(state(functools.partial(f, v=1)))
    assert None not in seen
    assert len(set(seen)) == len(seen)


def test_a_function_may_refer_to_itself():
    def f(u):
        return f(u)

    assert state(f) is not None
    assert state(f) == state(f)


@rows(
    "value",
    [
        SimpleNamespace(a=1),
        np.ones(1 << 17),
        np.array([object()]),
        np.ma.array([1.0]),
        set(),
        [0] * 3000,
        SimpleNamespace,
    ],
)
def test_what_may_change_unseen_has_no_state(value):
    assert state(lambda u: u + value) is None


def test_the_names_and_the_generators_are_those_of_all_functions():
    generator = np.random.default_rng(1)

    def inner(u):
        return generator.normal(size=u.shape)

    references = References(lambda u: [inner(row) for row in u])
    assert references.generators == [generator]
    assert {"normal", "shape", "inner"} - references.names == {"inner"}


def test_values_of_static_arguments_count_by_their_types_and_contents():
    def f(u):
        return u

    scale = 2
    values = [(2,), (2.0,), (True,), 0.0, -0.0, lambda u: u * scale]
    states = [References(f, [value]).state for value in values]
    scale = 3
    states.append(References(f, values[-1:]).state)
    assert None not in states
    assert len(set(states)) == len(states)
    assert References(f, [SimpleNamespace(k=1)]).state is None


def test_attributes_of_functions_are_followed():
    def f(u):
        return u * f.scale

    f.scale = 2
    before = state(f)
    f.scale = 3
    assert None not in (before, state(f))
    assert state(f) != before


def test_partial_functions_are_compared_by_their_arguments():
    def f(u):
        return first(u) + second(u)

    def multiplied(scale, u):
        return scale * u

    first, second = functools.partial(multiplied, 2), functools.partial(multiplied, 3)
    before = state(f)
    second = functools.partial(multiplied, 10)
    assert None not in (before, state(f))
    assert state(f) != before


def test_a_wrapper_of_a_function_of_numpy_is_followed():
    inspect.signature(np.sin)  # which keeps it as an attribute

    @functools.wraps(np.sin)
    def wrapper(u):
        return u * scale

    scale = 2
    before = state(wrapper)
    scale = 3
    assert state(wrapper) != before


def test_attributes_of_modules_are_followed_and_nothing_else_of_them(monkeypatch):
    package, within = ModuleType("own"), ModuleType("own.within")
    package.within, package.scale, package.other = within, 2, 1
    within.function = lambda u: u * package.scale

    def f(u):
        return [package.within.function(row) for row in u]

    before = state(f)
    package.other = 2
    assert None is not before == state(f)
    package.scale = 3
    middle = state(f)
    within.function = np.sin
    assert None not in (middle, state(f))
    assert len({before, middle, state(f)}) == 3
    package.config = SimpleNamespace(scale=2)
    assert state(lambda u: u * package.config.scale) is None
    assert state(lambda u: vars_of(package)) is None


def test_subclasses_of_numbers_may_change_unseen():
    class Degrees(float):
        def __repr__(self):
            return f"{float(self):.1f}"

    angle = Degrees(1.01)
    assert state(lambda u: u * angle) is None
    assert References(by_module, [angle]).state is None


def test_values_of_enumerations_are_followed():
    array = np.ones(3)

    class Constants(enum.Enum):
        W = array

    constant = Constants.W

    def f(u):
        return u * constant.value

    before = state(f)
    array[0] = 5
    assert state(f) != before


def test_attributes_of_traced_functions_are_followed():
    class Traced:
        def __init__(self):
            self.scale = 2

        def traced_function(self):
            return by_module

    traced = Traced()

    def f(u):
        return u * traced.scale

    before = state(f)
    traced.scale = 3
    assert None is not state(f) != before


def test_wrappers_of_functools_are_followed():
    @functools.singledispatch
    def prepared(x):
        return x * 2

    assert state(lambda u: prepared(u) + 1) is None


def test_code_that_imports_other_modules_has_no_state():
    def f(u):
        import numpy.linalg

        return numpy.linalg.norm(u)

    def g(u):
        from some_module import scale

        return u * scale

    relative = {"__name__": "package.part", "__package__": "package"}
    exec("def h(u):\n    from .math import scale\n    return u * scale\n", relative)
    assert state(f) is not None
    assert state(g) is None
    assert state(relative["h"]) is None


def test_code_that_finds_values_by_their_names_may_refer_to_any():
    name = "SCALE"
    assert state(lambda u: u * globals()[name]) is None
    assert state(lambda u: u * getattr(u, name)) is None
    assert state(lambda u: u * __import__("package").scale) is None
    assert state(lambda u: u * np.load("file.npy")) is None
