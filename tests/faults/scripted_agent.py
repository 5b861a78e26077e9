"""An agent made by hand, which sends messages that no agent of the project sends."""

import queue
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Self

import grpc

from shardcall.v1 import server_info_service_pb2
from shardcall_core.versions import build_version
from shardcall_worker.v1 import host_service_pb2

_METHOD = "/shardcall_worker.v1.HostService/Join"
_TIMEOUT_S = 60.0


def hello(name: str = "made", *, devices: int = 2, **versions: str) -> bytes:
    """An agent's first message, with other versions where they are passed."""
    installed = {"shardcall": build_version(), "jax": version("jax"), "jaxlib": version("jaxlib")}
    message = host_service_pb2.Hello(
        name=name,
        address="127.0.0.1",
        devices=devices,
        versions=server_info_service_pb2.Versions(**{**installed, **versions}),
    )
    return host_service_pb2.JoinRequest(hello=message).SerializeToString()


class ScriptedAgent:
    """A call of `Join` with the test's own messages.

    Args:
        address: where hosts join.
        token: shown to the server; empty for none.
        *messages: sent at once.
    """

    def __init__(self, address: str, token: str, *messages: bytes) -> None:
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for message in messages:
            self._messages.put(message)
        self._channel = grpc.insecure_channel(address)
        join: Any = self._channel.stream_stream(_METHOD, None, host_service_pb2.JoinResponse.FromString)
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._call = join(self._say(), metadata=metadata, timeout=_TIMEOUT_S)

    def _say(self) -> Iterator[bytes]:
        while (message := self._messages.get()) is not None:
            yield message

    def say(self, message: bytes) -> None:
        self._messages.put(message)

    def hears(self) -> str:
        """The field name of the server's next message."""
        said: str = next(self._call).WhichOneof("message")
        return said

    def end(self) -> tuple[grpc.StatusCode, str]:
        """The status with which the call ended, once it has."""
        try:
            for _ in self._call:
                pass
        except grpc.RpcError:
            pass
        return self._call.code(), self._call.details()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._call.cancel()
        self._messages.put(None)
        self._channel.close()
