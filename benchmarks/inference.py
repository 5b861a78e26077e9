"""Cost of a request of the Open Inference Protocol, beside the same call as Execute.

    python benchmarks/inference.py [--rounds N] [--calls N]

`diff` of 8 x 8 float32 along axis 0, one caller, in interleaved rounds. The floor is ServerLive, a request that
computes nothing. *Server* is the time that the server says each call took, *front end* the time of the processor that
its process takes for a call, and *caller* the round trip; figures are medians. The claim at the end gates nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import numpy as np

from harness.asking import server
from harness.processes import process_seconds
from harness.report import claim_table, ratio_claim, table
from shardcall.v1 import array_pb2, kernel_pb2, kernel_service_pb2
from shardcall_core.wire import token_file
from shardcall_inference.v1 import inference_service_pb2

X = np.arange(64, dtype=np.float32).reshape(8, 8)
Call = Callable[[], float]
Metadata = tuple[tuple[str, str | bytes], ...]


def execute(channel: grpc.Channel, metadata: Metadata) -> Call:
    """Returns Execute, which returns the server's seconds."""
    method = channel.unary_unary(
        "/shardcall.v1.KernelService/Execute",
        kernel_service_pb2.ExecuteRequest.SerializeToString,
        kernel_service_pb2.ExecuteResponse.FromString,
    )
    operand = kernel_service_pb2.Operand(
        type=array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_FLOAT32, shape=X.shape),
        inline=kernel_service_pb2.InlineTensor(data=X.tobytes()),
    )
    call = kernel_pb2.KernelCall(kernel="diff", parameters={"axis": kernel_pb2.ParameterValue(int_value=0)})
    request = kernel_service_pb2.ExecuteRequest(call=call, operands=[operand])
    return lambda: method(request, metadata=metadata).timing.total_seconds


def infer(channel: grpc.Channel, metadata: Metadata) -> Call:
    """Returns ModelInfer, which returns the server's seconds."""
    method = channel.unary_unary(
        "/inference.GRPCInferenceService/ModelInfer",
        inference_service_pb2.ModelInferRequest.SerializeToString,
        inference_service_pb2.ModelInferResponse.FromString,
    )
    request = inference_service_pb2.ModelInferRequest(
        model_name="diff",
        inputs=[inference_service_pb2.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=X.shape)],
        raw_input_contents=[X.tobytes()],
        parameters={"axis": inference_service_pb2.InferParameter(int64_param=0)},
    )
    return lambda: method(request, metadata=metadata).parameters["shardcall_seconds"].double_param


def live(channel: grpc.Channel, metadata: Metadata) -> Call:
    """Returns ServerLive."""
    method = channel.unary_unary(
        "/inference.GRPCInferenceService/ServerLive",
        inference_service_pb2.ServerLiveRequest.SerializeToString,
        inference_service_pb2.ServerLiveResponse.FromString,
    )
    request = inference_service_pb2.ServerLiveRequest()

    def ask() -> float:
        method(request, metadata=metadata)
        return 0.0

    return ask


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--calls", type=int, default=100, help="calls of each row in a round")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ[token_file.FILE_VARIABLE] = f"{folder}/token"
        with server(Path(folder), tuned=True) as running, grpc.insecure_channel(running.address) as channel:
            token = token_file.user_entry(token_file.read(f"{folder}/token")).token
            metadata: Metadata = (("authorization", f"Bearer {token}"),)
            calls = {"floor: ServerLive": live, "peer: Execute": execute, "ModelInfer": infer}
            rows = {name: make(channel, metadata) for name, make in calls.items()}
            samples: dict[str, list[tuple[float, float, float]]] = {name: [] for name in rows}
            for number in range(arguments.rounds + 1):
                for name, ask in rows.items():
                    measured = _measured(ask, arguments.calls, running.pid)
                    if number:  # the first compiles
                        samples[name].append(measured)
    medians = {
        name: [statistics.median(column) for column in zip(*rounds, strict=True)] for name, rounds in samples.items()
    }
    peer = medians["peer: Execute"]
    shown = [["row", "server µs", "front end µs", "caller µs", "server ÷ Execute", "front end ÷ Execute"]]
    for name, (seconds, processor, caller) in medians.items():
        microseconds = [f"{1e6 * value:.0f}" for value in (seconds, processor, caller)]
        shown.append([name, *microseconds, f"{seconds / peer[0]:.2f}", f"{processor / peer[1]:.2f}"])
    ratio = medians["ModelInfer"][0] / peer[0]
    claims = [ratio_claim("The server's own time of 8 x 8 by ModelInfer ÷ Execute", 1.1, ratio)]
    sys.stdout.write("\n".join([*table(shown), "", *claim_table(claims), ""]))


def _measured(ask: Call, calls: int, pid: int) -> tuple[float, float, float]:
    """Returns medians of the server's time and the round trip, and the processor's time of the front end for a call."""
    seconds, caller, before = [], [], process_seconds(pid)
    for _ in range(calls):
        began = time.perf_counter()
        seconds.append(ask())
        caller.append(time.perf_counter() - began)
    return statistics.median(seconds), (process_seconds(pid) - before) / calls, statistics.median(caller)


if __name__ == "__main__":
    main()
