"""A real gRPC server in this process with a kernel service that each test configures, and tasks of clients."""

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from client.memory_server import MemoryServer
from client.stream_server import MESH, TIMING, StreamServer, rich_status

import shardcall
from shardcall import aio
from shardcall.v1 import (
    array_pb2,
    kernel_pb2,
    kernel_service_pb2,
    kernel_service_pb2_grpc,
    server_info_service_pb2,
    server_info_service_pb2_grpc,
)

PLAN = kernel_pb2.Plan(kernel="echo", mesh=MESH, strategy="plain")
BYTE_LIMITS = {"max_message_bytes": 2**23, "max_inline_bytes": 2**20, "max_chunk_bytes": 2**20, "max_call_bytes": 2**28}
OTHER_LIMITS = {"max_call_seconds": 600, "max_rank": 8, "max_concurrent_calls": 4, "max_cached_programs": 16}
MISS = kernel_pb2.CacheAnswer(outcome=kernel_pb2.CACHE_OUTCOME_MISS, explanation="axis was 0, is 1")
ECHO = kernel_pb2.KernelDescription(name="echo", version=1, summary="Returns its operands.")


def echo(request: Any, context: grpc.ServicerContext) -> Any:
    """Answers with the present operands."""
    results = [{"type": one.type, "inline": one.inline} for one in request.operands if one.type.element_type]
    return kernel_service_pb2.ExecuteResponse(results=results, plan=PLAN, cache=MISS, timing=TIMING)


