"""A gRPC server of one service, whose RPCs the server's interceptor admits."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import grpc

from shardcall_server.frontend.access.floods import FloodGuard
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.observability.call_recorder import CallRecorder
from shardcall_server.frontend.observability.metrics import Metrics
from shardcall_server.frontend.rpc.admission import Admission
from shardcall_server.frontend.rpc.call_threads import CallThreads
from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.frontend.services.interceptor import CallInterceptor, TimeLimits

PATIENCE_S = 20.0  # an answer comes at once; a test that waits so long has failed


@contextmanager
def channel_to(gate: Gate, add_servicer: Callable[[Any, Any], object], servicer: object) -> Iterator[grpc.Channel]:
    """A channel to a server of a service.

    Args:
        gate: who may call it.
        add_servicer: adds its service to a server, as gRPC generates it.
        servicer: the service; of its methods only those that are called need be there.
    """
    interceptor = CallInterceptor(
        TimeLimits(PATIENCE_S, PATIENCE_S),
        gate,
        Admission(4, 4, 4),
        CallThreads(4),
        CallRecorder(Metrics()),
        FloodGuard(),
        CountedThreads(2, 1, "stream"),
    )
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, interceptors=[interceptor])
        add_servicer(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with closing(grpc.insecure_channel(f"127.0.0.1:{port}")) as channel:
            yield channel
        server.stop(None).wait()
