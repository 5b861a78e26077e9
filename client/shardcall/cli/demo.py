"""``shardcall demo``: a difference along a sharded axis, at the speed of memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

import shardcall as sc
from shardcall.cli.demo_picture import demo_picture
from shardcall.cli.exits import FAILED, CommandError, plain_errors
from shardcall_core.types.arrays import NDArray

ROWS, COLUMNS = 4096, 4096
ROUNDS = 10
_DEVICES = 8


class Run(NamedTuple):
    """A call whose result was compared and dropped, so that the next finds the memory free."""

    timing: sc.Timing
    plan: sc.Plan


class Runs(NamedTuple):
    """The runs, and whether all results were NumPy's."""

    numpy_s: list[float]
    halo: list[Run]
    gspmd: list[Run]
    equal: bool

    @property
    def call(self) -> Run:
        """The shortest call by ``halo``, with its way to the server and back."""
        return min(self.halo, key=lambda run: run.timing.round_trip)

    @property
    def kernels(self) -> list[Run]:
        """The shortest kernel by ``halo``, and by ``gspmd``."""
        return [min(of, key=lambda run: run.timing.execute) for of in (self.halo, self.gspmd)]


def demo(
    server: Annotated[
        str | None,
        typer.Argument(metavar="ADDRESS", help='A server to ask, "host:port"; without one, a private server starts.'),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the blocks and the times into a file, in SVG.")
    ] = None,
) -> None:
    """Ask the first question, compare with NumPy and show times.

    It computes a difference along a sharded axis. The private server has 8 virtual CPU devices, and needs the extra
    `server`. Exit status 1 if the result differs.
    """
    with plain_errors():
        if picture is not None and not picture.parent.is_dir():
            raise CommandError(f"{picture} cannot be written: there is no folder {picture.parent}")
        what = f"Connecting to {server}" if server else f"Starting a private server of {_DEVICES} virtual CPU devices"
        print(what, "…", flush=True)
        with sc.connect(server) if server else sc.local(devices=_DEVICES) as client:
            runs = _ask(client)
        if picture is not None:
            _draw(runs, picture)
    raise typer.Exit(0 if runs.equal else FAILED)


def _ask(client: sc.Client) -> Runs:
    """Returns the runs of the difference on a mesh of 8, and prints the blocks, the check and the times."""
    info = client.server_info()
    print(f"Connected: {len(info.devices)} {info.platform} devices, JAX {info.versions.jax}.\n")
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
    print(f"x is {ROWS} × {COLUMNS} float64, {x.nbytes >> 20} MiB. Its rows, sharded over mesh axis x:\n", flush=True)
    runs = _run_rounds(client, x)
    call, (halo, gspmd) = runs.call, runs.kernels
    print(halo.plan.visualize(), "\n")
    print("result equals np.diff, bit for bit" if runs.equal else "RESULT DIFFERS FROM np.diff", "\n")
    print(f"Where the time of one call went (strategy {call.plan.strategy}):\n")
    print(call.timing, "\n")
    print(f"The best of {ROUNDS} rounds each:")
    print(f"  {'np.diff':18} {min(runs.numpy_s) * 1e3:8.1f} ms   on one core, memory fresh each time")
    for run in (halo, gspmd):
        uses = ", ".join(f"{c.count} {c.opcode}" for c in run.plan.collectives)
        print(f"  {run.plan.strategy + ', the kernel':18} {run.timing.execute * 1e3:8.1f} ms   {uses}")
    print(f"  {call.plan.strategy + ', the call':18} {call.timing.round_trip * 1e3:8.1f} ms   there and back again")
    print(f"  halo is {gspmd.timing.execute / halo.timing.execute:.1f} times as fast as what the compiler makes of it")
    return runs


def _run_rounds(client: sc.Client, x: NDArray) -> Runs:
    """Runs NumPy and both strategies in interleaved rounds; the first, which compiles and allocates, does not count."""
    numpy_s: list[float] = []
    runs: dict[str, list[Run]] = {"halo": [], "gspmd": []}
    equal = True
    for _ in range(1 + ROUNDS):
        began = time.perf_counter()
        expected = np.diff(x, axis=0, prepend=0.0)
        numpy_s.append(time.perf_counter() - began)
        for strategy, done in runs.items():
            result = client.diff(x, axis=0, prepend=0.0, mesh=sc.Mesh(x=8), spec=sc.P("x", None), strategy=strategy)
            equal = equal and np.array_equal(result.array, expected)
            done.append(Run(result.timing, result.plan))
    return Runs(numpy_s[1:], runs["halo"][1:], runs["gspmd"][1:], equal)


def _draw(runs: Runs, file: Path) -> None:
    halo, gspmd = runs.kernels
    times = {
        "np.diff, one core": min(runs.numpy_s),
        "shardcall, halo": halo.timing.execute,
        "compiler (gspmd)": gspmd.timing.execute,
    }
    drawn = demo_picture(f"np.diff along the sharded axis, {ROWS} × {COLUMNS} float64", halo.plan.visualize(), times)
    try:
        file.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from None
    print(f"\nThe picture is in {file}.")
