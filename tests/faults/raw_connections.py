"""Raw connections to a gRPC port, as malicious or faulty clients make them."""

import os
import random
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

HALF_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(20)
"""The first part of a TLS handshake, which says that 200 bytes will come."""
IDLE_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""The minimum of an HTTP/2 connection: the preface and empty settings."""
MAX_CONCURRENT_STREAMS, MAX_HEADER_LIST_SIZE = 3, 6  # of a SETTINGS frame

_GARBAGE = random.Random(5)
_PATIENCE_S = 120.0


def _literal(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


_CALL = b"".join(  # its headers, without compression: POST by http, then by the names of HPACK's table
    [
        b"\x83\x86",
        b"\x04" + _literal("/shardcall.v1.KernelService/Execute"),
        b"\x01" + _literal("localhost"),
        b"\x0f\x10" + _literal("application/grpc"),
        b"\x00" + _literal("te") + _literal("trailers"),
    ]
)


def port_of(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


@contextmanager
def connections(address: str, count: int, first_bytes: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections at once, each of which has sent ``first_bytes``."""
    with ExitStack() as stack:
        yield [stack.enter_context(_connected(address, first_bytes)) for _ in range(count)]


def garbage() -> bytes:
    return _GARBAGE.randbytes(_GARBAGE.randrange(1, 4096))


def reset_streams(connection: socket.socket) -> int:
    """Begins calls without a token and resets each at once, until the server closes the connection; counts them.

    It sends some 600 KB a second at most, so that a limit of more than some 60 MB is too large.
    """
    stream = 1
    began = time.monotonic()
    with suppress(ConnectionError):
        while not _has_ended(connection, wait_s=0.01):
            assert time.monotonic() - began < _PATIENCE_S, f"still open after {_PATIENCE_S:g} s"
            connection.settimeout(_PATIENCE_S)
            connection.sendall(b"".join(_begun_and_reset(stream + 2 * i) for i in range(50)))
            stream += 100
    return stream // 2


def _begun_and_reset(stream: int) -> bytes:
    return _frame(1, 4, stream, _CALL) + _frame(3, 0, stream, struct.pack(">I", 8))


def _frame(frame_type: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([frame_type, flags]) + struct.pack(">I", stream) + payload


def settings_of(address: str) -> dict[int, int]:
    """The values in a server's SETTINGS frame, which is the first that it sends."""
    with connections(address, 1, IDLE_HTTP2) as (connection,):
        head = _receive(connection, 9)
        body = _receive(connection, int.from_bytes(head[:3], "big"))
    assert head[3] == 4
    return dict(struct.iter_unpack(">HI", body))


def count_open(sockets: Sequence[socket.socket]) -> int:
    return sum(not _has_ended(one, wait_s=0.0) for one in sockets)


def wait_closed(sockets: Sequence[socket.socket]) -> float:
    """Seconds until the server has closed them all."""
    began = time.monotonic()
    for one in sockets:
        assert _has_ended(one, _PATIENCE_S), f"still open after {_PATIENCE_S:g} s"
    return time.monotonic() - began


def _rows(*families: str) -> list[list[str]]:
    """The columns of the kernel's tables of sockets."""
    tables = [Path(f"/proc/net/{family}").read_text() for family in families]
    return [line.split() for table in tables for line in table.splitlines()[1:]]


def listening(pids: Sequence[int]) -> set[str]:
    """The addresses at which processes listen: "tcp 127.0.0.1:8470", "unix /path"; what ``ss -ltnx`` shows."""
    inodes = _inodes(pids)
    by_tcp = {f"tcp {_address(row[1])}" for row in _rows("tcp", "tcp6") if row[3] == "0A" and row[9] in inodes}
    takes_connections = [row for row in _rows("unix") if row[3] == "00010000" and row[6] in inodes]
    return by_tcp | {f"unix {row[7] if len(row) > 7 else ''}" for row in takes_connections}


def sockets(pids: Sequence[int]) -> set[str]:
    """The sockets of processes: "tcp" for those of TCP, "unix /path" for named Unix sockets, "unix" for others."""
    inodes = _inodes(pids)
    by_tcp = {"tcp" for row in _rows("tcp", "tcp6") if row[9] in inodes}
    return by_tcp | {" ".join(["unix", *row[7:]]) for row in _rows("unix") if row[6] in inodes}


def established(address: str) -> set[str]:
    """The ports of this machine that have a connection to an address."""
    port = f":{port_of(address)[1]:04X}"
    rows = _rows("tcp", "tcp6")
    return {row[1].rpartition(":")[2] for row in rows if row[2].endswith(port) and row[3] == "01"}


def _inodes(pids: Sequence[int]) -> set[str]:
    return {link.removeprefix("socket:[").rstrip("]") for pid in pids for link in links(pid)}


def links(pid: int) -> Iterator[str]:
    """The descriptors that a process has open."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            yield os.readlink(f"/proc/{pid}/fd/{name}")


def _address(text: str) -> str:
    packed, _, port = text.rpartition(":")
    groups = [bytes.fromhex(packed[i : i + 8])[::-1] for i in range(0, len(packed), 8)]
    host = socket.inet_ntop(socket.AF_INET if len(groups) == 1 else socket.AF_INET6, b"".join(groups))
    return f"{host.removeprefix('::ffff:')}:{int(port, 16)}"  # gRPC takes IPv4 by sockets of IPv6


def _connected(address: str, first_bytes: bytes) -> socket.socket:
    connection = socket.create_connection(port_of(address), timeout=30)
    with suppress(ConnectionError):  # refused already, which some tests expect
        connection.sendall(first_bytes)
    return connection


def _has_ended(connection: socket.socket, wait_s: float) -> bool:
    connection.settimeout(wait_s)
    try:
        while connection.recv(1 << 16):
            pass
    except (BlockingIOError, TimeoutError):
        return False
    except ConnectionError:
        pass
    return True


def _receive(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        piece = connection.recv(count - len(received))
        assert piece, "the server closed the connection"
        received += piece
    return bytes(received)
