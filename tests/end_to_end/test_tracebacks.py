"""Errors show the caller's line and one frame of the client, whatever form the call has."""

import asyncio
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest

import shardcall as sc
from shardcall import aio

X = np.arange(12.0).reshape(3, 4)
TEXTS = np.array(["a"])


class Unreadable:
    def __array__(self, dtype: object = None, copy: object = None) -> None:
        raise ValueError("a fault of the caller's own class")


CALLS: dict[str, Callable[[Any], Any]] = {
    "port": lambda client: type(client).__module__ and sc.connect("localhost:1", connect_timeout=1),
    "token": lambda client: sc.connect(client.address, token="no token"),
    "axis": lambda client: client.diff(X, axis=7),
    "axis by name": lambda client: client.call("diff", X, axis=7),
    "type": lambda client: client.diff(TEXTS),
    "mesh": lambda client: client.diff(X, mesh=sc.Mesh(x=64)),
    "spec": lambda client: client.diff(X, spec=sc.P("rows")),
    "shape": lambda client: client.matmul(X, X),
    "kernel": lambda client: client.call("dif", X),
    "keyword": lambda client: client.diff(X, axes=0),
    "handle": lambda client: client.get("not hexadecimal"),
    "plan": lambda client: client.plan("diff", X, axis=7),
    "time": lambda client: client.usage(timeout=-1),
    "operand": lambda client: client.put(object()),
    "compiled": lambda client: client.compile("diff", sc.Array((3, 4), "float64"))(X[:2]),
    "result": lambda client: client.diff(X) + np.zeros(99),
    "several results": lambda client: client.gradient(X).array,
    "traced function": lambda client: client.jit(lambda a: a)(X, 1),
    "static arguments": lambda client: client.jit(lambda a: a, static="b"),
    "picture": lambda client: client.plan("diff", X).visualize("operand 9"),
}
ARRAYS: dict[str, Callable[[Any], Any]] = {
    "axis": lambda h: h.sum(axis=7),
    "shape": lambda h: h.reshape(5),
    "operator": lambda h: h + X[:2],
    "reflected operator": lambda h: X[:2] - h,
    "comparison": lambda h: h == X[:2],
    "product": lambda h: h @ h,
    "divmod": lambda h: divmod(h, X[:2]),
    "index": lambda h: h[7],
    "assignment": lambda h: h.__setitem__(7, 1.0),
    "update": lambda h: h.at[9].set(1.0),
    "truth": bool,
    "number": int,
    "NumPy's function": lambda h: np.sum(h, axis=7),
    "NumPy's function of several": lambda h: np.concatenate([h, h[:, :1]]),
    "NumPy's ufunc": lambda h: np.add(h, X[:2]),
    "NumPy's algebra": np.linalg.inv,
    "xp": lambda h: h.__array_namespace__().mean(h, axis=7),
    "xp of another type": lambda h: h.__array_namespace__().add(h, X[:2]),
    "xp.linalg": lambda h: h.__array_namespace__().linalg.solve(h, h),
    "xp.fft": lambda h: h.__array_namespace__().fft.fft(h, axis=7),
}
GONE: dict[str, Callable[[Any], Any]] = {
    "get": lambda h: h.get(),
    "array": np.asarray,
    "iteration": list,
    "sum": lambda h: h.sum(),
    "DLPack": np.from_dlpack,
    "operator": lambda h: h + 1,
}


def frames(error: BaseException) -> list[str]:
    """Returns the package's frames of a traceback, by the names of their functions."""
    entries = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return [frame.f_code.co_name for frame in entries if frame.f_globals["__name__"].startswith("shardcall")]


