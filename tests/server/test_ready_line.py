"""The line that a server prints when it is ready."""

from rows import rows

from shardcall.v1 import server_info_service_pb2
from shardcall_server.frontend.serving import as_options, is_lonely
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2


def test_the_command_has_the_arguments_of_connect():
    assert as_options('"localhost:8470"') == "localhost:8470"
    arguments = '"gpu1:8470", ca_certificate="trust/ca.pem", client_key=…'
    assert as_options(arguments) == "gpu1:8470 --ca-certificate trust/ca.pem --client-key …"


@rows(
    ("count", "platform", "settings", "expected"),
    [
        (1, "cpu", {}, True),
        (1, "cpu", {"devices": 1}, False),
        (8, "cpu", {}, False),
        (1, "gpu", {}, False),
        (1, "cpu", {"hosts": 1}, False),
    ],
)
def test_one_cpu_device_needs_advice(count, platform, settings, expected):
    devices = [server_info_service_pb2.Device(id=i, kind=platform) for i in range(count)]
    assert is_lonely(link_pb2.Ready(devices=devices, platform=platform), Settings(**settings)) is expected
