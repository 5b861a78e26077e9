"""The names of the Python array API standard 2024.12, with its arguments and their defaults.

Every function is called with nothing but what it requires, and with all keywords at the standard's defaults: both are
the same program. Functions are traced: nothing is compiled.
"""

import inspect
import operator

import numpy as np
from array_api import standard

import shardcall as sc
from shardcall.namespace import Namespace

NEED_VALUES = frozenset(
    ("from_dlpack", "nonzero", *(name for name in standard.FUNCTIONS if name.startswith("unique_")))
)
"""Functions that need values, which a traced function does not have."""
ABOUT_TYPES = frozenset(("can_cast", "finfo", "iinfo", "isdtype", "result_type"))


def parameters_of(name):
    function = eval(f"lambda {standard.FUNCTIONS[name][0]}: None")  # the standard's parameters
    return inspect.signature(function).parameters.values()


def defaults_of(name):
    return {p.name: p.default for p in parameters_of(name) if p.kind is p.KEYWORD_ONLY and p.default is not p.empty}


def traced(client, name, keywords):
    """Returns the program of a call, and what it returns."""
    _, operands = standard.FUNCTIONS[name]
    arrays = [operand for operand in operands if isinstance(operand, sc.Array)]

    def call(*inputs):
        remaining = iter(inputs)
        values = [next(remaining) if isinstance(operand, sc.Array) else operand for operand in operands]
        values = [values] if name in ("concat", "stack") else values
        return operator.attrgetter(name)(client.xp)(*values, **keywords)

    program = client.jit(call).trace(*arrays)
    return program.form, program.constants, program.types


def misses(name):
    """Returns which call of the standard a function does not take; None if it takes all."""
    ours = inspect.signature(operator.attrgetter(name)(Namespace(None)))
    parameters = [p for p in parameters_of(name) if p.kind is not p.VAR_POSITIONAL]
    positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    unnamed = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    named = {p.name: p for p in parameters if p.kind is not p.POSITIONAL_ONLY}
    keywords = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    required = [p.name for p in parameters if p.default is p.empty]
    try:
        for operands, others in ((positional, keywords), (unnamed, named), (required, {})):
            ours.bind(*operands, **others)
    except TypeError as error:
        return f"{name}({standard.FUNCTIONS[name][0]}): {error}"
    return None


def test_functions_take_the_arguments_of_the_standard():
    assert not [missed for name in standard.FUNCTIONS if (missed := misses(name))]


def test_defaults_are_those_of_the_standard(client):
    names = standard.FUNCTIONS.keys() - NEED_VALUES - ABOUT_TYPES - {"linalg.pinv"}  # whose rtol has another in NumPy
    short = {name: traced(client, name, {}) for name in names}
    assert {name: traced(client, name, defaults_of(name)) for name in names} == short


def test_arrays_have_the_methods_and_attributes_of_the_standard():
    names = [f"__{prefix}{name}__" for name in standard.OPERATORS.split() for prefix in ("", "r", "i")]
    assert not [name for name in (*names, *standard.METHODS.split()) if not hasattr(sc.RemoteArray, name)]


def test_constants_are_numbers():
    xp = Namespace(None)
    assert [xp.e, xp.pi, xp.inf] == [np.e, np.pi, np.inf]
    assert xp.nan != xp.nan
    assert xp.newaxis is None
    assert all(type(getattr(xp, name)) is float for name in ("e", "pi", "inf", "nan"))
