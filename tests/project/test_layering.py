"""Imports have one direction, the client stays thin, and the front end never loads JAX (ARCHITECTURE.md)."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from rows import rows

import shardcall

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    "shardcall": "client",
    "shardcall_core": "client",
    "shardcall_inference": "server",
    "shardcall_server": "server",
    "shardcall_worker": "server",
}
JAX = {"jax", "jaxlib"}
CLIENT_MAY_IMPORT = {"numpy", "ml_dtypes", "grpc", "grpc_status", "google", "shardcall", "shardcall_core"}
CLIENT_MAY_IMPORT_LATE = {"rich"}  # optional: within functions only
IMPORT_ALL = "import shardcall\nfor name in shardcall.__all__: getattr(shardcall, name)"
UNSAFE = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
LINUX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "spwd", "syslog", "termios", "tty"}


def modules() -> dict[str, Path]:
    """Returns the file of every module of the four packages."""
    entries = {}
    for package, source in SOURCES.items():
        for file in (ROOT / source / package).rglob("*.py"):
            parts = file.relative_to(ROOT / source).with_suffix("").parts
            entries[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return entries


MODULES = modules()


def package_of(module: str) -> str:
    return module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def statements(tree: ast.AST, *, late: bool, typed: bool) -> Iterator[ast.AST]:
    """Yields the nodes that run on import; with `late` those in functions too, with `typed` those for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if not typed and is_type_checking(node):
            continue
        if not late and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield node
        yield from statements(node, late=late, typed=typed)


@cache
def imports(module: str, *, late: bool = True, typed: bool = False) -> frozenset[str]:
    """Returns what a module imports: the project's modules by their full names, others as written."""
    names = set()
    for node in statements(ast.parse(MODULES[module].read_text()), late=late, typed=typed):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parent = package_of(module).rsplit(".", node.level - 1)[0] if node.level else ""
            origin = ".".join(part for part in (parent, node.module) if part)
            qualified = {f"{origin}.{alias.name}" for alias in node.names}
            names |= (qualified & set(MODULES)) | {origin}
    return frozenset(names)


def reached(starts: list[str], *, late: bool = True) -> dict[str, str]:
    """Returns every module that the imports of `starts` lead to, with the chain that leads there."""
    chains = {start: start for start in starts}
    waiting = list(starts)
    while waiting:
        module = waiting.pop()
        if module not in MODULES:
            continue
        parents = {module[:end] for end in range(len(module)) if module[end] == "."}
        for name in sorted((imports(module, late=late) | parents) - set(chains)):
            chains[name] = f"{chains[module]} -> {name}"
            waiting.append(name)
    return chains


def below(package: str) -> list[str]:
    return [module for module in MODULES if module == package or module.startswith(f"{package}.")]


def top(name: str) -> str:
    return name.partition(".")[0]


def test_the_client_imports_only_numpy_grpc_and_protobuf() -> None:
    modules = [*below("shardcall"), *below("shardcall_core")]
    thin = [module for module in modules if not module.startswith("shardcall.cli")]
    allowed = CLIENT_MAY_IMPORT | set(SOURCES) | sys.stdlib_module_names
    for late, names in ((False, allowed), (True, allowed | CLIENT_MAY_IMPORT_LATE)):
        entries = {(module, name) for module in thin for name in imports(module, late=late)}
        assert not {(module, name) for module, name in entries if top(name) not in names}


@rows("start", sorted({"shardcall.cli", *shardcall._HOMES.values()}))
def test_neither_the_client_nor_its_command_line_reaches_the_server_or_jax_on_import(start: str) -> None:
    chains = reached([start], late=False)
    assert not [chain for name, chain in chains.items() if top(name) in {*JAX, "shardcall_server"}]


@rows(("package", "unwanted"), [("frontend", JAX), ("agent", JAX), ("kernels", {"grpc", "grpc_status", "google"})])
def test_packages_of_the_server_reach_no_library_of_another_process(package: str, unwanted: set[str]) -> None:
    chains = reached(below(f"shardcall_server.{package}"))
    assert not [chain for name, chain in chains.items() if top(name) in unwanted]


