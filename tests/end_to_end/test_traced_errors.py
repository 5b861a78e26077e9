"""Errors of the server that name the line of the caller's function."""

import re

import numpy as np
import pytest

import shardcall as sc

X = np.arange(9.0).reshape(3, 3)


def inverted(xp, u):
    return xp.linalg.inv(u * 0)  # 1: the line that errors name


def of_an_index(xp, u):
    return u[u.sum().astype(int)] * 2  # 1


def at(function, line, kernel):
    code = function.__code__
    return re.escape(f"{kernel} at {code.co_filename}:{code.co_firstlineno + line}: ")


def test_errors_of_repeated_functions_name_the_line(client):
    result = client.jit(lambda u: inverted(client.xp, u)).repeat(X, times=3)
    with pytest.raises(sc.LinAlgError, match=at(inverted, 1, "inv")):
        result.get()


def test_errors_of_calls_that_are_waited_for_name_the_line(client):
    large = np.zeros((1, 1 << 20))  # no operand of a call stream
    with pytest.raises(sc.IndexOutOfRangeError, match="^" + at(of_an_index, 1, "take")):
        client.jit(lambda u, v: (of_an_index(client.xp, u), v + 1))(X, large)


def spread(xp, u):
    v = u + 1
    return xp.with_spec(v * 2, sc.P("q"))  # 2


def without_derivative(u):
    v = u * 2
    return np.nextafter(v, 1).sum()  # 2


def test_plans_that_are_refused_name_the_line(client):
    with pytest.raises(sc.ShardingError, match="^" + at(spread, 2, "reshard") + "the spec .*'q'"):
        client.jit(lambda u: spread(client.xp, u)).plan(X)
    with pytest.raises(sc.InvalidParameterError, match="^" + at(without_derivative, 2, "nextafter")):
        client.grad(without_derivative).plan(X)
