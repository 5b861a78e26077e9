"""Times of the kernel library: kernels beside their floors, strategies beside each other, and auto's selections.

    python benchmarks/kernels.py [--only SECTION,…] [--rounds N] [--size N] [--output FILE.md]

Sections: differences, products, collective, auto. Arrays stay on the mesh, so the kernel alone is timed
(`timing.execute`). Figures are medians of rounds, which run every case of a section once in random order. The claims
at the end are judged and gate nothing. benchmarks/README.md explains the rows.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import shardcall as sc
from auto_grid import auto_section, chosen_strategy
from harness.pictures import picture
from harness.report import Claim, claim_table, machine, milliseconds, ratio_claim, table
from kernel_cases import Asker, Case, Samples, in_blocks, in_this_process, measure, mesh_of
from shardcall import P
from shardcall_server.frontend.programs.verdicts import Verdicts
from shardcall_server.setting_groups import default_cache_dir

Section = tuple[list[str], list[Claim], dict[str, object]]
MESHES = ((8, 1), (1, 8), (4, 2), (2, 4))
BY_BOTH = P("x", "y")
DIFFERENCES: dict[str, tuple[str, dict[str, object], tuple[str, ...], float]] = {
    # row: kernel, parameters, strategies, at most so many elementwise copies (0: nothing is claimed)
    "diff, order 1": ("diff", {"n": 1, "axis": 0}, ("halo", "gspmd"), 1.15),
    "diff, order 2": ("diff", {"n": 2, "axis": 0}, ("halo", "gspmd"), 1.15),
    "diff, order 3": ("diff", {"n": 3, "axis": 0}, ("halo", "gspmd"), 1.3),
    "laplacian": ("laplacian", {}, ("halo", "gspmd"), 1.3),
    "gradient, axis 0": ("gradient", {"axis": 0}, ("halo", "gspmd"), 0),
    "shift by 1": ("shift", {"shift": 1, "axis": 0}, ("halo", "gspmd"), 0),
    "cumsum": ("cumsum", {"axis": 0}, ("auto", "gspmd"), 0),
}
PRODUCTS = {
    # row: mesh, specs of lhs, rhs and result; into how many parts the devices share rows, contracted axis and columns
    "rows": ((8, 1), P("x", None), P(), P("x", None), (8, 1, 1)),
    "columns": ((8, 1), P(), P(None, "x"), P(None, "x"), (1, 1, 8)),
    "rows by columns": ((4, 2), P("x", None), P(None, "y"), P("x", "y"), (4, 1, 2)),
    "rows by columns, turned": ((2, 4), P("x", None), P(None, "y"), P("x", "y"), (2, 1, 4)),
    "contracting, scattered": ((8, 1), P(None, "x"), P("x", None), P("x", None), (1, 8, 1)),
    "contracting, replicated": ((8, 1), P(None, "x"), P("x", None), P(), (1, 8, 1)),
    "contracting over y": ((4, 2), P("x", "y"), P("y", None), P("x", None), (4, 2, 1)),
    "both in blocks": ((4, 2), P("x", "y"), P("x", "y"), P("x", "y"), (4, 1, 2)),
    "both in blocks, turned": ((2, 4), P("x", "y"), P("x", "y"), P("x", "y"), (2, 1, 4)),
    "gathered": ((8, 1), P("x", None), P(), P(), (8, 1, 1)),
    "replicated": ((8, 1), P(), P(), P(), (8, 1, 1)),
    "rows by rows": ((8, 1), P("x", None), P("x", None), P("x", None), (8, 1, 1)),
}
COLLECTIVE = {
    # row: specs of lhs and rhs; the rest follows from the strategy
    "lhs by rows": (P("x", None), P()),
    "rhs by columns": (P(), P(None, "x")),
    "contracting": (P(None, "x"), P("x", None)),
}


def differences(asker: Asker, size: int, rounds: int) -> Section:
    """Times differences and related kernels, beside an elementwise pass on the same mesh."""
    x = np.random.default_rng(0).standard_normal((size, size))
    cases = []
    for sizes in ((1, 1), *MESHES):
        mesh = mesh_of(sizes)
        here = asker.here(x, mesh, BY_BOTH)
        cases.append(Case("floor: x + 1", sizes, asker.ask("add", here, np.float64(1))))
        cases.append(Case("floor: copy", sizes, asker.ask("copy", here)))
        for row, (kernel, parameters, strategies, _) in DIFFERENCES.items():
            for strategy in strategies:
                ask = asker.ask(kernel, here, strategy=strategy, **parameters)
                cases.append(Case(f"{row}: {strategy}", sizes, ask))
    samples = {(case.what, case.mesh): s for case, s in zip(cases, measure(cases, rounds).values(), strict=True)}
    rows = [["kernel: strategy", *(str(sizes) for sizes in ((1, 1), *MESHES)), *(f"÷ x + 1 {s}" for s in MESHES)]]
    for what in dict.fromkeys(case.what for case in cases):
        medians = [samples[what, sizes].median for sizes in ((1, 1), *MESHES)]
        ratios = [f"{samples[what, s].median / _copy(samples, s):.2f}" for s in MESHES]
        rows.append([what, *map(milliseconds, medians), *ratios])
    figure = {
        "title": "Differences and their family, next to one elementwise pass on the same mesh",
        "x": "time ÷ x + 1",
        "scale": "log",
        "rows": [row[0] for row in rows[1:]],
        "bars": {f"mesh {s}": [float(row[1 + len(MESHES) + 1 + i]) for row in rows[1:]] for i, s in enumerate(MESHES)},
        "floor": 1,
        "floor_name": "x + 1",
    }
    return table(rows), list(_difference_claims(samples)), figure


def _copy(samples: dict[tuple[str, tuple[int, ...]], Samples], sizes: tuple[int, ...]) -> float:
    """Returns the time of the floor, an elementwise pass that reads and writes the array once."""
    return samples["floor: x + 1", sizes].median


def _difference_claims(samples: dict[tuple[str, tuple[int, ...]], Samples]) -> Iterator[Claim]:
    for row, (_, _, _, limit) in DIFFERENCES.items():
        if limit:
            ratios = {sizes: samples[f"{row}: halo", sizes].median / _copy(samples, sizes) for sizes in MESHES}
            worst = max(ratios, key=ratios.__getitem__)
            yield ratio_claim(f"{row} takes at most {limit} × x + 1, here on {worst}", limit, ratios[worst])
    alone = samples["cumsum: auto", (1, 1)].median
    ratios = {sizes: samples["cumsum: auto", sizes].median / alone for sizes in MESHES}
    worst = max(ratios, key=ratios.__getitem__)
    yield ratio_claim(f"cumsum takes at most 1.1 × one device, here on {worst}", 1.1, ratios[worst])


def products(asker: Asker, size: int, rounds: int) -> Section:
    """Times a product in every layout, beside one device, NumPy, and NumPy with the same blocks."""
    lhs, rhs = np.random.default_rng(1).standard_normal((2, size, size)).astype(np.float32)
    alone = mesh_of((1,))
    unsharded = asker.here(lhs, alone, P()), asker.here(rhs, alone, P())
    floors = [
        Case("floor: NumPy", (), in_this_process(lambda: lhs @ rhs)),
        Case("floor: one device", (1,), asker.ask("matmul", *unsharded)),
    ]
    shares = [*dict.fromkeys(parts for *_, parts in PRODUCTS.values())]
    blocks = [Case(f"NumPy in blocks {parts}", (), in_this_process(in_blocks(lhs, rhs, parts))) for parts in shares]
    layouts = []
    for row, (sizes, lhs_spec, rhs_spec, out_spec, parts) in PRODUCTS.items():
        mesh = mesh_of(sizes)
        operands = asker.here(lhs, mesh, lhs_spec), asker.here(rhs, mesh, rhs_spec)
        strategy = chosen_strategy(asker.client, "matmul", *operands, out_specs=[out_spec])
        ask = asker.ask("matmul", *operands, out_spec=out_spec)
        layouts.append(Case(f"{row}: {lhs_spec} by {rhs_spec} → {out_spec}", sizes, ask, (strategy, str(parts))))
    cases = [*floors, *blocks, *layouts]
    medians = [samples.median for samples in measure(cases, rounds).values()]
    best = min(medians[: len(floors)])
    in_shares = dict(zip(map(str, shares), medians[len(floors) :], strict=False))
    flops = 2 * size**3
    rows = [["product", "mesh", "strategy", "blocks", "ms", "GFLOP/s", "of the best floor", "of NumPy in these blocks"]]
    rows += [
        [
            case.what,
            str(case.mesh or ""),
            *(case.notes or ("", "")),
            milliseconds(median),
            f"{flops / median / 1e9:.0f}",
            f"{best / median:.2f}",
            f"{in_shares[case.notes[1]] / median:.2f}" if case.notes else "",
        ]
        for case, median in zip(cases, medians, strict=True)
    ]
    slowest = min(zip(medians[-len(layouts) :], layouts, strict=True), key=lambda pair: best / pair[0])
    share = best / slowest[0]
    text = f"matmul reaches at least 0.9 of the best of NumPy and one device in every layout, here {slowest[1].what}"
    figure = {
        "title": f"Products, {size}³ float32",
        "x": "GFLOP/s",
        "scale": "linear",
        "rows": [f"{row[0]}, {row[1]}" if row[1] else row[0] for row in rows[1:]],
        "bars": {"matmul": [float(row[5]) for row in rows[1:]]},
        "floor": flops / best / 1e9,
        "floor_name": "the best of NumPy and one device",
    }
    return table(rows, left=4), [Claim(text, f"{share:.2f}", share >= 0.9)], figure


def collective(asker: Asker, size: int, rounds: int) -> Section:
    """Times every strategy of collective_matmul, with its temporary memory."""
    lhs, rhs = np.random.default_rng(2).standard_normal((2, size, size)).astype(np.float32)
    mesh = mesh_of((8,))
    cases = []
    for row, (lhs_spec, rhs_spec) in COLLECTIVE.items():
        operands = asker.here(lhs, mesh, lhs_spec), asker.here(rhs, mesh, rhs_spec)
        for strategy in asker.client.kernel("collective_matmul").strategies:
            how: dict[str, Any] = {"axis_name": "x", "strategy": strategy.name}
            try:
                plan = asker.client.plan("collective_matmul", *operands, **how)
            except sc.ShardingError:
                continue
            notes = (str(plan.results[0].spec), f"{plan.memory.temp_bytes / 2**20:.2f}")
            ask = asker.ask("collective_matmul", *operands, **how)
            cases.append(Case(f"{row}: {strategy.name}", (8,), ask, notes))
    rows = [["layout: strategy", "result", "temporary MiB a device", "ms"]]
    for case, s in zip(cases, measure(cases, rounds).values(), strict=True):
        rows.append([case.what, *case.notes, milliseconds(s.median)])
    figure = {
        "title": f"collective_matmul on 8 devices, {size}³ float32",
        "x": "ms",
        "scale": "linear",
        "rows": [row[0] for row in rows[1:]],
        "bars": {"time": [float(row[3]) for row in rows[1:]]},
        "floor": min(float(row[3]) for row in rows[1:]),
        "floor_name": "the quickest",
    }
    return table(rows, left=2), [], figure


SECTIONS: dict[str, tuple[str, Callable[[Asker, int, int], Section], int]] = {
    "differences": ("Differences and their family, {0} × {0} float64, sharded P('x', 'y'); ms", differences, 4096),
    "products": ("Products, {0}³ float32", products, 2048),
    "collective": ("collective_matmul on 8 devices, {0}³ float32", collective, 1024),
    "auto": ("What auto chooses: 60 cases", auto_section, 0),
}


def main() -> int:
    """Measures, prints, and returns 0 whatever the figures are."""
    parser = argparse.ArgumentParser(description="Measures the kernel library next to its floors.")
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"sections, of {', '.join(SECTIONS)}")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each case (9)")
    parser.add_argument("--size", type=int, help="rows and columns, instead of each section's own")
    parser.add_argument("--output", type=Path, help="write the report there too, as markdown, and plots beside it")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := sorted(set(names) - set(SECTIONS)):
        parser.error(f"there is no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    # The cache holds no tuning results, since the trials are measured. It holds the verdicts of known-answer tests,
    # which would otherwise run during the first minutes.
    with TemporaryDirectory() as cache:
        with suppress(FileNotFoundError):
            copy(Path(os.environ.get("SHARDCALL_CACHE_DIR") or default_cache_dir()) / Verdicts.FILE_NAME, cache)
        return _measure(arguments, names, cache)


def _measure(arguments: argparse.Namespace, names: Sequence[str], cache: str) -> int:
    report = ["# The kernel library", ""]
    claims: list[Claim] = []
    with sc.local(devices=8, cache_dir=cache) as client:
        info = client.server_info()
        versions = {"JAX": info.versions.jax, "devices": f"{len(info.devices)} {info.platform}"}
        report += [*machine(["numpy", "grpcio"], versions), f"Medians of {arguments.rounds} rounds."]
        for name in names:
            title, section, size = SECTIONS[name]
            size = arguments.size or size
            with Asker(client).layouts() as asker:
                lines, section_claims, figure = section(asker, size, arguments.rounds)
            report += ["", f"## {title.format(size)}", "", *lines]
            if arguments.output:
                report += ["", picture(figure, arguments.output, name)]
            claims += section_claims
    report += ["", "## Claims", "", *claim_table(claims)]
    print("\n".join(report))
    if arguments.output:
        arguments.output.write_text("\n".join(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