def failure(call: Callable[[], Any]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # of any class
        call()
    return caught.value


def check_short(error: BaseException) -> None:
    assert len(frames(error)) == 1, frames(error)
    assert "following exception" not in "".join(traceback.format_exception(error))
    assert "another exception" not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_mistake_in_a_call_shows_one_frame(client: sc.Client, call: Callable[[Any], Any]) -> None:
    check_short(failure(lambda: call(client)))


@pytest.mark.parametrize("call", ARRAYS.values(), ids=ARRAYS)
def test_a_mistake_with_an_array_on_the_mesh_shows_one_frame(client: sc.Client, call: Callable[[Any], Any]) -> None:
    with client.put(X) as array:
        check_short(failure(lambda: call(array)))


@pytest.mark.parametrize("call", GONE.values(), ids=GONE)
def test_the_use_of_an_array_that_is_gone_shows_one_frame(client: sc.Client, call: Callable[[Any], Any]) -> None:
    with client.put(X) as array:
        array.delete()
        check_short(failure(lambda: call(array)))


def test_mistakes_of_constructors_show_one_frame() -> None:
    for call in (
        lambda: sc.Mesh(x=0),
        lambda: sc.P("x", "x"),
        lambda: sc.Array((-1,), "float32"),
        lambda: sc.Array((1,), "float33"),
        lambda: sc.local(2, nonsense=1),
    ):
        check_short(failure(call))


def test_mistakes_with_the_asyncio_client_show_one_frame(server) -> None:
    async def fail(client: aio.AsyncClient, call: Callable[[Any], Any]) -> Exception:
        try:
            await call(client)
        except Exception as error:  # noqa: BLE001  # of any class
            return error
        raise AssertionError("the call is valid")

    async def failures() -> list[BaseException]:
        async with aio.connect(server.address) as client, await client.put(X) as array:
            compiled = await client.compile("diff", sc.Array((3, 4), "float64"))
            awaited = ("axis", "axis by name", "type", "mesh", "spec", "shape", "kernel", "keyword", "handle", "plan")
            errors: list[BaseException] = [await fail(client, CALLS[name]) for name in (*awaited, "time", "operand")]
            errors.append(await fail(client, lambda client: client.submit("diff", array, axis=7)))
            errors.append(await fail(client, lambda _: compiled(X[:2])))
            errors.append(await fail(client, lambda _: aio.connect("localhost:1", connect_timeout=1)))
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(client.diff(X, axis=7))
                    group.create_task(client.diff(X, axis=8))
            except* sc.AxisError as several:
                errors += several.exceptions
            return errors

    errors = asyncio.run(failures())
    assert len(errors) >= 16
    for error in errors:
        check_short(error)


def test_the_full_form_has_all_frames_and_the_error_of_grpc(client: sc.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    short = failure(lambda: client.kernel("dif"))
    assert short.__cause__ is None
    assert short.__suppress_context__
    assert isinstance(short.__context__, grpc.RpcError)  # there, and not shown
    monkeypatch.setenv("SHARDCALL_TRACEBACKS", "full")
    full = failure(lambda: client.kernel("dif"))
    assert len(frames(full)) > 3
    assert isinstance(full.__cause__, grpc.RpcError)
    assert type(full) is type(short)
    assert str(full) == str(short)


def test_the_frames_and_the_error_of_a_callers_class_are_shown(client: sc.Client) -> None:
    error = failure(lambda: client.diff(Unreadable()))
    assert len(frames(error)) == 1
    assert "a fault of the caller's own class" in "".join(traceback.format_exception(error.__cause__))
    assert "__array__" in [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__cause__.__traceback__)]


def test_an_error_in_a_traced_function_shows_its_frames(client: sc.Client) -> None:
    def summed(u: Any) -> Any:
        return u.sum(axis=7)

    error = failure(lambda: client.jit(summed)(X))
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert names[-3:] == ["__call__", "summed", "sum"]


def test_an_error_that_the_caller_was_handling_is_shown(client: sc.Client) -> None:
    def call() -> None:
        try:
            raise ZeroDivisionError("of the caller")
        except ZeroDivisionError:
            client.call("dif", X)

    error = failure(call)
    assert len(frames(error)) == 1
    assert isinstance(error.__context__, ZeroDivisionError)
    assert not error.__suppress_context__


def test_an_error_stays_as_it_is_but_for_its_traceback(client: sc.Client) -> None:
    error = failure(lambda: client.diff(X, axis=7))
    error.add_note("a note")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.reason, copy.__notes__) == (sc.AxisError, str(error), error.reason, ["a note"])


def test_a_fault_of_the_client_shows_all_frames(client: sc.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("cannot be")

    monkeypatch.setattr(client._runner, "run", fail)
    assert {"diff", "_named", "call", "_run"} <= set(frames(failure(lambda: client.diff(X))))
