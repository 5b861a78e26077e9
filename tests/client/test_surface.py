"""What `import shardcall` gives, and what it does not bring along."""

import inspect
import subprocess
import sys

import pytest

import shardcall
from shardcall.v1 import array_service_pb2, kernel_service_pb2, segment_service_pb2, server_info_service_pb2

METHODS = {
    "Execute": "call",
    "ExecuteStream": "call",
    "Plan": "plan",
    "Compile": "compile",
    "ListKernels": "kernels",
    "DescribeKernel": "kernel",
    "GetServerInfo": "server_info",
    "GetUsage": "usage",
    "PutArray": "put",
    "GetArray": "get",
    "DescribeArray": "describe",
    "ListArrays": "list",
    "DeleteArrays": "delete",
    "RenewLease": "put",  # and whatever makes arrays that stay: the client renews their lease itself
    "OpenSegment": "empty",
}


def test_every_rpc_of_the_contract_has_a_method():
    modules = (array_service_pb2, kernel_service_pb2, segment_service_pb2, server_info_service_pb2)
    services = [service for module in modules for service in module.DESCRIPTOR.services_by_name.values()]
    assert {method.name for service in services for method in service.methods} == set(METHODS)
    for name in METHODS.values():
        assert callable(getattr(shardcall.Client, name))


def test_all_names_exist_and_are_documented():
    for name in shardcall.__all__:
        item = getattr(shardcall, name)
        assert not (inspect.isclass(item) or inspect.isfunction(item)) or inspect.getdoc(item), name


def test_methods_of_kernels_share_their_options():
    shared = {"mesh", "strategy", "keep", "timeout", "out_spec"}
    for name in ("diff", "matmul", "collective_matmul"):
        assert shared <= set(inspect.signature(getattr(shardcall.Client, name)).parameters)


@pytest.mark.parametrize("module", ["jax", "typer", "rich", "pydantic", "shardcall_server"])
def test_importing_the_client_does_not_import(module):
    code = f"import sys, shardcall; sys.exit({module!r} in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
