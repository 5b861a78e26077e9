"""Contents of the repository: locks with hashes, no trace of one machine, and the promises of docs/compatibility.md."""

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from rows import rows

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))

MACHINE = {
    "a path of one machine": r"(?<![\w.~-])/(work|root|home|Users)/|/opt/(pypi|wheels)",
    "a package index": r"--(extra-)?index-url|https?://\S*/(simple|npm)\b|//registry\.",
    "a folder beside the checkout": r"\.\./shared",
}
NOTICE = r"(?i)copyright\s+(\(c\)|©|\d{4})|SPDX-\w+:|licensed\s+under|all\s+rights\s+reserved"


def logical_lines(lock: Path) -> Iterator[str]:
    text = lock.read_text().replace("\\\n", " ")
    return (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def pins(lock: Path) -> dict[str, list[Requirement]]:
    entries: dict[str, list[Requirement]] = {}
    for line in logical_lines(lock):
        requirement = Requirement(line.partition(" --hash")[0])
        entries.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return entries


def asked_for(lock: str) -> list[Requirement]:
    """Returns what pyproject.toml asks for in the environment that a lock is for."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, groups = pyproject["project"], pyproject["dependency-groups"]
    extras = project["optional-dependencies"]
    server = [*project["dependencies"], *extras["cli"], *extras["server"]]
    lines = {
        "build": groups["build"],
        "client": project["dependencies"],
        "client-protobuf6": project["dependencies"],
        "dev": [*server, *extras["otel"], *extras["zarr"], *groups["build"], *groups["dev"]],
        "docs": [*server, *groups["build"], *groups["docs"]],
        "protos": groups["protos"],
        "release": [*groups["build"], *groups["release"]],
        "server": server,
        "server-cuda13": [*server, *extras["cuda13"]],
        "uv": groups["uv"],
    }[lock]
    requirements = [Requirement(line) for line in lines if isinstance(line, str)]
    return [requirement for requirement in requirements if requirement.name != "shardcall"]


def text_of(file: Path) -> str:
    return (ROOT / file).read_text(errors="ignore")


@rows("lock", LOCKS)
def test_every_line_of_a_lock_is_an_exact_version_with_its_hashes_and_no_address(lock: Path) -> None:
    pinned = re.compile(r"[\w.-]+==\S+( ; [^#]+?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*")
    assert not [line for line in logical_lines(lock) if not pinned.fullmatch(line)]
    assert "://" not in lock.read_text()


@rows("lock", LOCKS)
def test_a_lock_holds_what_pyproject_asks_for(lock: Path) -> None:
    locked = pins(lock)
    missing = []
    for requirement in asked_for(lock.stem):
        pinned = locked.get(canonicalize_name(requirement.name), [])
        versions = [str(pin.specifier).removeprefix("==") for pin in pinned]
        if not versions or not all(requirement.specifier.contains(version) for version in versions):
            missing.append(str(requirement))
    assert not missing, "run `make lock`"


@rows("folder", ["protos", "examples/node"])
def test_the_lock_of_npm_has_hashes_and_no_address(folder: str) -> None:
    packages = json.loads((ROOT / folder / "package-lock.json").read_text())["packages"]
    installed = {name: package for name, package in packages.items() if name}
    assert installed
    assert not [name for name, package in installed.items() if not package["integrity"].startswith("sha512-")]
    assert not [name for name, package in installed.items() if "resolved" in package]


@pytest.mark.parametrize("what", MACHINE)
def test_no_file_names_what_only_one_machine_has(what: str, files: Sequence[Path]) -> None:
    pattern = re.compile(MACHINE[what])
    # CI's own entry may look beside the checkout for the script that starts Docker.
    allowed = {Path(".ci/run")} if "beside" in what else set()
    entries = {str(file): pattern.search(text_of(file)) for file in files if file not in allowed}
    assert not {name: match.group() for name, match in entries.items() if match}


def test_no_file_is_of_others(files: Sequence[Path]) -> None:
    """Texts of others have their notices, and stand in folders of their own."""
    licenses = [
        file for file in files if re.fullmatch(r"(?i)(licen[sc]e|copying|notice|authors)(\.(md|txt|rst))?", file.name)
    ]
    assert licenses == [Path("LICENSE")]
    assert not [file for file in files if re.search(r"(?i)third_?party|vendor|(^|/)_?extern", str(file))]
    notices = {str(file): re.search(NOTICE, text_of(file)) for file in files if file not in licenses}
    assert not {name: match.group() for name, match in notices.items() if match}


def test_the_oldest_runtimes_that_pyproject_allows_can_load_the_stubs() -> None:
    oldest = {requirement.name: str(requirement.specifier) for requirement in asked_for("client")}
    services = text_of(Path("client/shardcall/v1/kernel_service_pb2_grpc.py"))
    messages = text_of(Path("client/shardcall/v1/kernel_pb2.py"))
    grpc = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", services)
    protobuf = re.search(r"# Protobuf Python Version: (\d+\.\d+)", messages)
    assert grpc
    assert protobuf
    assert f">={grpc[1]}" in oldest["grpcio"].split(",")
    assert f">={protobuf[1]}" in oldest["protobuf"].split(",")


def kept(root: Path) -> list[Path]:
    """Returns the descriptors of the contract of all releases, from the first to the last."""
    return sorted((root / "protos/released").iterdir(), key=lambda file: Version(file.stem))


def stated(root: Path) -> list[str]:
    """Returns the versions of Python that the metadata states, from the oldest on."""
    classifiers = tomllib.loads((root / "pyproject.toml").read_text())["project"]["classifiers"]
    return [name.rpartition(" ")[2] for name in classifiers if ":: Python ::" in name]


def test_descriptors_of_the_last_release_are_kept(root: Path) -> None:
    files = descriptor_pb2.FileDescriptorSet.FromString(kept(root)[-1].read_bytes()).file
    contract = {file.name for file in files if file.package == "shardcall.v1"}
    present = {f"shardcall/v1/{proto.name}" for proto in (root / "protos/shardcall/v1").glob("*.proto")}
    assert contract
    assert contract <= present
    assert not {file.package for file in files} - {"shardcall.v1", "google.protobuf"}


def test_the_page_lists_every_private_module_of_jax_that_the_server_uses(root: Path) -> None:
    sources = [file.read_text() for half in ("client", "server") for file in (root / half).rglob("*.py")]
    used = {name for text in sources for name in re.findall(r"\bjax\._src[\w.]*", text)}
    page = (root / "docs/compatibility.md").read_text()
    assert used
    assert set(re.findall(r"^\| `(jax\._src[\w.]*)`", page, re.MULTILINE)) == used


def test_the_oldest_version_of_python_is_that_of_the_image_and_of_the_locks(root: Path) -> None:
    oldest = stated(root)[0]
    assert tomllib.loads((root / "pyproject.toml").read_text())["project"]["requires-python"] == f">={oldest}"
    images = re.findall(r"^FROM python:(\d+\.\d+)", (root / "Dockerfile").read_text(), re.MULTILINE)
    assert {*images} == {oldest}
    assert f"--python-version {oldest} " in (root / "Makefile").read_text()


def test_the_page_states_the_versions_of_python_of_the_metadata(root: Path) -> None:
    (row,) = re.findall(r"^\| Python \|.*$", (root / "docs/compatibility.md").read_text(), re.MULTILINE)
    assert [*dict.fromkeys(re.findall(r"\b3\.\d+\b", row))] == stated(root)


def test_a_lock_has_one_version_of_a_package_for_every_version_of_python(root: Path) -> None:
    """So that `make test PYTHON=…` has an environment for each."""
    locked = [
        Requirement(line.partition(" \\")[0])
        for line in (root / "requirements/dev.txt").read_text().splitlines()
        if re.match(r"\w", line)
    ]
    for version in stated(root):
        environment = {"python_version": version, "python_full_version": f"{version}.0"}
        installed = [pin.name for pin in locked if pin.marker is None or pin.marker.evaluate(environment)]
        assert "numpy" in installed
        assert sorted(installed) == sorted({*installed}), version


def test_the_page_states_the_versions_of_jax_that_pyproject_allows(root: Path) -> None:
    (jax,) = [
        requirement.removeprefix("jax")
        for requirement in tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"][
            "server"
        ]
        if re.match(r"jax\W", requirement)
    ]
    assert f"`jax{jax}`" in (root / "docs/compatibility.md").read_text()
