"""Names the modules of the product of which the short form runs few lines, in whatever process.

    .venv/bin/python tests/module_coverage.py DATA

DATA is the data file of coverage.py, whose name is the prefix of those of all processes. The exit status is 1 if a
module is below `MIN_PERCENT` and not in `EXPLAINED`, or is there and not below it.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from coverage import Coverage

ROOT = Path(__file__).resolve().parents[1]
MIN_PERCENT = 60
EXPLAINED: Mapping[str, str] = {}
"""By module, relative to the root: why the short form runs few of its lines."""


def percentages(data: Path) -> dict[str, float]:
    """Returns the percentage of lines that were run, by module; those without statements are left out.

    Args:
        data: coverage.py's data file; those of the processes, which have suffixes, are combined into it.
    """
    coverage = Coverage(data_file=str(data), config_file=str(ROOT / "pyproject.toml"))
    coverage.combine()
    percents = {}
    for folder in ("client", "server"):
        for module in (ROOT / folder).rglob("*.py"):
            if not module.stem.endswith(("_pb2", "_pb2_grpc")):
                _, lines, _, missing, _ = coverage.analysis2(str(module))
                if lines:
                    percents[str(module.relative_to(ROOT))] = 100 * (1 - len(missing) / len(lines))
    return percents


def main(data: Path) -> int:
    percents = percentages(data)
    low = {module: percent for module, percent in sorted(percents.items()) if percent < MIN_PERCENT}
    lines = [f"{len(percents)} modules, {len(low)} of them below {MIN_PERCENT} % of lines in the short form"]
    lines += [f"{percent:4.0f} % {module}: {EXPLAINED.get(module, 'not explained')}" for module, percent in low.items()]
    lines += [f"{module} is explained, and is not below {MIN_PERCENT} %" for module in sorted({*EXPLAINED} - {*low})]
    print("\n".join(lines))  # noqa: T201
    return 1 if {*low} != {*EXPLAINED} else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
