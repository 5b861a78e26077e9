"""The promises of docs/compatibility.md: releases are kept; the page lists the private parts of JAX in use."""

import re
import tomllib
from pathlib import Path

from google.protobuf import descriptor_pb2
from packaging.requirements import Requirement
from packaging.version import Version


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
