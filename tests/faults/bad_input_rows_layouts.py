"""Rows about layouts: meshes, specs, strategies, and how many of each there are."""

import numpy as np
from end_to_end.messages import mesh, operand, spec, tensor
from faults.bad_input_rows import BIG, I32, MIN, X8, call, planned, put, row, shown

from shardcall.v1 import kernel_service_pb2, mesh_pb2

_AXIS = mesh_pb2.MeshAxis
_MESHES = [
    ("no axes", mesh_pb2.Mesh(), "INVALID_MESH"),
    ("no axes and a device", mesh_pb2.Mesh(device_ids=[0]), "INVALID_MESH"),
    *(
        (f"an axis named {shown(name)}", mesh(**{name: 2}), "INVALID_MESH")
        for name in ("", "1x", "x-y", "х", "x\0", "x\n", "x" * 65, "x" * 100_000)  # the fourth is not ASCII
    ),
    *((f"an axis of size {size}", mesh(x=size), "INVALID_MESH") for size in (-1, MIN)),
    ("an axis of size 0", mesh(x=2, y=0), "INVALID_MESH"),
    ("two axes of size -2", mesh(x=-2, y=-2), "INVALID_MESH"),
    ("a size left out", mesh_pb2.Mesh(axes=[_AXIS(name="x")]), "INVALID_MESH"),
    ("a name left out", mesh_pb2.Mesh(axes=[_AXIS(size=2)]), "INVALID_MESH"),
    *(
        (f"a name twice of sizes {sizes}", mesh_pb2.Mesh(axes=[_AXIS(name="x", size=n) for n in sizes]), "INVALID_MESH")
        for sizes in ((2, 2), (2, 1), (1, 1))
    ),
    ("9 devices", mesh(x=9), "NOT_ENOUGH_DEVICES"),
    ("16 devices on two axes", mesh(x=4, y=4), "NOT_ENOUGH_DEVICES"),
    ("an axis of the largest size", mesh(x=BIG), "NOT_ENOUGH_DEVICES"),
    ("16 axes of the largest size", mesh(**{f"x{i}": BIG for i in range(16)}), "NOT_ENOUGH_DEVICES"),
    ("17 axes", mesh(**{f"x{i}": 1 for i in range(17)}), "MALFORMED_REQUEST"),
]
_DEVICES = [
    *((f"devices {ids}", mesh(*ids, x=2), "INVALID_MESH") for ids in ((0, 0), (0,), (0, 1, 2))),
    ("all devices one", mesh(*[7] * 8, x=8), "INVALID_MESH"),
    ("16,384 devices", mesh(*range(1 << 14), x=2), "MALFORMED_REQUEST"),
    ("16,385 devices", mesh(*[0] * ((1 << 14) + 1), x=2), "MALFORMED_REQUEST"),
    *((f"device {device}", mesh(device, x=1), "NOT_ENOUGH_DEVICES") for device in (8, -1)),
    *((f"devices {ids}", mesh(*ids, x=2), "NOT_ENOUGH_DEVICES") for ids in ((MIN, 0), (0, BIG))),
]
_ENTRIES = {
    "UNKNOWN_MESH_AXIS": [("y",), (("x", "y"),), (("",),), ("X",), ("x" * 4000,), ("x\0",)],
    "MESH_AXIS_REUSED": [("x", "x"), (("x", "x"),), (("x",) * 16,)],
    "SPEC_TOO_LONG": [("x", None, None), (None,) * 32],
}
_SPECS = [(f"spec {entries!r:.60}", spec(*entries), reason) for reason, specs in _ENTRIES.items() for entries in specs]
_COUNTS = [("33 entries", spec(*[None] * 33), "specs"), ("17 axes in an entry", spec(("x",) * 17), "specs")]
_STRATEGIES = [
    *(("diff", {}, [tensor(8, 4)], name) for name in ("hallo", "ring", "HALO", "AUTO", " ", "halo\0", "h" * (1 << 20))),
    ("matmul", {}, [tensor(8, 8), tensor(8, 8)], "halo"),
    ("sum", {}, [tensor(8, 4)], "psum"),
    ("uniform", {"shape": 4}, [tensor(element_type=I32)], "ring"),
]
_LAYOUTS = [  # kernel and parameters, strategy, specs of operands and of the result, number of operands
    ("diff", {"n": 7, "axis": 0}, "halo", [spec("x", None)], [], 1),
    ("sum", {"axis": 0}, "all_reduce", [], [spec("x")], 1),
]


