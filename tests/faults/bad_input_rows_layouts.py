"""Rows about layouts: meshes, specs, strategies, and how many of each there are."""

from __future__ import annotations

import numpy as np
from end_to_end.messages import mesh, operand, spec, tensor
from faults.bad_input_rows import BIG, I32, LEASE, MIN, X8, Row, call, inline_operand, planned

from shardcall.v1 import array_service_pb2, kernel_service_pb2, mesh_pb2

_AXIS = mesh_pb2.MeshAxis
_MESHES = [
    ("a mesh of no axes", mesh_pb2.Mesh(), "INVALID_MESH"),
    ("no axes and a device", mesh_pb2.Mesh(device_ids=[0]), "INVALID_MESH"),
    ("an empty name", mesh(**{"": 2}), "INVALID_MESH"),
    ("a name that begins with a digit", mesh(**{"1x": 2}), "INVALID_MESH"),
    ("a name with a hyphen", mesh(**{"x-y": 2}), "INVALID_MESH"),
    ("a name of letters that are not ASCII", mesh(х=2), "INVALID_MESH"),
    ("a name with a NUL", mesh(**{"x\0": 2}), "INVALID_MESH"),
    ("a name with a newline at its end", mesh(**{"x\n": 2}), "INVALID_MESH"),
    ("a name of 65 letters", mesh(**{"x" * 65: 2}), "INVALID_MESH"),
    ("a name of 100,000 letters", mesh(**{"x" * 100_000: 2}), "INVALID_MESH"),
    ("an axis of size 0", mesh(x=2, y=0), "INVALID_MESH"),
    ("an axis of size -1", mesh(x=-1), "INVALID_MESH"),
    ("two axes of size -2", mesh(x=-2, y=-2), "INVALID_MESH"),
    ("an axis of the least size", mesh(x=MIN), "INVALID_MESH"),
    ("a size left out", mesh_pb2.Mesh(axes=[_AXIS(name="x")]), "INVALID_MESH"),
    ("a name left out", mesh_pb2.Mesh(axes=[_AXIS(size=2)]), "INVALID_MESH"),
    ("a name twice", mesh_pb2.Mesh(axes=[_AXIS(name="x", size=2)] * 2), "INVALID_MESH"),
    (
        "a name twice of two sizes",
        mesh_pb2.Mesh(axes=[_AXIS(name="x", size=2), _AXIS(name="x", size=1)]),
        "INVALID_MESH",
    ),
    ("a name twice of sizes 1", mesh_pb2.Mesh(axes=[_AXIS(name="x", size=1)] * 2), "INVALID_MESH"),
    ("9 devices", mesh(x=9), "NOT_ENOUGH_DEVICES"),
    ("16 devices on two axes", mesh(x=4, y=4), "NOT_ENOUGH_DEVICES"),
    ("an axis of the largest size", mesh(x=BIG), "NOT_ENOUGH_DEVICES"),
    ("16 axes of the largest size", mesh(**{f"x{i}": BIG for i in range(16)}), "NOT_ENOUGH_DEVICES"),
    ("17 axes", mesh(**{f"x{i}": 1 for i in range(17)}), "MALFORMED_REQUEST"),
]
_DEVICES = [
    ("a device twice", mesh(0, 0, x=2), "INVALID_MESH"),
    ("all devices one", mesh(*[7] * 8, x=8), "INVALID_MESH"),
    ("a device too few", mesh(0, x=2), "INVALID_MESH"),
    ("a device too many", mesh(0, 1, 2, x=2), "INVALID_MESH"),
    ("16,384 devices", mesh(*range(1 << 14), x=2), "MALFORMED_REQUEST"),
    ("16,385 devices", mesh(*[0] * ((1 << 14) + 1), x=2), "MALFORMED_REQUEST"),
    ("an unknown device", mesh(8, x=1), "NOT_ENOUGH_DEVICES"),
    ("a device below 0", mesh(-1, x=1), "NOT_ENOUGH_DEVICES"),
    ("the least device", mesh(MIN, 0, x=2), "NOT_ENOUGH_DEVICES"),
    ("the largest device", mesh(0, BIG, x=2), "NOT_ENOUGH_DEVICES"),
]
_SPECS = [
    ("an unknown axis", spec("y"), "UNKNOWN_MESH_AXIS"),
    ("an unknown axis behind a known one", spec(("x", "y")), "UNKNOWN_MESH_AXIS"),
    ("an empty axis", spec(("",)), "UNKNOWN_MESH_AXIS"),
    ("an axis in another case", spec("X"), "UNKNOWN_MESH_AXIS"),
    ("an axis of 4,000 letters", spec("x" * 4000), "UNKNOWN_MESH_AXIS"),
    ("an axis with a NUL", spec("x\0"), "UNKNOWN_MESH_AXIS"),
    ("an axis on both", spec("x", "x"), "MESH_AXIS_REUSED"),
    ("an axis twice on one", spec(("x", "x")), "MESH_AXIS_REUSED"),
    ("an axis 16 times on one", spec(("x",) * 16), "MESH_AXIS_REUSED"),
    ("three entries", spec("x", None, None), "SPEC_TOO_LONG"),
    ("32 entries", spec(*[None] * 32), "SPEC_TOO_LONG"),
]
_COUNTS = [("33 entries", spec(*[None] * 33), "specs"), ("17 axes in an entry", spec(("x",) * 17), "specs")]
_DIFF = ("diff", {}, [tensor(8, 4)])
_SUM = ("sum", {}, [tensor(8, 4)])
_MATMUL = ("matmul", {}, [tensor(8, 8), tensor(8, 8)])
_UNIFORM = ("uniform", {"shape": 4}, [tensor(element_type=I32)])
_STRATEGIES = [
    ("an unknown strategy", "hallo", _DIFF),
    ("a strategy of another kernel", "ring", _DIFF),
    ("a strategy in capitals", "HALO", _DIFF),
    ("auto in capitals", "AUTO", _DIFF),
    ("a blank strategy", " ", _DIFF),
    ("a strategy with a NUL", "halo\0", _DIFF),
    ("a strategy of a MiB", "h" * (1 << 20), _DIFF),
    ("halo of a product", "halo", _MATMUL),
    ("psum of a sum", "psum", _SUM),
    ("ring of a random array", "ring", _UNIFORM),
]
_HALO = {"mesh": X8, "strategy": "halo"}
_LAYOUTS = [
    ("halo across many blocks", "diff", {"n": 7, "axis": 0}, {**_HALO, "in_specs": [spec("x", None)]}, 1),
    (
        "halo of another result",
        "diff",
        {"axis": 0},
        {**_HALO, "in_specs": [spec("x")], "out_specs": [spec(None, "x")]},
        1,
    ),
    ("halo of another shift", "shift", {"shift": 1, "axis": 0}, {**_HALO, "out_specs": [spec()]}, 1),
    ("scan of another result", "cumsum", {"axis": 0}, {"mesh": X8, "strategy": "block_scan", "out_specs": [spec()]}, 1),
    (
        "reduce to another result",
        "sum",
        {"axis": 0},
        {"mesh": X8, "strategy": "all_reduce", "out_specs": [spec("x")]},
        1,
    ),
    ("psum of unsharded operands", "matmul", {}, {"mesh": X8, "strategy": "psum", "in_specs": [spec(), spec()]}, 2),
    (
        "a ring of other results",
        "collective_matmul",
        {"axis_name": "x"},
        {"mesh": X8, "strategy": "ring", "out_specs": [spec(None, "x")]},
        2,
    ),
]


