"""The client for asyncio, and its threads; its arrays are in test_aio_arrays.py."""

import asyncio
import contextvars
import gc
import inspect
import pickle
import socket
import sys
import threading
import time
import weakref
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from client.conftest import cancel, with_client
from client.stream_server import threads_named
from rows import rows

import shardcall
from shardcall import aio
from shardcall._src.device_arrays.array_operators import ArrayOperators
from shardcall._src.device_arrays.array_protocols import ArrayProtocols
from shardcall._src.device_arrays.numpy_methods import NumPyMethods
from shardcall._src.rpc.cancellation import Cancellation
from shardcall._src.rpc.deadline import deadline_after
from shardcall.aio import connecting, wrapper
from shardcall.aio.threads import Threads
from shardcall.local_server import ServerProcess

pytestmark = pytest.mark.usefixtures("quick_collections")

LARGE = np.arange(2**19, dtype=np.float64)
TRANSFORMING = {"jit", "value_and_grad", "grad", "checkpoint", "vmap"}
AWAITED_ALONE = {"__call__", "repeat", "traced_function"}  # no coroutines in traced functions
WITHOUT_WAITING = {"explain", "profile", "statistics", "trace_calls", "submit", *TRANSFORMING}
COMPUTING = {
    *("jvp", "vjp", "at", "sort", "bucket", "base", "flags", "flat", "strides", "view", "setflags"),
    *(name for cls in (ArrayProtocols, ArrayOperators, NumPyMethods) for name in vars(cls) if not name.startswith("_")),
}  # which cannot be awaited


def public(cls):
    """The names that a class gives its users; entering and leaving count as the same in both worlds."""
    renamed = {"__aenter__": "__enter__", "__aexit__": "__exit__"}
    names = [name for base in cls.__mro__[:-1] for name in vars(base)]
    dunders = {"__call__", "__enter__", "__exit__"}
    return {n for n in (renamed.get(n, n) for n in names) if not n.startswith("_") or n in dunders}


def attributes_of(cls, is_one):
    """The public members of a class that are of a kind."""
    return {name: item for name in public(cls) if is_one(item := getattr(cls, name, None))}


@pytest.fixture
def blocked(server, ended):
    """Has the server answer only after its caller has gone, and report that a call has come and that it has gone."""
    came, gone = threading.Semaphore(0), threading.Event()

    def execute(request, context):
        end = ended(context)
        came.release()
        if end.wait(20):
            gone.set()
        context.cancel()

    async def has_come():
        assert await asyncio.to_thread(came.acquire, timeout=20)

    server.execute = execute
    server.execute_stream = lambda requests, context: (yield execute(next(requests), context))
    return SimpleNamespace(has_come=has_come, gone=gone)


def test_both_worlds_are_entered_by_the_same_functions():
    for name in ("connect", "local"):
        assert inspect.signature(getattr(aio, name)) == inspect.signature(getattr(shardcall, name))


@rows("of_both", ["Client", "CompiledKernel", "RemoteArray", "TracedFunction"])
def test_both_worlds_have_the_same_names_arguments_and_documentation(of_both):
    awaited, plain = getattr(aio, f"Async{of_both}"), getattr(shardcall, of_both)
    assert public(awaited) == public(plain) - (COMPUTING - public(awaited))
    theirs, ours = (attributes_of(cls, lambda item: isinstance(item, property)) for cls in (plain, awaited))
    said = {name: item.__doc__ for name, item in theirs.items() if name in public(awaited)}
    assert {name: item.__doc__ for name, item in ours.items()} == said
    theirs = attributes_of(plain, inspect.isfunction)
    for name, method in attributes_of(awaited, inspect.isfunction).items():
        if name in {"__enter__", "__exit__", "close"} or method is theirs[name]:  # of both, such as a kernel's
            continue
        waits = name not in WITHOUT_WAITING and (awaited is not aio.AsyncTracedFunction or name not in AWAITED_ALONE)
        assert inspect.iscoroutinefunction(method) is waits, name
        assert inspect.signature(method) == inspect.signature(theirs[name]), name
        assert method.__doc__ == theirs[name].__doc__, name


def test_a_call_gives_what_the_other_client_gives(server, client):
    async def use(asynchronous):
        assert asynchronous.address == client.address
        assert repr(asynchronous) == repr(client).replace("<Client", "<AsyncClient")
        assert (await asynchronous.server_info()).epoch == 7
        assert [kernel.name for kernel in await asynchronous.kernels()] == ["echo"]
        assert (await asynchronous.plan("echo", [1.0])).kernel == "echo"
        assert await asynchronous.usage() == client.usage()
        assert (await asynchronous.empty((2, 3), "int8")).shape == (2, 3)
        return await asynchronous.call("echo", [1.0, 2.0]), await asynchronous.diff(LARGE, axis=0)

    small, large = with_client(server.address, use)
    np.testing.assert_array_equal(small.array, [1.0, 2.0])
    np.testing.assert_array_equal(large.array, LARGE)
    assert isinstance(small, shardcall.Result)


