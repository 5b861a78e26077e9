"""Recorded calls of a client, without a server."""

from types import SimpleNamespace
from typing import Any, cast

from shardcall._src.calls.recording import Recorder
from shardcall_core.types.arrays import Array


def test_templates_of_different_calls_have_different_numbers():
    """A thread may add the template of a call after another thread has added it."""
    sender = cast("Any", SimpleNamespace(pending=None))
    recorder = Recorder(sender, cast("Any", None), 1.0)
    call = cast("Any", SimpleNamespace(message=SimpleNamespace(kernel="add"), types=(), operands=()))
    templates = [recorder.add_template(key, call, {}, Array((2,), "float64")) for key in ("a", "b", "a", "c")]
    assert templates[2] is templates[0]
    assert len({template.number for template in templates}) == 3
