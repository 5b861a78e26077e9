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
from shardcall_server.settings import ENVIRONMENT_PREFIX, Settings

ROOT = Path(__file__).resolve().parents[2]

OF_OTHER_PROGRAMS = {
    *("--build", "--build-arg", "--detach", "--rm", "--volumes"),  # docker
    *("--rounds", "--real-time"),  # the benchmarks
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
WRITTEN = {"docs/accuracy-gpu.md"}
"""By make targets, where their hardware is."""


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