@rows(
    ("code", "unwanted"),
    [
        (IMPORT_ALL, {*JAX, "shardcall_server", "shardcall_worker", "typer", "rich"}),
        # A worker starts in the time that JAX needs: what else it imports, the next calls wait for after its end.
        ("import shardcall_server.mesh.worker", {"grpc", "pydantic", "typer"}),
        (f"import {', '.join(below('shardcall_server.frontend'))}", JAX),
        ("import shardcall_server.frontend.serving", {"starlette", "uvicorn", "anyio"}),
    ],
)
def test_processes_load_only_what_they_need(run_python: Callable[[str], str], code: str, unwanted: set[str]) -> None:
    loaded = run_python(f"{code}\nimport sys; print(*sys.modules)").split()
    assert {"shardcall", "shardcall_core"} & set(loaded)
    assert not {top(name) for name in loaded} & unwanted


def test_client_and_server_share_only_the_core_and_the_contract() -> None:
    """Neither imports a private module of the other; the core imports neither."""
    allowed = {"shardcall": ("shardcall", "shardcall_core"), "shardcall_core": ("shardcall_core", "shardcall.v1")}
    servers = ("shardcall_server", "shardcall_worker", "shardcall_inference")
    allowed["shardcall_server"] = (*servers, *allowed["shardcall_core"])
    for package, names in allowed.items():
        entries = {(module, name) for module in below(package) for name in imports(module, typed=True)}
        ours = {(module, name) for module, name in entries if top(name) in SOURCES}
        ours -= {(module, name) for module, name in ours if f"{name}.".startswith(tuple(f"{n}." for n in names))}
        # The server's commands have the options and the output of the others.
        assert not {entry for entry in ours if not entry[0].startswith("shardcall_server.commands.")}
        assert {name for _, name in ours if not name.startswith("shardcall.cli.")} == set()


def test_no_client_module_imports_anything_linux_only_at_top_level() -> None:
    modules = [*below("shardcall"), *below("shardcall_core")]
    early = {(module, name) for module in modules for name in imports(module, late=False)}
    assert not {(module, name) for module, name in early if top(name) in LINUX_ONLY}


def test_the_client_can_be_imported_where_linux_calls_are_missing(run_python: Callable[[str], str]) -> None:
    run_python(
        "import asyncio, concurrent.futures, multiprocessing, subprocess, tempfile\n"
        "import grpc, grpc_status.rpc_status, ml_dtypes, numpy\n"
        "import mmap, os, socket, sys\n"
        f"sys.modules.update(dict.fromkeys({sorted(LINUX_ONLY - {'posix'})}))\n"
        "missing = {os: ['memfd_create', 'eventfd', 'sched_getaffinity', 'fork', 'getuid'],\n"
        "           socket: ['AF_UNIX', 'SCM_RIGHTS', 'MSG_CMSG_CLOEXEC', 'recv_fds', 'send_fds'],\n"
        "           mmap: ['MAP_SHARED', 'MAP_POPULATE', 'PROT_READ', 'PROT_WRITE']}\n"
        "for module, names in missing.items():\n"
        "    for name in names:\n"
        "        vars(module).pop(name, None)\n"
        f"{IMPORT_ALL}\n"
    )


def test_importing_the_package_alone_loads_its_version_and_nothing_else(run_python: Callable[[str], str]) -> None:
    """Neither for the command nor for a worker, which uses the protocol's modules only."""
    loaded = run_python("import sys, shardcall; print([name for name in sys.modules if 'shardcall.' in name])")
    assert loaded.strip() == "['shardcall._version']"


def test_one_module_decides_which_files_are_private() -> None:
    rules = re.compile(r"\.st_uid\b|\bS_IMODE\b|\b0o0(22|77)\b|\bmkdtemp\b|\bmkstemp\b")
    deciding = {module for module, file in MODULES.items() if rules.search(file.read_text())}
    assert deciding == {"shardcall_core.wire.private_files"}


def test_few_private_files_may_be_in_sticky_folders() -> None:
    """As SECURITY.md lists them: TLS files, the socket's folder, the list of calls, the parent of a private folder."""
    allowing = {module for module, file in MODULES.items() if "allow_sticky=True" in file.read_text()}
    assert allowing == {
        "shardcall_core.wire.private_files",
        "shardcall_server.frontend.access.certificates",
        "shardcall_server.frontend.access.ports",
        "shardcall_server.frontend.programs.warm_up",
    }


