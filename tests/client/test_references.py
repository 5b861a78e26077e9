"""The values that a function refers to: equal states as long as none has changed."""

import enum
import functools
import inspect
import math
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from rows import rows

from shardcall._src.traced.references import References

SCALE = 2.0


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


def values_in_closures_and_defaults():
    array, items, options = np.arange(3.0), [1, (2, "x")], {"k": -0.0}

    def inner():
        return array

    def f(u, v=items):
        return u + inner() + len(v) + options["k"]

    yield f
    array[1] = 7
    yield f
    items.append(None)
    yield f
    options["k"] = 0.0
    yield f
    array = array.view("i8")  # the function sees the variable, and so another array of the same bytes
    yield f
    yield functools.partial(f, v=1)


def attributes_of_functions():
    def f(u):
        return u * f.scale

    for f.scale in (2, 3):
        yield f


def arguments_of_partial_functions():
    def multiplied(scale, u):
        return scale * u

    for scale in (3, 10):
        second = functools.partial(multiplied, scale)
        yield lambda u, second=second: multiplied(2, u) + second(u)


def a_wrapper_of_a_function_of_numpy():
    inspect.signature(np.sin)  # which keeps it as an attribute

    @functools.wraps(np.sin)
    def wrapper(u):
        return u * scale

    for scale in (2, 3):  # noqa: B007  # the wrapper reads it
        yield wrapper


def attributes_of_modules():
    package, within = ModuleType("own"), ModuleType("own.within")
    package.within, package.scale = within, 2
    within.function = lambda u: u * package.scale

    def f(u):
        return [package.within.function(row) for row in u]

    yield f
    package.scale = 3
    yield f
    within.function = np.sin
    yield f


def values_of_enumerations():
    array = np.ones(3)

    class Constants(enum.Enum):
        W = array

    constant = Constants.W

    def f(u):
        return u * constant.value

    yield f
    array[0] = 5
    yield f


def attributes_of_traced_functions():
    class Traced:
        def traced_function(self):
            return by_module

    traced = Traced()

    def f(u):
        return u * traced.scale

    for traced.scale in (2, 3):
        yield f


@pytest.mark.parametrize(
    "changes",
    [
        values_in_closures_and_defaults,
        attributes_of_functions,
        arguments_of_partial_functions,
        a_wrapper_of_a_function_of_numpy,
        attributes_of_modules,
        values_of_enumerations,
        attributes_of_traced_functions,
    ],
)
def test_what_a_function_refers_to_is_followed(changes):
    """Each yields the function after another change."""
    states = [state(function) for function in changes()]
    assert None not in states
    assert len(set(states)) == len(states) > 1


def test_other_attributes_of_a_module_do_not_count():
    package = ModuleType("own")
    package.scale, package.other = 2, 1

    def f(u):
        return u * package.scale

    before = state(f)
    package.other = 2
    assert None is not before == state(f)


def test_a_function_may_refer_to_itself():
    def f(u):
        return f(u)

    assert None is not state(f) == state(f)


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
    for value in (SimpleNamespace(k=1), Degrees(1.01)):
        assert References(f, [value]).state is None


class Degrees(float):
    def __repr__(self):
        return f"{float(self):.1f}"


PACKAGE = ModuleType("package")
PACKAGE.config = SimpleNamespace(scale=2)
NAME = "SCALE"


def vars_of(module):
    return module.scale


@functools.singledispatch
def prepared(x):
    return x * 2


def importing_another_module(u):
    from some_module import scale

    return u * scale


def importing_a_relative_module():
    namespace = {"__name__": "package.part", "__package__": "package"}
    exec("def f(u):\n    from .math import scale\n    return u * scale\n", namespace)
    return namespace["f"]


@rows(
    "function",
    [
        *(
            lambda u, value=value: u + value
            for value in (
                *(SimpleNamespace(a=1), np.ones(1 << 17), np.array([object()]), np.ma.array([1.0]), set(), [0] * 3000),
                *(SimpleNamespace, Degrees(1.01)),
            )
        ),
        lambda u: u * PACKAGE.config.scale,
        lambda u: u * vars_of(PACKAGE),
        lambda u: prepared(u) + 1,
        importing_another_module,
        importing_a_relative_module(),
        lambda u: u * globals()[NAME],
        lambda u: u * getattr(u, NAME),
        lambda u: u * __import__("package").scale,
        lambda u: u * np.load("file.npy"),
    ],
)
def test_what_may_change_unseen_or_refers_to_any_value_has_no_state(function):
    assert state(function) is None


def test_code_that_imports_a_module_of_numpy_has_a_state():
    def f(u):
        import numpy.linalg

        return numpy.linalg.norm(u)

    assert state(f) is not None