def _second(name, wrong, reason):
    asked = call("matmul", mesh=X8, in_specs=[spec(), wrong])
    return planned(f"behind another: {name}", reason, "in_specs[1]", asked, [tensor(8, 4), tensor(4, 8)])


def _executed(name, reason, field, **asked):
    request = kernel_service_pb2.ExecuteRequest(call=call(**asked), operands=[operand(np.zeros((8, 4)))])
    return row(name, request, reason, field)


def _unsupported(kernel, parameters, strategy, in_specs, out_specs, count):
    asked = call(kernel, parameters, mesh=X8, strategy=strategy, in_specs=in_specs, out_specs=out_specs)
    name = f"{strategy} of {kernel} {parameters}"
    return planned(name, "STRATEGY_UNSUPPORTED", "strategy", asked, [tensor(8, 8)] * count)


ROWS = [
    *(planned(name, reason, "mesh", call(mesh=wrong)) for name, wrong, reason in _MESHES),
    *(put(name, reason, "mesh", mesh=wrong) for name, wrong, reason in _MESHES[::3]),
    *(planned(name, reason, "mesh.device_ids", call(mesh=wrong)) for name, wrong, reason in _DEVICES),
    *(put(name, reason, "mesh.device_ids", mesh=wrong) for name, wrong, reason in _DEVICES[::2]),
    *(planned(name, reason, "in_specs[0]", call(mesh=X8, in_specs=[wrong])) for name, wrong, reason in _SPECS),
    *(
        planned(f"result: {name}", reason, "out_specs[0]", call(mesh=X8, out_specs=[wrong]))
        for name, wrong, reason in _SPECS
    ),
    *(_second(name, wrong, reason) for name, wrong, reason in _SPECS[::2]),
    *(put(name, reason, "spec", mesh=X8, spec=wrong) for name, wrong, reason in _SPECS[::2]),
    *(planned(name, "MALFORMED_REQUEST", field, call(mesh=X8, in_specs=[wrong])) for name, wrong, field in _COUNTS),
    *(put(name, "MALFORMED_REQUEST", field, spec=wrong) for name, wrong, field in _COUNTS),
    planned("65 specs", "MALFORMED_REQUEST", "in_specs", call(in_specs=[spec()] * 65)),
    planned("65 specs of results", "MALFORMED_REQUEST", "out_specs", call(out_specs=[spec()] * 65)),
    planned("four specs of three", "INVALID_OPERAND", "in_specs", call(in_specs=[spec()] * 4)),
    planned("two specs of one result", "INVALID_OPERAND", "out_specs", call(out_specs=[spec()] * 2)),
    planned("two specs of no default", "INVALID_OPERAND", "in_specs", call("transpose", in_specs=[spec()] * 2)),
    *(
        planned(f"{kernel} by {shown(name)}", "UNKNOWN_STRATEGY", "strategy", call(kernel, p, strategy=name), operands)
        for kernel, p, operands, name in _STRATEGIES
    ),
    *(_unsupported(*layout) for layout in _LAYOUTS),
    _executed("an empty mesh", "INVALID_MESH", "mesh", mesh=mesh_pb2.Mesh()),
    _executed("an unknown axis", "UNKNOWN_MESH_AXIS", "in_specs[0]", mesh=X8, in_specs=[spec("y")]),
    _executed("an unknown axis without a mesh", "UNKNOWN_MESH_AXIS", "in_specs[0]", in_specs=[spec("y")]),
    _executed("an unknown strategy", "UNKNOWN_STRATEGY", "strategy", strategy="none"),
]