def test_an_attribute_that_is_a_kernel_of_the_server_is_explained(server):
    async def use(client):
        with pytest.raises(AttributeError, match=r"'AsyncClient' object .* 'echo'; .*: client.call\('echo', …\)$"):
            client.echo  # noqa: B018

    with_client(server.address, use)


def test_a_compiled_kernel_is_awaited_too(server):
    async def use(client):
        kernel = await client.compile("echo", shardcall.Array(2, "float64"))
        assert await kernel.as_text() == "HloModule echo"
        assert kernel.operands == (shardcall.Array(2, "float64"),)
        assert (kernel.cache_hit, kernel.key, kernel.plan.kernel) == (False, {}, "echo")
        assert "axis was 0, is 1" in kernel.explain()
        assert repr(kernel) == "<AsyncCompiledKernel echo(float64[2]) by 'plain'>"
        return await kernel(np.ones(2))

    np.testing.assert_array_equal(with_client(server.address, use).array, [1.0, 1.0])


def test_calls_run_side_by_side(server):
    together = threading.Barrier(4)
    server.before_calls(lambda context: together.wait(20))

    async def use(client):
        return await asyncio.gather(*(client.call("echo", float(i)) for i in range(20)))

    assert [float(result.array) for result in with_client(server.address, use)] == list(range(20))


@pytest.mark.parametrize("operand", [1.0, LARGE], ids=["message", "stream"])
def test_a_cancelled_task_ends_its_call(server, blocked, caplog, operand):
    execute = type(server)(server.address).execute

    async def use(client):
        task = asyncio.create_task(client.call("echo", operand))
        await blocked.has_come()
        await cancel(task)
        assert await asyncio.to_thread(blocked.gone.wait, 20)
        gc.collect()
        assert "asyncio" not in {record.name for record in caplog.records}, "it logs errors that nobody asked for"
        server.execute = execute
        return await client.call("echo", 3.0)

    assert float(with_client(server.address, use).array) == 3.0


def test_a_call_between_two_rpcs_is_cancelled_at_the_next(client):
    with Cancellation() as cancellation:
        client.call("echo", 1.0)
        cancellation.cancel()
        with pytest.raises(shardcall.CallCancelledError):
            client.call("echo", 1.0)
    client.call("echo", 1.0)


def test_closing_and_a_connection_that_fails_leave_no_thread(server):
    others = threads_named("shardcall-aio")

    async def use(client):
        await client.call("echo", 1.0)
        assert threads_named("shardcall-aio") - others

    with_client(server.address, use)
    assert not threads_named("shardcall-aio") - others
    with pytest.raises(shardcall.ServerUnavailableError, match="start one with: shardcall serve") as failed:
        with_client("localhost:1", use)
    assert failed  # which holds all that the attempt had, so that nothing is merely collected
    assert not threads_named("shardcall-aio") - others


def test_what_is_not_awaited_says_how_it_is():
    connecting = aio.connect("localhost:1")
    assert not hasattr(connecting, "diff")
    with pytest.raises(AttributeError, match=r"no 'diff'; write `async with aio\.connect\(…\) as client:`, or `client"):
        connecting.diff  # noqa: B018
    with pytest.raises(TypeError, match=r"entered by async with; write `async with aio\.connect"), connecting:
        pass


def test_nothing_of_it_is_pickled(server):
    async def use(client):
        kernel = await client.compile("echo", shardcall.Array(3, "float64"))
        says = {client: "a client belongs", kernel: "a compiled kernel", client.empty: "a client belongs"}
        for thing, said in says.items():
            with pytest.raises(TypeError, match=f"{said}.*connect again in the other one"):
                pickle.dumps(thing)

    with_client(server.address, use)


def test_a_cancelled_connection_attempt_is_abandoned():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(20)

        async def use():
            connected = aio.connect(f"127.0.0.1:{silent.getsockname()[1]}", connect_timeout=600)
            task = asyncio.create_task(asyncio.wait_for(connected, None))
            accepted, _ = await asyncio.to_thread(silent.accept)
            with accepted:
                await cancel(task)

        asyncio.run(use())


def test_a_private_server_is_ended_while_it_starts():
    server = ServerProcess([sys.executable, "-c", "input()"])
    with Cancellation() as cancellation:
        cancellation.watch(server)
        cancellation.cancel()
        with pytest.raises(shardcall.ServerUnavailableError, match="ended before it was ready"):
            server.wait_for_ready(600)
    server.stop()


