"""Names and modules that `import shardcall` loads."""

import ast
import importlib
import inspect
import pkgutil
import re
from typing import get_type_hints

import numpy as np
import pytest
from rows import rows

import shardcall
from shardcall import aio, v1
from shardcall.methods import KernelMethods, kernel_caller, signatures
from shardcall_core.functions.function import REQUIRED
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.types.kernels import KernelDescription, KernelTable, OperandDescription, StrategyDescription

METHODS = {
    **dict.fromkeys(("Execute", "ExecuteStream", "CallStream"), "call"),
    "ListKernels": "kernels",
    "DescribeKernel": "kernel",
    "GetServerInfo": "server_info",
    "GetUsage": "usage",
    "GetProgress": "submit",  # whose results have a method `progress`
    "ListFiles": "files",
    "RemoveFile": "remove_file",
    "SaveCheckpoint": "save_checkpoint",
    "RenewLease": "put",  # and whatever makes arrays that stay: the client renews their lease itself
    "OpenSegment": "empty",
    "ListModels": "models",
    **dict.fromkeys(("StartProfile", "StopProfile"), "profile"),
}
"""Methods of clients by RPC, of those RPCs that do not begin with the method's name."""


def test_every_rpc_of_the_contract_has_a_method():
    names = [module.name for module in pkgutil.iter_modules(v1.__path__) if module.name.endswith("_service_pb2")]
    modules = [importlib.import_module(f"shardcall.v1.{name}") for name in names]
    services = [service for module in modules for service in module.DESCRIPTOR.services_by_name.values()]
    rpcs = {method.name for service in services for method in service.methods}
    assert METHODS.keys() <= rpcs
    for rpc in rpcs:
        assert callable(getattr(shardcall.Client, METHODS.get(rpc) or re.match("[A-Z][a-z]+", rpc)[0].lower())), rpc


def test_names_are_documented_and_imported_from_the_modules_that_type_checkers_see():
    tree = ast.parse(inspect.getsource(shardcall)).body
    imports, _ = (node for node in tree if isinstance(node, ast.If))
    homes = {alias.name: home.module for home in imports.body for alias in home.names}
    for name, home in homes.items():
        item = getattr(shardcall, name)
        assert item is getattr(importlib.import_module(home), name)
        assert not (inspect.isclass(item) or inspect.isfunction(item)) or inspect.getdoc(item), name
        package, _, module = home.partition(".")
        assert package == "shardcall_core" or inspect.ismodule(getattr(shardcall, module.partition(".")[0]))
    assert {*homes, "__version__"} == set(shardcall.__all__) == set(dir(shardcall))
    with pytest.raises(AttributeError, match="'shardcall' has no attribute 'connext'"):
        shardcall.connext  # noqa: B018
    method = r"no attribute 'put'; it is a method of a client: client = shardcall.connect\(\), and client.put\(…\)$"
    with pytest.raises(AttributeError, match=method):
        shardcall.put  # noqa: B018
    assert not [node for node in tree if isinstance(node, ast.FunctionDef)], "type checkers would take misspelt names"


def test_clients_hold_their_parts_and_inherit_little():
    orders = [[cls.__name__ for cls in client.__mro__] for client in (shardcall.Client, aio.AsyncClient)]
    base = ["KernelMethods", "KernelCaller", "Generic", "object"]
    assert orders == [["Client", *base], ["AsyncClient", "AsyncWrapper", *base]]


OPTIONS = {
    name: annotation
    for cls in (kernel_caller.ProductOptions, kernel_caller.WhereOptions, kernel_caller.ClipOptions)
    for name, annotation in get_type_hints(cls).items()
} | {"keep": bool}  # for type checkers False, beside an overload for True
METHODS_OF_KERNELS = sorted(name for name in dir(KernelMethods) if not name.startswith("_") and name != "call")


@rows("name", METHODS_OF_KERNELS)
def test_methods_have_real_signatures_and_a_line_for_every_parameter(name):
    function, method = FUNCTIONS[name], getattr(shardcall.Client, name)
    _self, *parameters = inspect.signature(method).parameters.values()
    options = ("mesh", *function.spec_keywords, "strategy", "keep", "timeout")
    keywords = parameters[-len(options) :]
    assert tuple(keyword.name for keyword in keywords) == options
    defaults = dict.fromkeys(options) | {"strategy": "auto", "keep": False, "timeout": 300.0}
    for keyword in keywords:
        assert (keyword.kind, keyword.default) == (inspect.Parameter.KEYWORD_ONLY, defaults[keyword.name])
        assert eval(keyword.annotation, vars(kernel_caller)) == OPTIONS[keyword.name]
    shown = {parameter.name: parameter.default for parameter in parameters}
    for parameter, default in function.defaults.items():
        if default is REQUIRED:
            assert shown[parameter] is inspect.Parameter.empty
        elif parameter != "dtype" or default is None:
            assert shown[parameter] == default
        else:
            assert np.dtype(shown[parameter]) == default
    documentation = inspect.getdoc(method)
    for parameter in parameters:
        assert documentation.count(f"\n    {parameter.name}: ") == 1, parameter
    assert "options" not in documentation


