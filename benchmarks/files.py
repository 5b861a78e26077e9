"""Saving and loading an array of 256 MiB, npy and Zarr, beside writing and reading the same bytes.

The floor of a save is a write of the bytes and an fsync; that of a load is a read of the file into new memory. Rounds
of both alternate, on the disk of FOLDER. The memory is the peak of the server's processes beyond the array, all of them
together. With ``--hosts``, the mesh has as many hosts, which share no memory with the front end.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from host_clusters import Shape, running, temporary_tokens

import shardcall as sc
from shardcall import P

ROUNDS = 5
SHAPE = (8192, 8192)
PIECE_BYTES = 8 << 20


def seconds(work: Callable[[], object]) -> float:
    """Returns the time of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def write(path: Path, x: np.ndarray) -> None:
    """Writes the bytes of an array as the server does: in pieces, to a new file that replaces the one before."""
    data, temporary = x.reshape(-1).view(np.uint8).data, path.with_suffix(".new")
    with temporary.open("wb", buffering=0) as file:
        for begin in range(0, len(data), PIECE_BYTES):
            file.write(data[begin : begin + PIECE_BYTES])
        os.fsync(file.fileno())
    temporary.rename(path)


def read(path: Path) -> None:
    """Reads a file, or all files of a directory, into new memory."""
    for part in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if part.is_file():
            memory = np.empty(part.stat().st_size, np.uint8)
            with part.open("rb", buffering=0) as file:
                file.readinto(memory.data)


def processes() -> list[int]:
    """Returns the ids of the processes below this one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    below = [os.getpid()]
    for pid in below:
        below += [child for child, parent in parents.items() if parent == pid]
    return below[1:]


def memory_bytes(field: str) -> int:
    """Returns the sum of a field of ``/proc/PID/status`` of the server's processes."""
    total = 0
    for pid in processes():
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))
    return total


def forget_peaks() -> None:
    """Sets the peak memory of the server's processes to what they have now."""
    for pid in processes():
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mib(work: Callable[[], object]) -> float:
    """Returns the memory that the server's processes took at most during a call beyond what they had, in MiB."""
    before = memory_bytes("VmRSS")
    forget_peaks()
    work()
    return (memory_bytes("VmHWM") - before) / 2**20


def report(name: str, floors: list[float], times: list[float]) -> None:
    """Prints the medians and their ratio."""
    floor, median = statistics.median(floors), statistics.median(times)
    print(
        f"{name:32} floor {floor * 1e3:7.0f} ms   here {median * 1e3:7.0f} ms   {median / floor:5.2f} times the floor"
    )


@contextmanager
def serving(arrays: str, hosts: int) -> Iterator[sc.Client]:
    """Starts a server of 8 devices, of several hosts or of none, with a folder of files."""
    if not hosts:
        with sc.local(devices=8, array_dir=arrays, spare_worker=False) as client:
            yield client
        return
    shape = Shape(hosts, 8 // hosts, shares_memory=False)
    with temporary_tokens(), running(shape, arrays) as cluster:
        yield cluster.client


def compare(folder: Path, x: np.ndarray, spec: sc.PartitionSpec, name: str, hosts: int) -> None:
    """Measures a save and a load of an array with a sharding, in a file of a format, on a new server."""
    mesh, arrays = sc.Mesh(x=8), folder / "arrays"
    with serving(str(arrays), hosts) as client:
        h = client.put(x, mesh=mesh, spec=spec)
        loaded: list[sc.RemoteArray] = []

        def save() -> None:
            client.save(h, name)

        def load() -> None:
            loaded.append(client.load(name, mesh=mesh, spec=spec))

        saved_mib, loaded_mib = peak_mib(save), peak_mib(load) - x.nbytes / 2**20
        print(f"{name}: peak memory beyond the array: save {saved_mib:.0f} MiB, load {loaded_mib:.0f} MiB")
        assert (loaded.pop().get() == x).all()
        (file,) = arrays.glob(f"*/{name}")
        writing, saving, reading, loading = [], [], [], []
        for _ in range(ROUNDS):
            writing.append(seconds(lambda: write(folder / "floor", x)))
            saving.append(seconds(save))
            reading.append(seconds(lambda: read(file)))
            loading.append(seconds(load))
            loaded.pop().delete()
        report(f"save {name} {spec}", writing, saving)
        report(f"load {name} {spec}", reading, loading)


def main(folder: Path, hosts: int) -> None:
    """Compares two formats and two shardings: blocks that are contiguous in the file, and blocks that are not."""
    x = np.random.default_rng(1).random(SHAPE, np.float32)
    for name in ("a.npy", "a.zarr"):
        for spec in (P("x", None), P(None, "x")):
            compare(folder, x, spec, name, hosts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", help="a folder on the disk; that of temporary files by default")
    parser.add_argument("--hosts", type=int, default=0, choices=(0, 1, 2, 4, 8), help="hosts of the mesh; 0 for none")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as created:
        main(Path(created), arguments.hosts)