def echo_stream(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
    """Answers with the present operands, in chunks of the sizes that they came in."""
    header = next(requests).header
    present = [i for i, operand in enumerate(header.operands) if operand.type.element_type]
    results = [{"type": header.operands[i].type, "streamed": {}} for i in present]
    inline = {i: header.operands[i].inline.data for i in present}
    chunks = [array_pb2.TensorChunk(index=i, data=data) for i, data in inline.items() if data]
    chunks = sorted([*chunks, *(request.chunk for request in requests)], key=lambda chunk: (chunk.index, chunk.offset))
    answer = kernel_service_pb2.ExecuteStreamResponse
    yield answer(header=kernel_service_pb2.ExecuteResponse(results=results, plan=PLAN, cache=MISS))
    for chunk in chunks:
        chunk.index = present.index(chunk.index)
        yield answer(chunk=chunk)
    yield answer(timing=TIMING)


def compile_(request: Any, context: grpc.ServicerContext) -> Any:
    return kernel_service_pb2.CompileResponse(plan=PLAN, cache=MISS, timing=TIMING, compiled_text="HloModule echo")


def default_info(**limits: int) -> Any:
    """The description of a server, with other limits than the usual ones."""
    return server_info_service_pb2.GetServerInfoResponse(
        devices=[{"id": 0, "kind": "cpu"}],
        platform="cpu",
        default_mesh=PLAN.mesh,
        limits=BYTE_LIMITS | OTHER_LIMITS | limits,
        versions={"shardcall": "0", "jax": "1", "jaxlib": "2"},
        epoch=7,
        ready=True,
    )


def with_call_streams(info: Any) -> Any:
    """Changes the description of a server to that of one with call streams."""
    info.limits.max_replaced_arrays = 8
    info.limits.max_streamed_calls, info.limits.max_streamed_bytes, info.limits.max_prepared_calls = 64, 2**20, 8
    return info


def no_call_stream(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "no call streams")
    yield


Abort = Callable[..., None]


@dataclass
class FakeServer(kernel_service_pb2_grpc.KernelServiceServicer, server_info_service_pb2_grpc.ServerInfoServiceServicer):
    """The behaviour of each RPC; a test replaces the one under test. ``requests`` are the unary ones that came."""

    address: str
    execute: Callable[..., Any] = echo
    execute_stream: Callable[..., Iterator[Any]] = echo_stream
    call_stream: Callable[..., Iterator[Any]] = no_call_stream
    plan: Callable[..., Any] = lambda *_: kernel_service_pb2.PlanResponse(plan=PLAN, cache=MISS, timing=TIMING)
    compile: Callable[..., Any] = compile_
    info: Callable[..., Any] = lambda request, context: default_info()
    requests: list[Any] = field(default_factory=list)
    metadata: list[dict[str, Any]] = field(default_factory=list)

    def before_calls(self, deed: Callable[[grpc.ServicerContext], object]) -> None:
        """Has something happen to the context of each call that executes, before it is answered as until now."""
        execute, execute_stream = self.execute, self.execute_stream

        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            deed(context)
            return execute(request, context)

        def stream(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            deed(context)
            yield from execute_stream(requests, context)

        self.execute, self.execute_stream = unary, stream

    def _note(self, request: Any, context: grpc.ServicerContext) -> None:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))

    def Execute(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._note(request, context)
        return self.execute(request, context)

    def ExecuteStream(self, request_iterator: Any, context: grpc.ServicerContext) -> Any:
        self._note("stream", context)
        yield from self.execute_stream(request_iterator, context)

    def CallStream(self, request_iterator: Any, context: grpc.ServicerContext) -> Any:
        yield from self.call_stream(request_iterator, context)

    def Plan(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._note(request, context)
        return self.plan(request, context)

    def Compile(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._note(request, context)
        return self.compile(request, context)

    def ListKernels(self, request: Any, context: grpc.ServicerContext) -> Any:
        return kernel_service_pb2.ListKernelsResponse(kernels=[ECHO])

    def DescribeKernel(self, request: Any, context: grpc.ServicerContext) -> Any:
        return kernel_service_pb2.DescribeKernelResponse(kernel=ECHO)

    def GetUsage(self, request: Any, context: grpc.ServicerContext) -> Any:
        return server_info_service_pb2.GetUsageResponse(regions=1, arrays=2, descriptors=30)

    def GetServerInfo(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self.info(request, context)


@contextmanager
def serving(extend: Callable[[grpc.Server], None] = lambda grpc_server: None) -> Iterator[FakeServer]:
    """Serves until the block ends; ``extend`` may add services."""
    limit = 16 * 2**20
    options = [("grpc.max_receive_message_length", limit), ("grpc.max_send_message_length", limit)]
    grpc_server = grpc.server(futures.ThreadPoolExecutor(4), options=options)
    fake = FakeServer(address=f"127.0.0.1:{grpc_server.add_insecure_port('127.0.0.1:0')}")
    kernel_service_pb2_grpc.add_KernelServiceServicer_to_server(fake, grpc_server)
    server_info_service_pb2_grpc.add_ServerInfoServiceServicer_to_server(fake, grpc_server)
    extend(grpc_server)
    grpc_server.start()
    yield fake
    grpc_server.stop(None).wait(10)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as fake:
        yield fake


@pytest.fixture
def client(server: FakeServer) -> Iterator[shardcall.Client]:
    with shardcall.connect(server.address) as connected:
        yield connected


@pytest.fixture
def memory(tmp_path: Path, abort: Abort) -> Iterator[Any]:
    """The state of a server that shares memory and keeps arrays; ``memory.server`` is the server."""
    with MemoryServer(tmp_path) as holds, serving(holds.add_to) as fake:
        holds.begin(fake, default_info(), abort)
        yield holds


@pytest.fixture
def shared_client(memory: Any) -> Iterator[shardcall.Client]:
    """A client of a server that shares memory."""
    with shardcall.connect(memory.server.address) as connected:
        yield connected


@pytest.fixture
def info() -> Any:
    """The description of a server with call streams, which a test may change before it connects."""
    return with_call_streams(default_info())


@pytest.fixture
def streams(server: FakeServer, info: Any) -> Any:
    """The call streams of the server; `Call.answer` answers with the operands."""
    streams = StreamServer()
    server.info = lambda request, context: info
    server.call_stream = streams.serve
    return streams


@pytest.fixture
def stream_client(server: FakeServer, streams: Any) -> Iterator[shardcall.Client]:
    """A client of a server with call streams."""
    with shardcall.connect(server.address) as connected:
        yield connected


@pytest.fixture
def abort() -> Abort:
    """Ends a call as the server's interceptor does: status, details and timing."""

    def abort_call(context: Any, status: Any, reason: str, message: str = "from the server", **details: Any) -> None:
        rich = rich_status(status, reason, message, **details)
        timing = ("shardcall-timing-bin", TIMING.SerializeToString())
        context.set_trailing_metadata((("grpc-status-details-bin", rich), timing))
        context.abort(status, message)

    return abort_call


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Session tokens that a client without a token obtains, one after the other."""
    issued = [f"session-token-{i:04}" for i in range(9)]
    monkeypatch.delenv("SHARDCALL_TOKEN", raising=False)
    monkeypatch.setattr("shardcall_core.access.session.open_session", lambda *_: issued.pop(0))
    return issued


@pytest.fixture
def ended() -> Callable[[grpc.ServicerContext], threading.Event]:
    """Returns an event that is set when a call has ended, as the server sees it."""

    def watch(context: grpc.ServicerContext) -> threading.Event:
        event = threading.Event()
        if not context.add_callback(event.set):
            event.set()
        return event

    return watch


@pytest.fixture
def no_descriptor_is_left(tmp_path: Path) -> Iterator[None]:
    """Checks that the test has closed the descriptors of its files and folders."""
    yield
    opened = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # threads that other tests have left close theirs
            opened.append(str(descriptor.readlink()))
    assert [path for path in opened if path.startswith(str(tmp_path))] == []


@pytest.fixture(scope="module")
def quick_collections() -> Iterator[None]:
    """Has the garbage collector look once through the objects that there are before the tests of this file."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A private folder."""
    path = tmp_path / "folder"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def file(folder: Path) -> Path:
    """A private file in `folder`, whose content is ``b"content"``."""
    path = folder / "file"
    path.write_bytes(b"content")
    path.chmod(0o600)
    return path


def with_client(address, use):
    """Returns what a coroutine function returns of a client of a server."""

    async def run():
        async with aio.connect(address) as client:
            return await use(client)

    return asyncio.run(run())


async def cancel(task):
    """Cancels a task and waits for its end."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
