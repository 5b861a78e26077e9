"""The limits on the devices that follow from their memory, or from the host's."""

from types import SimpleNamespace
from typing import Any

from rows import rows

from shardcall_server.frontend.dispatch.host_resources import _max_resident_bytes
from shardcall_server.frontend.dispatch.mesh_queue import make_queue
from shardcall_server.host_memory import memory_bytes
from shardcall_server.settings_sources import load_settings


@rows(
    ("flags", "device_bytes", "limit"),
    [
        ({}, 800, 700),
        ({}, 0, memory_bytes() // 2),
        ({}, None, memory_bytes() // 2),
        ({"max_device_bytes": 600}, 800, 600),
        ({"max_resident_bytes": 750}, 800, 750),
    ],
)
def test_resident_arrays_may_take_seven_eighths_of_the_devices_or_half_of_the_host(flags, device_bytes, limit):
    session: Any = None if device_bytes is None else SimpleNamespace(device_bytes=device_bytes)
    assert _max_resident_bytes(load_settings(flags), lambda: session) == limit


def test_programs_and_arrays_may_take_what_the_devices_have_or_else_the_host():
    session: Any = SimpleNamespace(device_bytes=0)
    arrays: Any = SimpleNamespace(device_bytes=0)
    budget = make_queue(load_settings({}), lambda: session, arrays).budget
    assert budget.limit_bytes() == memory_bytes()
    session.device_bytes = 800
    assert budget.limit_bytes() == 800
    assert make_queue(load_settings({"max_device_bytes": 600}), lambda: session, arrays).budget.limit_bytes() == 600
