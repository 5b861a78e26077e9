"""Builds what a release consists of, checks it and tries it in clean environments (`make release`).

Writes into a folder, `dist/` unless the first argument names another: the wheel, the sdist, and an SBOM for each of the
locks that users install. Writes the descriptors of the contract to `protos/released/`, for later versions to be
compared with. Uploads nothing. docs/release.md describes the steps before and after.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROTOS = ROOT / "protos"
BUF = PROTOS / "node_modules/.bin/buf"
SBOM_LOCKS = ("client", "server", "server-cuda13")
CLIENT_CODE = """
import importlib.util
import shardcall
missing = [name for name in ("jax", "typer") if importlib.util.find_spec(name) is None]
assert missing == ["jax", "typer"], missing
print(shardcall.Mesh(x=8))
"""
SERVER_CODE = """
import numpy as np
import shardcall as sc
x = np.arange(96.0).reshape(12, 8) ** 2
with sc.local(devices=4) as client:
    result = client.diff(x, axis=0, mesh=sc.Mesh(x=4), spec=sc.P("x", None))
    np.testing.assert_array_equal(result.array, np.diff(x, axis=0), strict=True)
"""


def main() -> None:
    """Builds and tries a release; the first fault ends the command with its output."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    remove_files(target)
    say("Building the sdist, and the wheel from it")
    wheel = build(target)
    version = wheel.name.split("-")[1]
    refuse_released(version)
    output(sys.executable, "-m", "twine", "check", "--strict", *target.iterdir())
    say("Trying the client without JAX")
    try_wheel(wheel, "client", "", CLIENT_CODE, version)
    say("Trying the server")
    try_wheel(wheel, "server", "[server]", SERVER_CODE, version)
    say("Writing the SBOMs and the descriptors of the contract")
    for lock in SBOM_LOCKS:
        write_sbom(lock, version, target)
    write_contract(PROTOS / "released" / f"{version}.binpb")
    say("\n".join(["Released into files:", *(f"  {file.name}" for file in sorted(target.iterdir()))]))


def say(text: str) -> None:
    """Prints a step and flushes it, since standard output may be a pipe."""
    print(text, flush=True)  # noqa: T201  # that is what this program is for


def output(*command: str | Path, cwd: Path = ROOT) -> str:
    """Returns the output of a command; if it fails, ends this program with its output."""
    ended = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ended.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with status {ended.returncode}:\n{ended.stdout}")
    return ended.stdout


def remove_files(target: Path) -> None:
    """Removes the files of an earlier release from the folder, or makes the folder."""
    target.mkdir(parents=True, exist_ok=True)
    for pattern in ("*.whl", "*.tar.gz", "*.cdx.json"):
        for file in target.glob(pattern):
            file.unlink()


def build(target: Path) -> Path:
    """Builds the sdist, and the wheel from the sdist alone; returns the wheel."""
    output(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", target)
    (sdist,) = target.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        output(sys.executable, "-m", "tarfile", "--extract", sdist, folder)
        (source,) = Path(folder).iterdir()
        output(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", target, cwd=source)
    (wheel,) = target.glob("*.whl")
    return wheel


def refuse_released(version: str) -> None:
    """Ends the program if the version has a tag elsewhere than at the present commit."""
    tag = f"v{version}"
    if not output("git", "tag", "--list", tag).strip():
        return
    tagged, present = (output("git", "rev-parse", f"{name}^{{commit}}") for name in (tag, "HEAD"))
    if tagged != present:
        sys.exit(
            f"version {version} is released: the tag {tag} is at another commit; raise client/shardcall/_version.py"
        )


def try_wheel(wheel: Path, lock: str, extra: str, code: str, version: str) -> None:
    """Installs a lock and the wheel into a new environment and runs code there.

    Args:
        extra: the extra that the lock is for, in brackets; installing it again must find all that it needs.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        output(sys.executable, "-m", "venv", "--without-pip", environment)
        python = environment / "bin/python"
        pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
        output(*pip, "--require-hashes", "--requirement", f"requirements/{lock}.txt")
        output(*pip, "--no-index", f"{wheel}{extra}")
        output(python, "-I", "-W", "error", "-c", code, cwd=environment)
        printed = output(environment / "bin/shardcall", "--version", cwd=environment)
        if not printed.startswith(f"shardcall {version}+"):
            sys.exit(f"shardcall --version prints {printed!r} in an environment of the wheel of {version}")


def write_sbom(lock: str, version: str, target: Path) -> None:
    """Writes the SBOM of a lock, in the form of CycloneDX, with its hashes and without times."""
    file = target / f"shardcall-{version}-{lock}.cdx.json"
    command = (sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", f"requirements/{lock}.txt")
    output(*command, "--pyproject", "pyproject.toml", "--mc-type", "library", "--output-reproducible", "-o", file)
    bom = json.loads(file.read_text())
    # The tool reads pyproject.toml, which does not have the version.
    bom["metadata"]["component"] |= {"version": version, "purl": f"pkg:pypi/shardcall@{version}"}
    file.write_text(json.dumps(bom, indent=2) + "\n")


def write_contract(file: Path) -> None:
    """Writes the descriptors of the contract as a google.protobuf.FileDescriptorSet with its imports."""
    file.parent.mkdir(exist_ok=True)
    what = ("--path", "shardcall/v1", "--as-file-descriptor-set", "--exclude-source-info")
    output(BUF, "build", *what, "--output", file, cwd=PROTOS)


if __name__ == "__main__":
    main()
