"""The peer Triton, by nvidia-pytriton: system shared memory that client and server have registered.

    python -m peers.triton_server

The argument is copied into one region, the result is read in place in another.
"""

from __future__ import annotations

import os
import socket
import sys
import sysconfig
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig
from tritonclient.utils import np_to_triton_dtype, shared_memory

from harness.answering import NDArray, TimedHandler, answer, same
from peers import jax_job

_TYPES = (np.float32, np.float64)


def infer(name: str, requests: Sequence[Any]) -> list[dict[str, NDArray]]:
    """Runs one job, in Triton's process for Python."""
    return [{"y": r.data["x"] if name == "echo" else jax_job.run(name, r.data["x"])} for r in requests]


def bind(triton: Any, name: str, element: type[np.generic]) -> None:
    """Makes a model of a job for one element type, since models of Triton are typed."""
    x, y = (Tensor(name=tensor, dtype=element, shape=(-1, -1)) for tensor in "xy")
    model = f"{name}-{np.dtype(element).name}"
    triton.bind(model, partial(infer, name), [x], [y], config=ModelConfig(batching=False))


class Regions:
    """A client with a region for the argument and one for the result, which are made again for every size."""

    def __init__(self, address: str) -> None:
        self._client = tritonclient.grpc.InferenceServerClient(address)
        self._sized = lru_cache(maxsize=1)(self._make)
        self._regions: list[Any] = []

    def _make(self, size: int) -> tuple[Any, Any]:
        self.close()
        for name in ("x", "y"):
            key = f"/shardcall-benchmark-{os.getpid()}-{name}"
            region = shared_memory.create_shared_memory_region(name, key, size)
            self._client.register_system_shared_memory(name, key, size)
            self._regions.append(region)
        return self._regions[0], self._regions[1]

    def call(self, name: str, x: NDArray) -> NDArray:
        """Copies the array in, runs the job and reads the result in place."""
        argument, result = self._sized(x.nbytes)
        shared_memory.set_shared_memory_region(argument, [x])
        tensor = tritonclient.grpc.InferInput("x", x.shape, np_to_triton_dtype(x.dtype))
        tensor.set_shared_memory("x", x.nbytes)
        requested_output = tritonclient.grpc.InferRequestedOutput("y")
        requested_output.set_shared_memory("y", x.nbytes)
        self._client.infer(f"{name}-{x.dtype.name}", [tensor], outputs=[requested_output])
        answer_view: NDArray = shared_memory.get_contents_as_numpy(result, x.dtype, x.shape)
        return answer_view

    def close(self) -> None:
        """Frees the regions."""
        self._client.unregister_system_shared_memory()
        for region in self._regions:
            shared_memory.destroy_shared_memory_region(region)
        self._regions.clear()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    # Triton starts an interpreter that is linked to some libpython3: it must find this one's.
    libraries = [sysconfig.get_config_var("LIBDIR"), os.environ.get("LD_LIBRARY_PATH", "")]
    os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
    # That interpreter's part of Triton takes arrays of NumPy 2 for empty, and JAX needs NumPy 2. It looks for modules
    # in its working directory first: there it finds an older NumPy, while this process has loaded its own.
    os.chdir(Path(sys.prefix) / "numpy-for-triton")
    jax_job.configure()
    grpc_port = _free_port()
    here = {f"{name}_address": "127.0.0.1" for name in ("http", "grpc", "metrics")}
    config = TritonConfig(grpc_port=grpc_port, http_port=_free_port(), metrics_port=_free_port(), **here)
    names = ("echo", *jax_job.NAMES)
    with Triton(config=config) as triton:
        for name in names:
            for element in _TYPES:
                bind(triton, name, element)
        triton.run()
        regions = Regions(f"127.0.0.1:{grpc_port}")
        handlers = {"echo": TimedHandler(partial(regions.call, "echo"), same)}
        answer(handlers | {name: TimedHandler(partial(regions.call, name)) for name in jax_job.NAMES})
        regions.close()


if __name__ == "__main__":
    main()
