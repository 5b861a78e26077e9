"""Names the modules of the product of which the short form runs few lines, in whatever process.

    .venv/bin/python tests/module_coverage.py DATA

DATA is the data file of coverage.py, whose name is the prefix of those of all processes. The exit status is 1 if a
module is below `MIN_PERCENT` and not in `EXPLAINED`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from coverage import Coverage

ROOT = Path(__file__).resolve().parents[1]
MIN_PERCENT = 60
_IN_COMPILERS = "runs in compiler processes, which are killed with their figures; test_functions.py calls its functions"
EXPLAINED: Mapping[str, str] = {
    "server/shardcall_server/kernels/numerics/complex_functions.py": _IN_COMPILERS,
    "server/shardcall_server/kernels/numerics/divisors.py": _IN_COMPILERS,
}
"""By module, relative to the root: why the short form runs few of its lines."""


def coverage_of(data: Path) -> dict[str, tuple[float, str]]:
    """Returns the percentage of lines that were run, and the numbers of others, by module.

    Modules without statements are left out.

    Args:
        data: coverage.py's data file; those of the processes, which have suffixes, are combined into it.
    """
    coverage = Coverage(data_file=str(data), config_file=str(ROOT / "pyproject.toml"))
    coverage.combine()
    modules = {}
    for folder in ("client", "server"):
        for module in (ROOT / folder).rglob("*.py"):
            if not module.stem.endswith(("_pb2", "_pb2_grpc")):
                _, lines, _, missing, numbers = coverage.analysis2(str(module))
                if lines:
                    modules[str(module.relative_to(ROOT))] = 100 * (1 - len(missing) / len(lines)), numbers
    return modules


def main(data: Path) -> int:
    modules = coverage_of(data)
    low = {module: figures for module, figures in sorted(modules.items()) if figures[0] < MIN_PERCENT}
    lines = [f"{len(modules)} modules, {len(low)} of them below {MIN_PERCENT} % of lines in the short form"]
    for module, (percent, numbers) in low.items():
        lines.append(f"{percent:4.0f} % {module}: {EXPLAINED.get(module, f'not explained; without lines {numbers}')}")
    lines += [f"{module} is explained, and is not below {MIN_PERCENT} %" for module in sorted({*EXPLAINED} - {*low})]
    print("\n".join(lines))  # noqa: T201
    return 1 if {*low} - {*EXPLAINED} else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
