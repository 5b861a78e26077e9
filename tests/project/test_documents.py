"""The names and defaults of settings that the documentation states."""

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import typer
from project.blocks import PAGES
from rows import rows

from shardcall.cli.app import make_app
from shardcall_core.wire import forks
from shardcall_server.frontend.access.floods import _BURST_BYTES, _BYTES_PER_S
from shardcall_server.frontend.dispatch import kernel_runner
from shardcall_server.frontend.dispatch.mesh_queue import _MAX_SLOW_PER_OWNER
from shardcall_server.frontend.memory.resident_array_table import HANDLE_BYTES
from shardcall_server.frontend.memory.segment_broker import TICKET_BYTES
from shardcall_server.frontend.programs.compilation_queue import MAX_COMPILED, MAX_PER_CONNECTION, MAX_PER_OWNER
from shardcall_server.frontend.rpc.admission import RESERVED_SLOTS
from shardcall_server.frontend.services.stream_memory import _UNCOUNTED_BYTES
from shardcall_server.kernels.graphs.plan import MAX_VALUE_BYTES
from shardcall_server.settings import ENVIRONMENT_PREFIX, Settings

ROOT = Path(__file__).resolve().parents[2]

OF_OTHER_PROGRAMS = {
    *("--build", "--build-arg", "--detach", "--rm", "--volumes"),  # docker
    *("--rounds", "--real-time"),  # the benchmarks
    "--strict",  # twine
    "--profile",  # docker compose
    *("--system", "--no-create-home", "--home-dir", "--shell", "--now"),  # useradd, systemctl
    "--from-file",  # kubectl
    *("--signal", "--batch", "--nodes", "--gpus-per-task"),  # Slurm
    *("--xla", "--logdir"),  # XLA and TensorBoard
}
OF_OTHER_VARIABLES = {
    *("SHARDCALL_CA_CERTIFICATE", "SHARDCALL_TRACEBACKS"),  # the client
    "SHARDCALL_ADDRESS",  # the client
    "SHARDCALL_DEBUG_LOCKS",  # the tests
    "SHARDCALL_SERVICE_HOST",  # Kubernetes
}


def options(command: object) -> Iterator[str]:
    for parameter in getattr(command, "params", ()):
        yield from (*parameter.opts, *parameter.secondary_opts)
    for inner in getattr(command, "commands", {}).values():
        yield from options(inner)


@rows("page", PAGES)
def test_every_option_and_variable_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    options_and_flags = {*options(typer.main.get_command(make_app())), *OF_OTHER_PROGRAMS, "--help"}
    variables = {ENVIRONMENT_PREFIX + name.upper() for name in Settings.model_fields} | OF_OTHER_VARIABLES
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text)) <= options_and_flags
    assert set(re.findall(rf"{ENVIRONMENT_PREFIX}[A-Z_]+", text)) <= variables


@rows("page", PAGES)
def test_the_default_in_parentheses_after_an_option_is_the_settings(page: Path) -> None:
    stated = re.findall(r"`--([a-z0-9-]+)` \(([\d.]+)(?: s)?\)", page.read_text())
    defaults = {name: Settings.model_fields[name.replace("-", "_")].default for name, _ in stated}
    assert [(name, float(value)) for name, value in stated] == [(name, defaults[name]) for name, _ in stated]


UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def table_rows(page: Path) -> list[list[str]]:
    """Returns the cells of the rows of all tables of a page, without those of headers."""
    tables = re.findall(r"^\|[-|]+\|\n((?:\|.*\n)+)", page.read_text(), re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split(" |")] for table in tables for row in table.splitlines()]


def test_the_defaults_in_the_tables_of_the_limits_are_the_settings() -> None:
    compared = {}
    for _, setting, default, *_ in table_rows(ROOT / "docs/limits.md"):
        name, value = re.match(r"`--([a-z-]+)`", setting), re.match(r"([\d,.]+)(?: (\wiB))?", default)
        if name and value:
            compared[name[1].replace("-", "_")] = float(value[1].replace(",", "")) * UNITS[value[2] or ""]
    assert len(compared) >= 10
    assert compared == {name: Settings.model_fields[name].default for name in compared}


