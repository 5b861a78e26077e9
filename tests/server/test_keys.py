"""Keys: equal calls have equal keys, and every difference changes the key."""

import dataclasses
import os
import subprocess
import sys
from types import ModuleType

from rows import rows

from shardcall_server.compilation.keys import KernelKey, code_digest

KEY = KernelKey(
    kernel="diff 1",
    parameters=(("axis", "0"), ("n", "1")),
    operands=("float64[8,4]", "absent"),
    mesh="x=8",
    device_ids="0,1,2,3,4,5,6,7",
    in_specs=("P('x', None)", "absent"),
    out_specs=("P('x', None)",),
    donated="none",
    strategy="halo",
    device_kind="cpu",
    jax="0.10.2 / 0.10.2",
    flags="",
)
OTHER = {"parameters": (("axis", "0"), ("n", "2")), "operands": ("float64[8,4]",), "in_specs": (), "out_specs": ()}


@rows("field", [field.name for field in dataclasses.fields(KernelKey)])
def test_every_part_decides_the_digest_and_nothing_else(field):
    assert dataclasses.replace(KEY).digest() == KEY.digest()
    assert dataclasses.replace(KEY, **{field: OTHER.get(field, "other")}).digest() != KEY.digest()


def test_no_two_splittings_of_the_same_text_meet():
    assert len({dataclasses.replace(KEY, operands=operands).digest() for operands in (("a", "bc"), ("ab", "c"))}) == 2


def test_the_digest_is_the_same_in_a_process_with_other_hashes():
    fields = dataclasses.asdict(KEY)
    script = f"from shardcall_server.compilation.keys import KernelKey; print(KernelKey(**{fields!r}).digest())"
    environment = {"PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert ended.stdout.strip() == KEY.digest()


def test_parts_are_labelled_in_a_fixed_order():
    labels = [label for label, _ in KEY.parts()]
    assert labels[:5] == ["kernel", "parameters.axis", "parameters.n", "operands[0]", "operands[1]"]
    assert len(labels) == len(set(labels))


def test_a_digest_depends_on_settings_and_on_what_installed_kernels_import(tmp_path, monkeypatch):
    helper = tmp_path / "helper_of_a_kernel.py"
    helper.write_text("FACTOR = 2\n")
    (tmp_path / "kernel_of_tests.py").write_text("import helper_of_a_kernel\n")
    for name in ("helper_of_a_kernel", "kernel_of_tests"):
        module = ModuleType(name)
        module.__file__ = str(tmp_path / f"{name}.py")
        monkeypatch.setitem(sys.modules, name, module)
    installed = type("Installed", (), {"__module__": "kernel_of_tests"})()

    def digests() -> list[str]:
        return [code_digest(kernels, settings) for kernels in ((), [installed]) for settings in ({}, {"a": 1})]

    before = digests()
    assert len(set(before)) == len(before)
    assert digests() == before
    helper.write_text("FACTOR = 3\n")
    after = digests()
    assert after[:2] == before[:2]
    assert not set(after[2:]) & set(before)
