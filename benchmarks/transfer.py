"""Cost of an array's transfer to the server and back, beside its floors and its peers.

    python benchmarks/transfer.py [--sizes 4KiB,1MiB] [--rounds N] [--allocator tuned|default|both] [--output FILE.md]

The job: a NumPy array in, its difference along the sharded axis taken on 8 devices, a NumPy array out. Every figure of
a table comes from one run, in interleaved rounds. The claims at the end are judged and gate nothing.
benchmarks/README.md explains the rows.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import transfer_claims
from harness import memory
from harness.asking import (
    PEERS_DIR,
    Child,
    Samples,
    client_environment,
    peer_python,
    run_rounds,
    server,
)
from harness.pictures import picture
from harness.report import claim_table, machine, milliseconds, parse_size, size_name, table

SIZES = (4, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 128 << 20)
LARGEST = 1 << 30
_MIB = 1 << 20
_ANY = 1 << 62


@dataclass(frozen=True)
class Row:
    """A row of the table: a child process and the job that it runs.

    Attributes:
        title: the title of the row.
        group: "ours", "floor" or "peer".
        child: the module that runs the job.
        what: the name of the job.
        max_bytes: the largest array size of the row.
    """

    title: str
    group: str
    child: str
    what: str
    max_bytes: int = _ANY


_OURS = "shardcall_client"
ROWS = {
    "tcp": Row("TCP, as the client chooses", "ours", _OURS, "tcp"),
    "tcp-stream": Row("TCP, stream", "ours", _OURS, "tcp-stream", max_bytes=_MIB),
    "uds": Row("UDS, as the client chooses", "ours", _OURS, "uds"),
    "uds-stream": Row("UDS, stream", "ours", _OURS, "uds-stream", max_bytes=_MIB),
    "segment-in-place": Row("segment: copied in, read in place", "ours", _OURS, "segment-in-place"),
    "segment-copied": Row("segment: copied in, copied out", "ours", _OURS, "segment-copied"),
    "segment-empty": Row("segment: made there, read in place", "ours", _OURS, "segment-empty"),
    "once-1": Row("floor: memcpy once, 1 thread", "floor", "floors", "once-1"),
    "once-2": Row("floor: memcpy once, 2 threads", "floor", "floors", "once-2"),
    "memcpy-1": Row("floor: memcpy in and out, 1 thread", "floor", "floors", "in-and-out-1"),
    "memcpy-2": Row("floor: memcpy in and out, 2 threads", "floor", "floors", "in-and-out-2"),
    "socket-tcp": Row("floor: TCP socket echo", "floor", "floors", "tcp"),
    "socket-uds": Row("floor: UDS socket echo", "floor", "floors", "uds"),
    "echo-unary-tcp": Row("floor: gRPC echo, TCP, unary", "floor", "grpc_echo", "unary-tcp", max_bytes=_MIB),
    "echo-stream-tcp": Row("floor: gRPC echo, TCP, stream", "floor", "grpc_echo", "stream-tcp"),
    "echo-unary-uds": Row("floor: gRPC echo, UDS, unary", "floor", "grpc_echo", "unary-uds", max_bytes=_MIB),
    "echo-stream-uds": Row("floor: gRPC echo, UDS, stream", "floor", "grpc_echo", "stream-uds"),
    "jax-diff": Row("peer: JAX in process, jnp.diff", "peer", "in_process_jax", "diff"),
    "jax-halo": Row("peer: JAX in process, the server's halo", "peer", "in_process_jax", "halo"),
    **{
        f"{child}-{what}": Row(f"peer: {title}, {job}", "peer", child, what)
        for child, title in (
            ("arrow_flight", "Arrow Flight"),
            ("ray_actor", "Ray actor"),
            ("triton_server", "Triton shared memory"),
        )
        for what, job in (("echo", "echo"), ("diff", "jnp.diff"), ("halo", "halo by shard_map"))
    },
}
_HERE = (_OURS, "floors", "grpc_echo", "in_process_jax")
_PEERS = ("arrow_flight", "ray_actor", "triton_server")
_TOGETHER_BYTES = 256 * _MIB
"""For larger arrays the processes run one after the other, since together they would not fit into memory."""
Measured = Mapping[int, Mapping[str, Samples]]


@contextmanager
def children(tuned: bool, modules: Iterable[str], peers_dir: Path) -> Iterator[dict[str, Child]]:
    """Starts the child processes with the same environment, and the server if the shardcall client is one of them."""
    environment = client_environment(tuned)
    with ExitStack() as stack:
        asked = {}
        for module in modules:
            arguments: list[str] = []
            if module == _OURS:
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                running = stack.enter_context(server(Path(folder), tuned=tuned))
                unix = ["--unix-address", running.unix_address] if running.unix_address else []
                arguments = [running.address, *unix]
            python = peer_python(peers_dir, module) if module in _PEERS else Path(sys.executable)
            asked[module] = Child(f"peers.{module}", *arguments, environment=environment, python=python)
            stack.callback(asked[module].stop)
        yield asked


def measure(tuned: bool, arguments: argparse.Namespace) -> Measured:
    """Measures every row for every size, in ascending order of size."""
    modules = (*_HERE, *arguments.peers)
    sizes = sorted(arguments.sizes)
    measured: dict[int, dict[str, Samples]] = {}
    with children(tuned, modules, arguments.peers_dir) as asked:
        for size in (size for size in sizes if size <= _TOGETHER_BYTES):
            measured[size] = run_rounds(_requests(asked, size), size, arguments.rounds, size_name(size))
    for size in (size for size in sizes if size > _TOGETHER_BYTES):
        measured[size] = {}
        for module in modules:
            with children(tuned, [module], arguments.peers_dir) as asked:
                note = f"{size_name(size)}, {module}"
                measured[size] |= run_rounds(_requests(asked, size), size, arguments.rounds, note)
    return measured


def _requests(asked: Mapping[str, Child], size: int) -> dict[str, tuple[Child, str]]:
    return {
        name: (asked[row.child], row.what) for name, row in ROWS.items() if row.child in asked and size <= row.max_bytes
    }


def times(measured: Measured) -> list[str]:
    """Returns a table of the median milliseconds of every row and of the kernel alone, by size."""
    rows = [["what, ms", *map(size_name, measured)]]
    for name, row in ROWS.items():
        cells = [_cell(samples.get(name)) for samples in measured.values()]
        if any(cells):
            rows.append([row.title, *cells])
    rows.append(["the kernel alone, on the server", *(_ms(transfer_claims.kernel(s)) for s in measured.values())])
    return table(rows)


def _cell(samples: Samples | None) -> str:
    if samples is None:
        return ""
    if samples.error:
        return "-"
    return milliseconds(statistics.median(samples.seconds)) + ("" if samples.right else " WRONG")


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else milliseconds(seconds)


def failures(measured: Measured) -> list[str]:
    """Returns the reasons for rows without a figure, without repetitions."""
    reasons = {
        f"* {ROWS[name].title}: {samples.error}"
        for by_row in measured.values()
        for name, samples in by_row.items()
        if samples.error
    }
    return ["", "No figure:", "", *sorted(reasons)] if reasons else []


def section(tuned: bool, arguments: argparse.Namespace) -> list[str]:
    """Returns the part of the report about one setting of the allocator."""
    lines = [f"## The allocator {'tuned' if tuned else 'as it is'}", ""]
    if arguments.memory != "only":
        measured = measure(tuned, arguments)
        lines += [*times(measured), *failures(measured), "", *transfer_claims.ratios(measured), ""]
        lines += [*claim_table(transfer_claims.claims(measured)), ""]
        if arguments.output:
            lines += [draw(measured, tuned, arguments), ""]
    if arguments.memory != "no":
        for figures, claims in (
            memory.by_size(arguments.sizes, tuned),
            memory.by_count(arguments.memory_calls, tuned),
        ):
            lines += [*figures, "", *claim_table(claims), ""]
    return lines


def draw(measured: Measured, tuned: bool, arguments: argparse.Namespace) -> str:
    """Draws the times into a file beside the report; returns the line of the report that shows it."""
    lines = []
    for key, row in ROWS.items():
        seconds_of = {size: samples[key].seconds for size, samples in measured.items() if key in samples}
        points = [(size, statistics.median(seconds)) for size, seconds in seconds_of.items() if seconds]
        if points and not key.startswith("once"):
            lines.append({"name": row.title, "group": row.group, "points": points})
    figure = {
        "title": f"NumPy in, difference on 8 devices, NumPy out; allocator {'tuned' if tuned else 'as it is'}",
        "x": "size of the array",
        "ticks": list(measured),
        "tick_names": [size_name(size) for size in measured],
        "lines": lines,
    }
    return picture(figure, arguments.output, "tuned" if tuned else "default", arguments.peers_dir)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(parse_size(part) for part in text.split(","))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures an array's transfer to the server and back.")
    parser.add_argument("--sizes", type=_sizes, default=SIZES, help="such as 4KiB,1MiB (4 B to 128 MiB)")
    parser.add_argument("--largest", action="store_true", help="1 GiB too")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each row (9)")
    parser.add_argument("--allocator", choices=("tuned", "default", "both"), default="tuned")
    parser.add_argument(
        "--memory", choices=("no", "too", "only"), default="no", help="the server's memory, from 16 MiB"
    )
    parser.add_argument(
        "--memory-calls", type=int, default=1000, help="calls of 16 MiB after which memory is measured (1000)"
    )
    parser.add_argument("--peers", nargs="*", default=_PEERS, choices=_PEERS, help="peers to measure (all)")
    parser.add_argument("--peers-dir", type=Path, default=PEERS_DIR, help="folder of the peers' environments")
    parser.add_argument("--output", type=Path, help="write the report there too, and plots beside it")
    arguments = parser.parse_args()
    if arguments.largest:
        arguments.sizes = (*arguments.sizes, LARGEST)
    return arguments


def main() -> int:
    """Measures, prints, and returns 0 whatever the figures are."""
    arguments = _arguments()
    settings = {"tuned": [True], "default": [False], "both": [True, False]}[arguments.allocator]
    report = [
        "# An array's transfer to the server and back",
        "",
        f"NumPy in, difference along the sharded axis on 8 devices (one below 4 KiB), NumPy out; medians of "
        f"{arguments.rounds} rounds.",
        *machine(("jax", "numpy", "grpcio", "protobuf"), peer_versions(arguments)),
        "",
    ]
    for tuned in settings:
        report += section(tuned, arguments)
    print("\n".join(report))
    if arguments.output:
        arguments.output.write_text("\n".join(report).rstrip() + "\n")
    return 0


def peer_versions(arguments: argparse.Namespace) -> dict[str, str]:
    """Returns the versions of the installed peers."""
    versions = {}
    for peer, package in zip(_PEERS, ("pyarrow", "ray", "nvidia-pytriton"), strict=True):
        python = peer_python(arguments.peers_dir, peer)
        if peer in arguments.peers and python.exists():
            command = [str(python), "-c", f"from importlib.metadata import version; print(version('{package}'))"]
            versions[package] = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return versions


if __name__ == "__main__":
    sys.exit(main())
