"""Installs the peers of the benchmarks, each into a separate environment.

    python benchmarks/install_peers.py [--peers-dir DIR] [PEER ...]

Peers that cannot be installed are reported and left out: the benchmarks run without it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

from harness.asking import PEERS_DIR, peer_python

# The same JAX as the server's, so that only the transport differs.
_JAX = f"jax=={version('jax')}"
REQUIREMENTS = {
    "arrow_flight": ["pyarrow==26.0.1", _JAX],
    "ray_actor": ["ray==2.60.0", _JAX],
    "triton_server": ["nvidia-pytriton==0.5.7", _JAX],
    "plots": ["matplotlib==3.10.9"],
}
TRITONS_NUMPY = "numpy-for-triton"
"""A folder of Triton's environment; see triton_server.py."""


def install(peers_dir: Path, peer: str) -> bool:
    """Replaces a peer's environment; returns whether all packages could be installed."""
    venv.create(peers_dir / peer, clear=True, with_pip=True)
    pip = [str(peer_python(peers_dir, peer)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    commands = [[*pip, *REQUIREMENTS[peer]]]
    if peer == "triton_server":
        commands.append([*pip, "--target", str(peers_dir / peer / TRITONS_NUMPY), "numpy<2"])
    return all(subprocess.run(command, check=False).returncode == 0 for command in commands)


def main() -> int:
    parser = argparse.ArgumentParser(description="Installs the peers of the benchmarks.")
    parser.add_argument("peers", nargs="*", choices=[[], *REQUIREMENTS], metavar="PEER", help="all, if none is named")
    parser.add_argument("--peers-dir", type=Path, default=PEERS_DIR)
    arguments = parser.parse_args()
    failed = [peer for peer in arguments.peers or REQUIREMENTS if not install(arguments.peers_dir, peer)]
    if failed:
        print(f"not installed: {', '.join(failed)}; pip says why above", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