@rows(
    ("page", "statement", "values"),
    [
        ("docs/limits.md", r"need not store \| \| (\d+) TiB", [MAX_VALUE_BYTES >> 40]),
        ("docs/limits.md", r"for one connection \| \| (\d), (\d)", [MAX_PER_OWNER, MAX_PER_CONNECTION]),
        ("docs/limits.md", r"compiles at most (\d) programs", [MAX_COMPILED]),
        ("docs/limits.md", r"longer than (\d+) ms, .*\| \| (\d)", [kernel_runner._SLOW_S * 1e3, _MAX_SLOW_PER_OWNER]),
        ("docs/limits.md", r"if they are more than (\d+) KiB", [_UNCOUNTED_BYTES >> 10]),
        ("docs/limits.md", r"(\d+) slots of each kind", [RESERVED_SLOTS]),
        ("docs/limits.md", r"up to (\d+) s\. An array", [forks.MAX_FINISH_S]),
        ("docs/limits.md", r"waits up to ([\d.]+) s for the calls", [forks._MAX_PAUSE_S]),
        ("SECURITY.md", r"(\d+) KiB at once, or more than (\d+) KiB/s", [_BURST_BYTES >> 10, _BYTES_PER_S >> 10]),
        ("SECURITY.md", r"(\d+) slots beyond the limit", [RESERVED_SLOTS]),
        ("SECURITY.md", r"ticket of (\d+) random bytes", [TICKET_BYTES]),
        ("SECURITY.md", r"Handles are (\d+) random bytes", [HANDLE_BYTES]),
    ],
)
def test_the_numbers_of_the_pages_that_no_setting_has_are_in_the_code(
    page: str, statement: str, values: list[float]
) -> None:
    stated = re.search(statement, (ROOT / page).read_text())
    assert stated
    assert [float(value) for value in stated.groups()] == values


def test_the_commands_that_show_the_token_of_all_scopes_are_those_of_the_page() -> None:
    folders = [ROOT / "client/shardcall/cli", ROOT / "server/shardcall_server/commands"]
    sources = {file.stem: file.read_text() for folder in folders for file in folder.glob("*.py")}
    showing = {name for name, text in sources.items() if re.search(r"admin=True|with Snapshots\(", text)}
    stated = re.search(r"all scopes; `shardcall (.*) use it", (ROOT / "SECURITY.md").read_text())
    assert stated
    assert set(re.findall(r"\w+", stated[1].replace("and", ""))) == showing - {"snapshots"}


def test_the_locks_and_threads_of_the_page_are_in_the_code() -> None:
    page = (ROOT / "docs/threads.md").read_text()
    files = [file for folder in ("client", "server") for file in (ROOT / folder).rglob("*.py")]
    sources = [text for file in files if "thread" in (text := file.read_text()) or "Lock" in text or "lock" in text]
    attributes = re.findall(r"`(\w+)\.(\w*lock|_opening)`", page)
    assert [
        f"{owner}.{name}"
        for owner, name in attributes
        if not any(re.search(rf"^class {owner}\b.*\bself\.{name}\b", text, re.M | re.S) for text in sources)
    ] == []
    threads = re.findall(r"`([a-z- ]+?)(?:_…|-…|-1)?`", "".join(re.findall(r"^\| (`[^|]*)\|", page, re.M)))
    named = "".join(sources)
    assert [name for name in threads if f'"{name}' not in named] == []


SOURCES = [
    ROOT,
    *(ROOT / name for name in ("client", "client/shardcall", "server", "server/shardcall_server", "tests", "examples")),
]
SOURCES += [ROOT / "server/shardcall_server/frontend"]
WRITTEN = {"docs/accuracy-gpu.md", "dist/"}
"""By make targets."""


@cache
def names_of_files() -> set[str]:
    """Returns the names of the project's files, without those of environments and caches."""
    names: set[str] = set()
    for _, folders, files in os.walk(ROOT):
        folders[:] = [folder for folder in folders if folder[0] != "." and folder != "node_modules"]
        names.update(files)
    return names


@rows("page", [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"])
def test_every_file_of_the_project_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`([\w.-]+(?:/[\w.-]+)*(?:/|\.(?:py|proto|md|yml)))`", page.read_text())
    gone = [name for name in named if not any((source / name).exists() for source in SOURCES)]
    assert [name for name in gone if name not in WRITTEN and ("/" in name or name not in names_of_files())] == []


def test_the_source_tree_names_every_package_and_nothing_else() -> None:
    tree = (ROOT / "ARCHITECTURE.md").read_text().partition("## Source tree")[2].split("```")[1]
    named: set[Path] = set()
    path: list[str] = []
    for indent, folder in re.findall(r"^( *)(\S+)/(?= |$)", tree, re.MULTILINE):
        path[len(indent) // 2 :] = [folder]
        named.add(ROOT.joinpath(*path))
    packages = {file.parent for source in ("client", "server") for file in (ROOT / source).rglob("__init__.py")}
    assert [folder for folder in named if not folder.is_dir()] == []
    assert packages <= named | {parent for folder in named for parent in folder.parents}