class Sending(KernelMethods):
    """Methods that return what they would send."""

    def call(self, name, /, *operands, **arguments):
        return name, operands, arguments

    def _kernel_names(self):
        return ("diff", "saxpy")


def test_power_documents_the_values_that_it_refuses():
    text = inspect.getdoc(shardcall.Client.power)
    assert text.startswith("Returns power(x, y), element by element, as ``numpy.power``.")
    assert text.endswith("InvalidOperandError: for integers to negative integer powers, as NumPy's ValueError.")
    assert "Raises" not in inspect.getdoc(shardcall.Client.add)


@rows(
    ("name", "hint"),
    [
        ("fft", "; did you mean 'diff'"),
        ("summ", "; did you mean 'sum'"),
        ("saxby", r"; did you mean 'saxpy'.*; print\(client.kernels\(\)\) shows all kernels"),
        ("saxpy", r"; it is a kernel of the server without a method: client.call\('saxpy', …\)"),
        ("zzzzzz", r"; print\(client.kernels\(\)\) shows all kernels"),
        ("_private", "$"),
    ],
)
def test_an_unknown_method_names_similar_ones_and_kernels_without_a_method(name, hint):
    with pytest.raises(AttributeError, match=f"'Sending' object has no attribute '{name}'{hint}"):
        getattr(Sending(), name)


def test_a_method_is_completed_once_by_threads_that_get_it_together(monkeypatch):
    def method(self, x, **options: int):
        """Returns x.

        Args:
            x: [] an array.
            options: as of other methods.
        """

    inspected = inspect.signature

    def complete_meanwhile(function):
        base = inspected(function)
        monkeypatch.setattr(inspect, "signature", inspected)
        signatures._complete(function, FUNCTIONS["negative"])
        return base

    monkeypatch.setattr(inspect, "signature", complete_meanwhile)
    signatures._complete(method, FUNCTIONS["negative"])
    assert list(inspect.signature(method).parameters)[-2:] == ["keep", "timeout"]
    assert method.__doc__.count("timeout:") == 1


def test_methods_that_a_subclass_overrides_stay_as_they_are():
    class Overriding(Sending):
        def add(self, x, y, strategy="auto"):
            return "own"

    assert Overriding().add(1, 2) == "own"
    assert list(inspect.signature(Overriding.add).parameters) == ["self", "x", "y", "strategy"]
    assert Overriding().negative(1.0)[:2] == ("negative", (1.0,))


def test_a_kernel_table_fits_80_columns():
    def kernel(name, summary):
        operands = [OperandDescription(f"operand{i}", "An array.", optional=True) for i in range(9)]
        strategies = (StrategyDescription("gspmd", ""), StrategyDescription("halo", ""))
        return KernelDescription(name, 1, summary, tuple(operands), (), strategies)

    text = str(KernelTable([kernel("one", "The first."), kernel("two", "word " * 40)]))
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("one(operand0?, operand1?")
    assert "    The first. [gspmd, halo]\ntwo(" in text


def test_a_misspelt_option_is_refused_as_python_refuses_it():
    arguments = {"n": 2, "axis": -1, "mesh": "mesh", "spec": "spec", "keep": True}
    sent = Sending().diff("x", 2, prepend=0.0, mesh="mesh", spec="spec", keep=True)
    assert sent == ("diff", ("x", 0.0, None), arguments)
    with pytest.raises(TypeError, match=r"diff\(\) got an unexpected keyword argument 'mseh'; did you mean 'mesh'\?"):
        Sending().diff("x", mseh="mesh")
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):  # which `client.xp` alone accepts
        Sending().diff("x", out=None)
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
            getattr(Sending(), method)(*arguments, **{wrong: "spec"})


@rows(
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
def test_a_missing_operand_is_named_before_anything_is_sent(method, arguments, name):
    with pytest.raises(shardcall.InvalidOperandError, match=rf"^{name} is None, and {method} needs it; give") as caught:
        getattr(Sending(), method)(*arguments)
    assert caught.value.field == name
