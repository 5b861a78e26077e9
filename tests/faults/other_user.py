"""Another user of the machine. Run as a script by root, with a user id, a deed and an address or path.

Everything is imported before the user changes: the interpreter may be in a folder that others may not read.
"""

import concurrent.futures
import encodings.ascii
import encodings.idna
import os
import socket
import sys
import tempfile
import threading

import grpc

import shardcall as sc
import shardcall._src.memory.segment
from shardcall.v1 import mesh_pb2, server_info_service_pb2, server_info_service_pb2_grpc
from shardcall_core.wire import token_file

__all__ = ["encodings", "shardcall"]


def write(*fields: object) -> None:
    sys.stdout.write(" ".join(map(str, fields)) + "\n")
    sys.stdout.flush()


def connect(address: str) -> None:
    """Prints the outcome of connecting, as people do it."""
    try:
        with sc.connect(address) as client:
            write("connected", client.diff([1.0, 4.0]).array)
    except sc.ShardcallError as error:
        write(type(error).__name__, error.message)


def connect_with_another_file(address: str) -> None:
    """The same, with a token file as a server of this user would have made it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # none of the test's may be entered
        os.environ[token_file.FILE_VARIABLE] = f"{folder}/token"
        token_file.create_missing(f"{folder}/token")
        connect(address)


def serve(path: str) -> None:
    """Prints why no server starts: as `shardcall serve` with that token file."""
    from shardcall_server.frontend.access.tokens import FileTokens
    from shardcall_server.settings import SettingsError

    try:
        FileTokens(path)
    except SettingsError as error:
        write("SettingsError", error)


class _Squatter(server_info_service_pb2_grpc.ServerInfoServiceServicer):
    def GetServerInfo(self, request, context):
        write("called with", *(name for name, _ in context.invocation_metadata()))
        mesh = mesh_pb2.Mesh(axes=[mesh_pb2.MeshAxis(name="x", size=1)], device_ids=[0])
        return server_info_service_pb2.GetServerInfoResponse(default_mesh=mesh)


def squat(_: str) -> None:
    """Listens where others may look for a server, and prints what they send."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    server_info_service_pb2_grpc.add_ServerInfoServiceServicer_to_server(_Squatter(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    write(f"127.0.0.1:{port}")
    sys.stdin.read()
    server.stop(0).wait()


DEEDS = {deed.__name__: deed for deed in (connect, connect_with_another_file, serve, squat)}

if __name__ == "__main__":
    _, uid, deed, where = sys.argv
    if deed == "serve":
        import shardcall_server.frontend.access.tokens  # noqa: F401
    for name in sc.__all__:
        getattr(sc, name)
    socket.getaddrinfo("localhost", 1)
    threading.Thread(target=int).start()
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
    os.environ.pop(token_file.TOKEN_VARIABLE, None)
    DEEDS[deed](where)
