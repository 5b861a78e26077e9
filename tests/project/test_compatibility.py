"""The promises of docs/compatibility.md: releases are kept; the page lists the private parts of JAX in use."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from google.protobuf import descriptor_pb2
from packaging.version import Version


def kept(root: Path) -> list[Path]:
    """Returns the descriptors of the contract of all releases, from the first to the last."""
    return sorted((root / "protos/released").iterdir(), key=lambda file: Version(file.stem))


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


def test_the_versions_of_python_that_the_metadata_states_are_those_of_the_tests_and_the_image(root: Path) -> None:
    pyproject = tomllib.loads((root / "pyproject.toml").read_text())
    stated = [name.rpartition(" ")[2] for name in pyproject["project"]["classifiers"] if ":: Python ::" in name]
    images = re.findall(r"^FROM python:(\d+\.\d+)", (root / "Dockerfile").read_text(), re.MULTILINE)
    assert stated == sorted(set(images))
    assert f"Python {stated[0]}" in (root / "docs/compatibility.md").read_text()


def test_the_page_states_the_versions_of_jax_that_pyproject_allows(root: Path) -> None:
    (jax,) = [
        requirement.removeprefix("jax")
        for requirement in tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"][
            "server"
        ]
        if re.match(r"jax\W", requirement)
    ]
    assert f"`jax{jax}`" in (root / "docs/compatibility.md").read_text()
