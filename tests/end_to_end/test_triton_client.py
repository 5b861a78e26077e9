"""The unchanged tritonclient, by the Python of another environment, which TRITON_PYTHON names."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from end_to_end.messages import token_of

import shardcall as sc
from shardcall_core.wire import token_file

VARIABLE = "TRITON_PYTHON"
_CALLS = Path(__file__).parent / "triton_calls.py"


@pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} names no Python with tritonclient[grpc]")
def test_tritonclient_runs_unchanged(serving) -> None:
    weights = np.full((8, 8), 2, np.float32)
    with sc.connect(serving.address) as client:
        types = sc.Array((8, 8), "float32"), sc.Array((), "float32")
        client.publish(lambda x, scale: (weights @ x * scale, x.sum()), "model", *types)
        command = (os.environ[VARIABLE], _CALLS, serving.address, token_of(token_file.user_name()))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.stdout.split() == ["described", "inferred", "through_shared_memory"], done.stderr[-2000:]
