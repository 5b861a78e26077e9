"""Keys: equal calls have equal keys, and every difference changes the key."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

from rows import rows

from shardcall_server.compilation.keys import KernelKey

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


def test_equal_keys_have_equal_digests():
    assert dataclasses.replace(KEY).digest() == KEY.digest()


@rows("field", [field.name for field in dataclasses.fields(KernelKey)])
def test_every_part_decides_the_digest(field):
    assert dataclasses.replace(KEY, **{field: OTHER.get(field, "other")}).digest() != KEY.digest()


def test_no_two_splittings_of_the_same_text_meet():
    one = dataclasses.replace(KEY, operands=("a", "bc"))
    other = dataclasses.replace(KEY, operands=("ab", "c"))
    assert one.digest() != other.digest()


def test_the_digest_is_the_same_in_a_process_with_other_hashes():
    script = (
        "from shardcall_server.compilation.keys import KernelKey\n"
        f"print(KernelKey(**{dataclasses.asdict(KEY)!r}).digest())"
    )
    environment = {"PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert ended.stdout.strip() == KEY.digest()


def test_parts_are_labelled_in_a_fixed_order():
    labels = [label for label, _ in KEY.parts()]
    assert labels[:5] == ["kernel", "parameters.axis", "parameters.n", "operands[0]", "operands[1]"]
    assert len(labels) == len(set(labels))
