"""What `import shardcall` gives, and what it does not bring along."""

import ast
import inspect
import subprocess
import sys

import pytest

import shardcall
from shardcall._src.types.spellings import SPELLINGS
from shardcall.methods import KernelMethods
from shardcall.v1 import (
    array_service_pb2,
    kernel_service_pb2,
    profile_service_pb2,
    segment_service_pb2,
    server_info_service_pb2,
)

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
    "StartProfile": "profile",
    "StopProfile": "profile",
}


def test_every_rpc_of_the_contract_has_a_method():
    modules = (
        array_service_pb2,
        kernel_service_pb2,
        profile_service_pb2,
        segment_service_pb2,
        server_info_service_pb2,
    )
    services = [service for module in modules for service in module.DESCRIPTOR.services_by_name.values()]
    assert {method.name for service in services for method in service.methods} == set(METHODS)
    for name in METHODS.values():
        assert callable(getattr(shardcall.Client, name))


def test_names_are_imported_from_where_type_checkers_are_told_that_they_are():
    told, _ = (node for node in ast.parse(inspect.getsource(shardcall)).body if isinstance(node, ast.If))
    homes = {alias.name: home.module for home in told.body for alias in home.names}
    assert homes == {name: f"shardcall.{home}" for name, home in shardcall._HOMES.items()}
    assert {*homes, "__version__"} == set(shardcall.__all__) == set(dir(shardcall))
    with pytest.raises(AttributeError, match="'shardcall' has no attribute 'connext'"):
        shardcall.connext  # noqa: B018
    for home in shardcall._HOMES.values():
        assert inspect.ismodule(getattr(shardcall, home))


def test_type_checkers_do_not_see_what_would_have_them_take_misspelt_names():
    assert not [node for node in ast.parse(inspect.getsource(shardcall)).body if isinstance(node, ast.FunctionDef)]


def test_all_names_exist_and_are_documented():
    for name in shardcall.__all__:
        item = getattr(shardcall, name)
        assert not (inspect.isclass(item) or inspect.isfunction(item)) or inspect.getdoc(item), name


METHODS_OF_KERNELS = sorted(name for name in dir(KernelMethods) if not name.startswith("_") and name != "call")


@pytest.mark.parametrize("name", METHODS_OF_KERNELS)
def test_methods_of_kernels_are_documented_and_name_what_the_client_names(name):
    method = getattr(shardcall.Client, name)
    assert inspect.getdoc(method)
    assert name in SPELLINGS
    options = list(inspect.signature(method).parameters.values())[-1]
    assert (options.name, options.kind) == ("options", inspect.Parameter.VAR_KEYWORD)


def test_power_tells_what_it_refuses():
    told = inspect.getdoc(shardcall.Client.power)
    assert told.startswith("``numpy.power``, element by element.\n\nIntegers to negative integer powers are refused")
    assert "\n\nArgs:\n    x: an array" in told
    assert "powers" not in inspect.getdoc(shardcall.Client.add)


def test_a_misspelt_option_is_refused_as_python_refuses_it():
    asked = []

    class Recorder(KernelMethods):
        def call(self, name, /, *operands, **arguments):
            asked.append((name, operands, arguments))

    Recorder().diff("x", 2, prepend=0.0, mesh="mesh", spec="spec", keep=True)
    arguments = {"n": 2, "axis": -1, "mesh": "mesh", "spec": "spec", "keep": True}
    assert asked == [("diff", ("x", 0.0, None), arguments)]
    with pytest.raises(TypeError, match=r"diff\(\) got an unexpected keyword argument 'mseh'; did you mean 'mesh'\?"):
        Recorder().diff("x", mseh="mesh")
    for method, arguments, wrong, meant in (
        ("matmul", ("a", "b"), "spec", "'lhs_spec' or 'rhs_spec'"),
        ("matmul", ("a", "b"), "lhs_spce", "'lhs_spec'"),
        ("matmul", ("a", "b"), "out_specs", "'out_spec'"),
        ("normal", (0, (8,)), "spec", "'out_spec'"),
        ("normal", (0, (8,)), "in_spec", "'out_spec'"),
        ("where", ("c", "a", "b"), "specs", "'spec' or 'x_spec' or 'y_spec'"),
        ("diff", ("x",), "sharding", "'spec'"),
    ):
        with pytest.raises(TypeError, match=rf"{method}\(\) .* '{wrong}'; did you mean {meant}\?"):
            getattr(Recorder(), method)(*arguments, **{wrong: "spec"})


@pytest.mark.parametrize(
    ("method", "arguments", "name"),
    [
        ("diff", (None,), "x"),
        ("add", (1.0, None), "y"),
        ("matmul", (1.0, None), "rhs"),
        ("where", (True, None, 1.0), "x"),
        ("normal", (None, (8,)), "seed"),
        ("sum", (None,), "x"),
    ],
)
def test_an_operand_that_is_none_is_named_before_anything_is_sent(method, arguments, name):
    class Refusing(KernelMethods):
        def call(self, name, /, *operands, **arguments):
            raise AssertionError("it was sent")

    with pytest.raises(shardcall.InvalidOperandError, match=rf"^{name} is None, and {method} needs it; give") as caught:
        getattr(Refusing(), method)(*arguments)
    assert caught.value.field == name


def test_einsum_takes_any_number_of_arrays():
    class Sending(KernelMethods):
        def call(self, name, /, *operands, **arguments):
            return name, operands, arguments["subscripts"]

    arrays = [[1.0]], [[2.0]], [[3.0]], [[4.0]]
    assert Sending().einsum("ij,jk,kl,lm", *arrays) == ("einsum", arrays, "ij,jk,kl,lm")


def test_layers_are_pairs():
    class Refusing(KernelMethods):
        def call(self, name, /, *operands, **arguments):
            raise AssertionError("it was sent")

    for layers, specs, field in (
        ([1, 2], None, "layers"),
        ([(1, 2)], [], "layer_specs"),
        ([(1, 2)], [1], "layer_specs"),
    ):
        with pytest.raises(shardcall.InvalidOperandError) as caught:
            Refusing().mlp_predict(0, layers, layer_specs=specs)
        assert caught.value.field == field


@pytest.mark.parametrize("module", ["jax", "typer", "rich", "pydantic", "shardcall_server"])
def test_importing_the_client_does_not_import(module):
    code = f"import sys, shardcall; sys.exit({module!r} in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