def _second(name, wrong, reason):
    asked = call("matmul", mesh=X8, in_specs=[spec(), wrong])
    return planned(f"behind another: {name}", reason, "in_specs[1]", asked, [tensor(8, 4), tensor(4, 8)])


def _put(name, reason, field, **header):
    header = array_service_pb2.PutArrayHeader(array=inline_operand((8, 4), bytes(256)), lease_id=LEASE, **header)
    return Row(f"put: {name}", "PutArray", [array_service_pb2.PutArrayRequest(header=header)], reason, field)


def _executed(name, reason, field, count=1, **asked):
    operands = [operand(np.zeros((8, 4)))] * count
    request = kernel_service_pb2.ExecuteRequest(call=call(**asked), operands=operands)
    return Row(f"execute: {name}", "Execute", [request], reason, field)


ROWS = [
    *(planned(name, reason, "mesh", call(mesh=mesh_message)) for name, mesh_message, reason in _MESHES),
    *(_put(name, reason, "mesh", mesh=mesh_message) for name, mesh_message, reason in _MESHES[::3]),
    *(planned(name, reason, "mesh.device_ids", call(mesh=mesh_message)) for name, mesh_message, reason in _DEVICES),
    *(_put(name, reason, "mesh.device_ids", mesh=mesh_message) for name, mesh_message, reason in _DEVICES[::2]),
    *(planned(name, reason, "in_specs[0]", call(mesh=X8, in_specs=[wrong])) for name, wrong, reason in _SPECS),
    *(
        planned(f"result: {name}", reason, "out_specs[0]", call(mesh=X8, out_specs=[wrong]))
        for name, wrong, reason in _SPECS
    ),
    *(_second(name, wrong, reason) for name, wrong, reason in _SPECS[::2]),
    *(_put(name, reason, "spec", mesh=X8, spec=wrong) for name, wrong, reason in _SPECS[::2]),
    *(planned(name, "MALFORMED_REQUEST", field, call(mesh=X8, in_specs=[wrong])) for name, wrong, field in _COUNTS),
    *(_put(name, "MALFORMED_REQUEST", field, spec=wrong) for name, wrong, field in _COUNTS),
    planned("65 specs", "MALFORMED_REQUEST", "in_specs", call(in_specs=[spec()] * 65)),
    planned("65 specs of results", "MALFORMED_REQUEST", "out_specs", call(out_specs=[spec()] * 65)),
    planned("four specs of three", "INVALID_OPERAND", "in_specs", call(in_specs=[spec()] * 4)),
    planned("two specs of one result", "INVALID_OPERAND", "out_specs", call(out_specs=[spec()] * 2)),
    planned("two specs of no default", "INVALID_OPERAND", "in_specs", call("transpose", in_specs=[spec()] * 2)),
    *(
        planned(name, "UNKNOWN_STRATEGY", "strategy", call(kernel, parameters, strategy=strategy), operands)
        for name, strategy, (kernel, parameters, operands) in _STRATEGIES
    ),
    *(
        planned(name, "STRATEGY_UNSUPPORTED", "strategy", call(kernel, parameters, **asked), [tensor(8, 8)] * count)
        for name, kernel, parameters, asked, count in _LAYOUTS
    ),
    _executed("an empty mesh", "INVALID_MESH", "mesh", mesh=mesh_pb2.Mesh()),
    _executed("an unknown axis", "UNKNOWN_MESH_AXIS", "in_specs[0]", mesh=X8, in_specs=[spec("y")]),
    _executed("an unknown axis without a mesh", "UNKNOWN_MESH_AXIS", "in_specs[0]", in_specs=[spec("y")]),
    _executed("an unknown strategy", "UNKNOWN_STRATEGY", "strategy", strategy="none"),
]