def test_an_error_holds_its_operands_no_longer_than_itself(server):
    async def use(client):
        operand = np.ones(3)
        with pytest.raises(shardcall.InvalidParameterError):
            await client.diff(operand, timeout=-1)
        return weakref.ref(operand)

    gc.collect()
    gc.disable()
    try:
        assert with_client(server.address, use)() is None
    finally:
        gc.enable()


def test_a_call_waits_for_a_thread_no_longer_than_its_timeout(server, blocked, monkeypatch):
    monkeypatch.setattr(connecting, "Threads", partial(Threads, max_threads=1))

    async def use(client):
        first = asyncio.create_task(client.call("echo", [1.0], timeout=60))
        await blocked.has_come()
        says = r"0.2 s passed before one of this client's 1 threads took it"
        with pytest.raises(shardcall.DeadlineExceededError, match=says) as late:
            await client.call("echo", [2.0], timeout=0.2)
        assert late.value.field == "timeout"
        await cancel(first)

    with_client(server.address, use)


def test_a_client_that_was_awaited_may_be_entered_and_one_may_be_closed_in_its_block(server):
    async def use():
        connected = await aio.connect(server.address)
        async with connected as client:
            assert float((await client.call("echo", 5.0)).array) == 5.0
        async with aio.connect(server.address) as client:
            await client.close()

    asyncio.run(use())


# Threads, without a server


def in_pool(use, max_threads=8):
    """Runs a coroutine function of some threads, which are ended."""

    async def run():
        pool = Threads(max_threads=max_threads)
        try:
            return await use(pool)
        finally:
            await pool.close(lambda: None)

    return asyncio.run(run())


def test_context_variables_are_those_of_the_caller():
    name = contextvars.ContextVar("name", default="nobody's")

    async def use(pool):
        name.set("mine")
        return await pool.run(name.get)

    assert in_pool(use) == "mine"


def test_work_that_waits_for_a_thread_is_never_begun_when_it_is_cancelled():
    release, begun = threading.Event(), []

    async def use(pool):
        busy = [asyncio.create_task(pool.run(lambda: release.wait(20))) for _ in range(2)]
        waiting = asyncio.create_task(pool.run(lambda: begun.append(1)))
        await asyncio.sleep(0)
        await cancel(waiting)
        release.set()
        assert all(await asyncio.gather(*busy))

    in_pool(use, 2)
    assert not begun


def test_a_late_value_is_released():
    began, release, dropped = threading.Event(), threading.Event(), []

    def work():
        began.set()
        release.wait(20)
        return "value"

    async def use(pool):
        task = asyncio.create_task(pool.run(work, dropped.append))
        await asyncio.to_thread(began.wait, 20)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # impatience changes nothing
        await asyncio.sleep(0)
        assert not task.done()
        release.set()
        await cancel(task)

    in_pool(use)
    assert dropped == ["value"]


def test_released_values_do_not_wait_behind_calls():
    began, end, end_next, dropped = threading.Event(), threading.Event(), threading.Event(), []

    def work():
        began.set()
        return end.wait(20)

    async def use(pool):
        task = asyncio.create_task(pool.run(work, dropped.append))
        await asyncio.to_thread(began.wait, 20)
        following = asyncio.create_task(pool.run(lambda: end_next.wait(20)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        end.set()
        await cancel(task)
        assert dropped == [True]
        assert not following.done()
        end_next.set()
        assert await following

    in_pool(use, 1)


def test_a_timeout_left_out_holds_for_the_wait_too():
    class Waiting:
        def rest(self, release, *, timeout=0.2):
            return release.wait(20)

    async def use(pool):
        release = threading.Event()
        rest = partial(wrapper.awaited(Waiting.rest), wrapper.AsyncWrapper(Waiting(), pool))
        first = asyncio.create_task(rest(release, timeout=20))
        await asyncio.sleep(0)
        with pytest.raises(shardcall.DeadlineExceededError):
            await rest(release)
        release.set()
        assert await first

    in_pool(use, 1)


def test_the_wait_for_a_thread_counts():
    async def use(pool):
        release = threading.Event()
        taken = [asyncio.create_task(pool.run(lambda: release.wait(20))) for _ in range(2)]
        late = asyncio.create_task(pool.run(lambda: deadline_after(100.0, 0.0), timeout=100.0))
        await asyncio.to_thread(lambda: None)
        asked = time.monotonic()
        release.set()
        value = await late
        await asyncio.gather(*taken)
        assert value.began_at <= asked

    in_pool(use, 2)
