"""The peer Arrow Flight: an exchange of one record batch in each direction.

python -m peers.arrow_flight          answers requests on standard input
python -m peers.arrow_flight --serve  runs the server
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from harness.answering import NDArray, TimedHandler, answer, same
from harness.helper import announce, started, wait_for_end
from peers import jax_job


def _batch(x: NDArray) -> Any:
    """Returns the array as a batch of one column, without a copy."""
    column = pa.Array.from_buffers(pa.from_numpy_dtype(x.dtype), x.size, [None, pa.py_buffer(x)])
    return pa.record_batch([column], names=["x"])


def _array(batch: Any) -> NDArray:
    column: NDArray = batch.column(0).to_numpy(zero_copy_only=True)
    return column


class Server(flight.FlightServerBase):  # type: ignore[misc, unused-ignore]  # pyarrow need not be installed here
    """Answers a batch with a batch; the descriptor contains the job and the number of rows."""

    def do_exchange(self, _: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Runs one job."""
        name, rows = descriptor.command.decode().split()
        x = _array(reader.read_chunk().data).reshape(int(rows), -1)
        result = _batch(x if name == "echo" else jax_job.run(name, x))
        writer.begin(result.schema)
        writer.write_batch(result)


def exchange(client: Any, name: str, x: NDArray) -> NDArray:
    """Sends the array and returns the answer, without a copy."""
    batch = _batch(x)
    descriptor = flight.FlightDescriptor.for_command(f"{name} {len(x)}")
    writer, reader = client.do_exchange(descriptor)
    with writer:
        writer.begin(batch.schema)
        writer.write_batch(batch)
        writer.done_writing()
        return _array(reader.read_chunk().data).reshape(x.shape)


def serve() -> None:
    """Serves until it is terminated."""
    jax_job.configure()
    np.asarray(jax_job.run("diff", np.ones((8, 1))))
    server = Server("grpc://127.0.0.1:0")
    announce(f"grpc://127.0.0.1:{server.port}")
    wait_for_end()
    server.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description="Asks a Flight server on commands from standard input.")
    parser.add_argument("--serve", action="store_true")
    if parser.parse_args().serve:
        serve()
        return
    with started("peers.arrow_flight", "--serve") as address:
        client = flight.connect(address)
        handlers = {"echo": TimedHandler(partial(exchange, client, "echo"), same)}
        answer(handlers | {name: TimedHandler(partial(exchange, client, name)) for name in jax_job.NAMES})


if __name__ == "__main__":
    main()
