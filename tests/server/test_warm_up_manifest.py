"""A file that names calls is read as a client would make them, and every mistake is named with its place."""

from __future__ import annotations

import re

import pytest

import shardcall as sc
from shardcall._src.calls import calls
from shardcall_server.frontend.programs.warm_up_manifest import read_keys
from shardcall_server.settings import SettingsError

GOOD = """
[[call]]
kernel = "diff"
operands = ["float64[4096,4096]"]
mesh = { x = 8 }
in_specs = ['P("x", None)']
parameters = { axis = 0, prepend = 0.0 }

[[call]]
kernel = "matmul"
operands = ["float32[512, 256]", "float32[256, 512]"]
mesh = { a = 4, b = 2 }
device_ids = [7, 6, 5, 4, 3, 2, 1, 0]
in_specs = ['P("a", None)', "P(None, 'b')"]
out_specs = ['P(("a", "b"),)']
strategy = "gspmd"

[[call]]
kernel = "diff"
operands = ["int32[8]", "", ""]
in_specs = ["", ""]

[[call]]
kernel = "negative"
operands = ["bfloat16[]"]
in_specs = ["P()"]
"""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "keys.toml"


def test_calls_are_those_that_a_client_would_send(file):
    file.write_text(GOOD)
    diff, matmul, short, scalar = read_keys(file)
    x = sc.Array((4096, 4096), "float64")
    sent = calls.prepare("diff", [x], {"axis": 0, "prepend": 0.0}, mesh=sc.Mesh(x=8), in_specs=[sc.P("x", None)])
    assert (diff.call, list(diff.operands)) == (sent.message, sent.type_messages())
    sent = calls.prepare(
        "matmul",
        [sc.Array((512, 256), "float32"), sc.Array((256, 512), "float32")],
        {},
        mesh=sc.Mesh(a=4, b=2, device_ids=range(7, -1, -1)),
        in_specs=[sc.P("a", None), sc.P(None, "b")],
        out_specs=[sc.P(("a", "b"))],
        strategy="gspmd",
    )
    assert (matmul.call, list(matmul.operands)) == (sent.message, sent.type_messages())
    assert len(short.operands) == 1
    assert not short.call.HasField("mesh")
    assert list(scalar.operands[0].shape) == []
    assert matmul.name == f"{file}, call 2 (matmul)"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[", "is not TOML"),
        ("[call]\nkernel = 'diff'", "with double brackets"),
        ("call = 3", "with double brackets"),
        ("[[calls]]\nkernel = 'diff'", "'calls'; write every call as a table [[call]]"),
        ("[[call]]\noperands = []", "call 1: kernel is missing"),
        ("[[call]]\nkernel = 'diff'", "call 1 (diff): operands is missing"),
        ("[[call]]\nkernel = 3\noperands = []", "call 1: kernel is 3"),
        ("[[call]]\nkernel = 'diff'\noperands = 'float32[8]'", "operands is 'float32[8]'; write a list"),
        ("[[call]]\nkernel = 'diff'\noperands = [8]", 'an operand is 8; write its type, such as "float64[4096,4096]"'),
        ("[[call]]\nkernel = 'diff'\noperands = ['float32(8)']", "an operand is 'float32(8)'"),
        ("[[call]]\nkernel = 'diff'\noperands = ['float33[8]']", "call 1 (diff): "),
        ("[[call]]\nkernel = 'diff'\noperands = ['float32[8]']\nmesh = 8", "mesh is 8; write a table"),
        ("[[call]]\nkernel = 'diff'\noperands = ['float32[8]']\nmesh = {x = 0}", "0"),
        ("[[call]]\nkernel = 'diff'\noperands = ['float32[8]']\ndevice_ids = [1]", "device_ids is given without mesh"),
        ("[[call]]\nkernel = 'diff'\noperands = ['float32[8]']\nmesh = {x = 2}\ndevice_ids = [1]", "device"),
        (
            "[[call]]\nkernel = 'diff'\noperands = ['float32[8]']\nin_specs = ['x']",
            "a spec is 'x'; write 'P(\"x\", None)'",
        ),
        ("[[call]]\nkernel = 'diff'\noperands = ['float32[8]']\nin_specs = ['P(x)']", "a spec is 'P(x)'"),
        ("[[call]]\nkernel = 'diff'\noperands = ['float32[8]']\nin_specs = ['P(exit())']", "a spec is 'P(exit())'"),
        ("[[call]]\nkernel = 'diff'\noperands = ['float32[8]']\nin_specs = ['P(3)']", "a spec's entry is 3"),
        (
            "[[call]]\nkernel = 'diff'\noperands = ['float32[8]']\nspec = 'P()'",
            "'spec' is no key of a call; did you mean",
        ),
        ("[[call]]\nkernel = 'diff'\noperands = ['float32[8]']\nparameters = {axis = 1979-05-27}", "axis"),
        ("[[call]]\nkernel = 'diff'\noperands = ['float32[8]']\nstrategy = 3", "strategy is 3"),
        ("[[call]]\nkernel = 'a'\noperands = []\n[[call]]\nkernel = 'b'", "call 2 (b): operands is missing"),
    ],
)
def test_a_mistake_is_named_with_its_place(file, text, told):
    file.write_text(text)
    with pytest.raises(SettingsError, match=re.escape(told)) as raised:
        read_keys(file)
    assert str(file) in str(raised.value)


def test_a_file_that_is_not_there_is_named(file):
    with pytest.raises(SettingsError, match=r"keys\.toml of setting warm cannot be read: No such file"):
        read_keys(file)


def test_a_file_that_others_may_change_is_refused(file):
    file.write_text("")
    file.chmod(0o664)
    with pytest.raises(SettingsError, match=f"setting warm cannot be read: {file} has mode 0664 .*chmod go-w {file}"):
        read_keys(file)
