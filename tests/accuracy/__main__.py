"""Measures every kernel on a private server, or on a GPU, and writes docs/accuracy.md or docs/accuracy-gpu.md."""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from accuracy import document, evaluation, programs

import shardcall as sc
from shardcall.local_server import ServerProcess
from shardcall_core.wire.token_file import TOKEN_VARIABLE, new_token
from shardcall_server.launcher import gpu_is_present

_DEVICES = 8


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="accuracy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"few sizes: {evaluation.SOME_SIZES}")
    parser.add_argument("--gpu", action="store_true", help="on a GPU, into docs/accuracy-gpu.md; skips without one")
    options = parser.parse_args()
    sizes = partial(evaluation.sizes_of, quick=options.quick)
    if options.gpu:
        return write_table_of_gpu(sizes)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHARDCALL_CACHE_DIR"] = folder
        with sc.local(devices=_DEVICES, strategy="fixed", progress=False) as client:
            conditions = document.conditions(client.server_info(), sizes)
            stated = document.stated_conditions(document.PATH.read_text())
            if options.quick and (why := document.refusal(stated, conditions)):
                sys.exit(f"{document.PATH.name}: {why}")
            of_programs = {name: programs.measured(client, name) for name in programs.EXPRESSIONS}
            document.write(document.PATH, programs.table(of_programs), (document.BEGIN_PROGRAMS, document.END_PROGRAMS))
            table = evaluation.measured(client, evaluation.all_cases(sizes, _DEVICES))
    document.write(document.PATH, document.generated(table, conditions))
    print(f"{document.PATH.name}: {len(table)} pairs of kernel and element type")  # noqa: T201
    return 0


_ROUNDS = 9
_START_TIMEOUT_S = 300.0
_TITLE = (
    "# Accuracy on a GPU\n\nWritten by `make gpu`; [accuracy.md](accuracy.md) says what the numbers and letters mean."
)


def write_table_of_gpu(sizes: Callable[[str], tuple[int, ...]]) -> int:
    """Measures and writes docs/accuracy-gpu.md; says by name what is skipped where there is no GPU."""
    if not gpu_is_present():
        print("accuracy table on a GPU: skipped, this machine has none that JAX can use")  # noqa: T201
        print("first question on a GPU: skipped, this machine has none that JAX can use")  # noqa: T201
        return 0
    token = new_token()
    command = [sys.executable, "-m", "shardcall.cli", "serve", "--strategy", "fixed"]
    command += ["--port", "0", "--platform", "gpu"]
    server = ServerProcess([*command, "--exit-with-stdin"], {TOKEN_VARIABLE: token})
    try:
        with sc.connect(server.wait_for_ready(_START_TIMEOUT_S), token=token, progress=False) as client:
            info = client.server_info()
            conditions = document.conditions(info, sizes, "gpu")
            table = evaluation.measured(client, evaluation.all_cases(sizes, len(info.devices)))
            question = first_question(client, len(info.devices))
    finally:
        server.stop()
    parts = [_TITLE, document.generated(table, conditions), "## The first question", question]
    (document.PATH.parent / "accuracy-gpu.md").write_text("\n\n".join(parts) + "\n")
    return 0


def first_question(client: sc.Client, devices: int) -> str:
    """The time of a difference along a sharded axis, by strategy, and whether it is NumPy's bit for bit."""
    x = np.random.default_rng(0).standard_normal((4096, 4096))
    expected, mesh = np.diff(x, axis=0, prepend=0.0), sc.Mesh(x=devices)
    lines = ["| strategy | execute, ms | round trip, ms | bits of np.diff |", "|---|---|---|---|"]
    for strategy in ("halo", "gspmd"):
        executions, round_trips = [], []
        for _ in range(_ROUNDS + 1):
            began = time.perf_counter()
            result = client.diff(x, axis=0, prepend=0.0, mesh=mesh, spec=sc.P("x"), strategy=strategy)
            round_trips.append(time.perf_counter() - began)
            executions.append(result.timing.execute)
        times = [f"{statistics.median(seconds[1:]) * 1e3:.1f}" for seconds in (executions, round_trips)]
        lines.append(
            f"| {strategy} | {' | '.join(times)} | {'yes' if np.array_equal(result.array, expected) else 'NO'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main())