def test_nothing_imports_a_format_that_runs_code_when_it_is_read() -> None:
    assert not {(module, name) for module in MODULES for name in imports(module) if top(name) in UNSAFE}
    assert not [module for module, file in MODULES.items() if "allow_pickle=" in file.read_text()]


@rows(
    ("lower", "upper"),
    [
        ("shardcall_server.kernels", ("compilation", "mesh", "frontend", "agent")),
        ("shardcall_server.compilation", ("known_answers", "mesh", "frontend", "agent")),
        ("shardcall_server.known_answers", ("mesh", "frontend", "agent")),
        ("shardcall_server.mesh", ("frontend", "agent")),
        ("shardcall_server.frontend", ("agent",)),
        ("shardcall._src", ("client", "connection", "compiled", "local_server", "methods", "namespace", "aio", "cli")),
        ("shardcall.methods", ("client", "connection", "compiled", "local_server", "namespace", "aio", "cli")),
        ("shardcall.namespace", ("client", "connection", "compiled", "local_server", "aio", "cli")),
        ("shardcall.aio", ("cli",)),
    ],
)
def test_imports_have_one_direction(lower: str, upper: tuple[str, ...]) -> None:
    chains = reached(below(lower))
    forbidden = tuple(f"{top(lower)}.{package}." for package in upper)
    assert not [chain for name, chain in chains.items() if f"{name}.".startswith(forbidden)]


FOLDERS = {
    "shardcall_core": """
        wire; functions: graphs layouts; graphs; markup; types: functions graphs markup; access: types wire; layouts;
        placements: types
    """,
    "shardcall._src": """
        display; rpc: display; device_arrays: display rpc; memory: rpc; transfer: device_arrays display memory rpc;
        calls: device_arrays display rpc transfer; programs: calls device_arrays display rpc transfer;
        traced: calls device_arrays programs rpc; services: calls device_arrays programs rpc transfer; local
    """,
    "shardcall_server.kernels": """
        core; numerics: core; elementwise: core numerics; stencils: core numerics;
        array_functions: core numerics stencils; products: core; graphs: array_functions core elementwise stencils
    """,
    "shardcall_server.frontend": """
        files; access: files; rpc: access; memory: files rpc; workers: memory rpc; programs: memory rpc workers;
        autotune: programs rpc workers; observability: access autotune programs rpc;
        hosts: access files memory observability rpc workers; dispatch: files memory programs rpc workers;
        inference: dispatch memory rpc; services: access dispatch files inference memory observability rpc workers;
        web: access memory observability programs rpc
    """,
}
"""The folders of a package, each with those of the package that it imports."""


@rows("package", FOLDERS)
def test_folders_import_those_below_them(package: str) -> None:
    depth = package.count(".") + 1

    def folder_of(name: str) -> str:
        part = name.split(".")[depth] if name.startswith(f"{package}.") else ""
        return part if f"{package}.{part}" in MODULES and MODULES[f"{package}.{part}"].name == "__init__.py" else ""

    entries = {folder_of(module): set() for module in MODULES}
    for module in MODULES:
        entries[folder_of(module)].update(map(folder_of, imports(module, typed=True)))
    entries.pop("")
    stated = (row.partition(":") for row in FOLDERS[package].split(";"))
    assert {folder: names - {folder, ""} for folder, names in entries.items()} == {
        folder.strip(): set(names.split()) for folder, _, names in stated
    }


@rows("part", [str, package_of])
def test_no_files_and_no_folders_import_one_another_in_a_circle(part: Callable[[str], str]) -> None:
    graph: dict[str, set[str]] = {part(module): set() for module in MODULES}
    for module in set(MODULES) - {"shardcall.__main__", "shardcall.cli.__main__"}:  # commands
        graph[part(module)] |= {part(name) for name in imports(module, typed=True) if name in MODULES} - {part(module)}
    TopologicalSorter(graph).prepare()  # raises CycleError
